#include "server/tuner/check/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "compiler/ir/graph/op.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/sample/compare.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/tuner/check/error_bound_internal.h"

namespace athanor {
namespace {

// Roundings of a sum in addition to one per term.
constexpr int64_t kExtraRoundings = 8;

// The smallest normal number of f32, in which f16 and bf16 accumulate. For f64 that is stricter
// than need be.
constexpr double kSmallestNormalF32 = 0x1p-126;

double Value(const Tensor& tensor, int64_t i) {
  const Scalar s = LoadScalar(tensor, i);
  return IsFloat(s.dtype)    ? s.f
         : IsSigned(s.dtype) ? static_cast<double>(s.i)
                             : static_cast<double>(s.u);
}

double Distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double d = std::fabs(a - b);
  return std::isnan(d) ? kUnknown : d;
}

// Returns x * y, but 0 times anything is 0, even times infinity.
double Times(double x, double y) { return x == 0 || y == 0 ? 0 : x * y; }

double Known(double e) { return std::isnan(e) ? kUnknown : e; }

double Rounding(DType dtype, double v, double units) {
  return IsFloat(dtype) && std::isfinite(v) ? units * UnitInLastPlace(dtype, v) : 0;
}

bool AnyError(const Errors& e) {
  return std::any_of(e.begin(), e.end(), [](double x) { return x != 0; });
}

// Computes the bounds of one node from those of its operands.
class NodeBound {
 public:
  NodeBound(const Expr::Env& dims, const Node& node, const std::vector<Tensor>& values,
            const std::vector<Errors>& errors, const Tensor& value)
      : dims_(dims),
        node_(node),
        traits_(OpInfo(node.op).traits),
        v_(value),
        e_(value.elements(), 0.0) {
    for (NodeId i : node.inputs) {
      in_.push_back(&values[i]);
      err_.push_back(&errors[i]);
      any_ = any_ || AnyError(errors[i]);
    }
  }

  absl::StatusOr<Errors> Compute();

 private:
  double a(int operand, int64_t i) const { return Value(*in_[operand], i); }
  double ea(int operand, int64_t i) const { return (*err_[operand])[i]; }

  void Elementwise();
  double Element(int64_t i);
  double Monotone(int64_t i);
  double Tangent(int64_t i);
  double Power(int64_t i);
  double Modulo(int64_t i);
  // Evaluates the op on numbers that are not rounded to a dtype.
  double Exact(std::vector<double> operands);

  absl::Status Sum();
  absl::Status Products();
  absl::Status Contraction();
  absl::Status Bags();
  absl::Status Moved();
  absl::Status Scattered();
  void AddSumRounding(const Errors& magnitudes, int64_t terms);

  // |a|; |a| + e(a); max(|a| + e(a), 1); min(|a| - e(a), 1), where 0 counts as 1.
  enum FactorKind { kMagnitude, kWidened, kLarge, kSmall, kFactorKinds };
  Tensor Factor(int operand, FactorKind kind) const;
  Tensor Magnitude(int operand) const { return Factor(operand, kMagnitude); }
  Tensor Widened(int operand) const { return Factor(operand, kWidened); }
  Tensor ErrorTensor(int operand) const;
  // Evaluates the op's reference function on other operands, with these attributes.
  absl::StatusOr<Errors> Apply(std::vector<const Tensor*> operands, const Attrs& attrs) const;

  const Expr::Env& dims_;
  const Node& node_;
  const OpTraits& traits_;
  const Tensor& v_;
  std::vector<const Tensor*> in_;
  std::vector<const Errors*> err_;
  bool any_ = false;
  Errors e_;
};

Tensor FromDoubles(std::vector<int64_t> shape, const Errors& values, DType dtype) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    // Rounds up, so that it stays a bound.
    double x = values[i];
    if (dtype == DType::kF32 && std::isfinite(x)) x *= 1 + 1e-6;
    StoreScalar(t, static_cast<int64_t>(i), Scalar::Float(dtype, x));
  }
  return t;
}

// The reference functions sum f32 tensors in f64, and f64 tensors in something slower.
DType Carrier(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

Tensor NodeBound::Factor(int operand, FactorKind kind) const {
  Errors m(in_[operand]->elements());
  for (size_t i = 0; i < m.size(); ++i) {
    const double magnitude = std::fabs(a(operand, i)), e = ea(operand, i);
    m[i] = kind == kMagnitude ? magnitude
           : kind == kWidened ? magnitude + e
           : kind == kLarge   ? std::max(magnitude + e, 1.0)
           : magnitude == 0   ? 1
                              : std::clamp(magnitude - e, 0.0, 1.0);
  }
  return FromDoubles(in_[operand]->shape, m, Carrier(in_[operand]->dtype));
}

Tensor NodeBound::ErrorTensor(int operand) const {
  return FromDoubles(in_[operand]->shape, *err_[operand], Carrier(in_[operand]->dtype));
}

absl::StatusOr<Errors> NodeBound::Apply(std::vector<const Tensor*> operands,
                                        const Attrs& attrs) const {
  Tensor result = Tensor::Zeros(operands[0]->dtype, v_.shape);
  absl::Status status = OpInfo(node_.op).reference(operands, attrs, dims_, &result);
  if (!status.ok()) return status;
  Errors values(result.elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = Known(Value(result, i));
  return values;
}

double NodeBound::Exact(std::vector<double> operands) {
  std::vector<Tensor> tensors;
  std::vector<const Tensor*> pointers;
  for (double x : operands) tensors.push_back(Tensor::Of<double>(DType::kF64, {}, {x}));
  for (const Tensor& t : tensors) pointers.push_back(&t);
  Tensor result =
      Tensor::Zeros(traits_.rounding == Rounding::kConverts ? v_.dtype : DType::kF64, {});
  if (!OpInfo(node_.op).reference(pointers, node_.attrs, dims_, &result).ok()) return NAN;
  return Value(result, 0);
}

// Works for Cosh too, which changes most towards one of the ends. Outside a function's domain the
// distance is unknown.
double NodeBound::Monotone(int64_t i) {
  const double x = a(0, i), e = ea(0, i);
  if (e == kUnknown) return kUnknown;
  double low = x - e;
  const bool positive = traits_.errors == ErrorRule::kMonotoneFromZero;
  if (positive && x >= 0) low = std::max(low, 0.0);
  if (traits_.errors == ErrorRule::kReciprocal && low <= 0 && x + e >= 0) return kUnknown;
  const double at = Exact({x});
  return std::max(Distance(Exact({low}), at), Distance(Exact({x + e}), at));
}

// The tangent is monotone between two poles.
double NodeBound::Tangent(int64_t i) {
  const double x = a(0, i), e = ea(0, i);
  const auto branch = [](double at) { return std::floor(at / M_PI + 0.5); };
  return e < M_PI_2 && branch(x - e) == branch(x + e) ? Monotone(i) : kUnknown;
}

double NodeBound::Power(int64_t i) {
  const double x = a(0, i), y = a(1, i), ex = ea(0, i), ey = ea(1, i);
  if (x <= ex || ex == kUnknown || ey == kUnknown) return kUnknown;
  const double at = Exact({x, y});
  double worst = 0;
  for (double sx : {-ex, ex}) {
    for (double sy : {-ey, ey}) worst = std::max(worst, Distance(Exact({x + sx, y + sy}), at));
  }
  return worst;
}

double NodeBound::Modulo(int64_t i) {
  const double x = a(0, i), y = a(1, i), ex = ea(0, i), ey = ea(1, i);
  if (std::fabs(y) <= ey) return kUnknown;
  const double q = std::floor(x / y);
  for (double sx : {-ex, ex}) {
    for (double sy : {-ey, ey}) {
      if (std::floor((x + sx) / (y + sy)) != q) return std::fabs(y) + ey;
    }
  }
  return ex + std::fabs(q) * ey;
}

// Returns the error propagated from the operands; the caller adds this op's rounding.
double NodeBound::Element(int64_t i) {
  const double v = Value(v_, i);
  switch (traits_.errors) {
    case ErrorRule::kSumOfTwo:
      return ea(0, i) + ea(1, i);
    case ErrorRule::kProductOfTwo:
      return Times(std::fabs(a(0, i)), ea(1, i)) + Times(std::fabs(a(1, i)), ea(0, i)) +
             Times(ea(0, i), ea(1, i));
    case ErrorRule::kQuotient: {
      const double divisor = std::fabs(a(1, i)) - ea(1, i);
      if (ea(0, i) == 0 && ea(1, i) == 0) return 0;
      return divisor > 0 ? (ea(0, i) + Times(std::fabs(v), ea(1, i))) / divisor : kUnknown;
    }
    case ErrorRule::kRemainder:
      return ea(0, i) == 0 && ea(1, i) == 0 ? 0 : Modulo(i);
    case ErrorRule::kPower:
      return ea(0, i) == 0 && ea(1, i) == 0 ? 0 : Power(i);
    case ErrorRule::kEither:
      return std::max(ea(0, i), ea(1, i));
    case ErrorRule::kComparison: {
      const double e = ea(0, i) + ea(1, i);
      return e > 0 && !(Distance(a(0, i), a(1, i)) > e) ? kUnknown : 0;
    }
    case ErrorRule::kChoice: {
      if (ea(0, i) == 0) return a(0, i) != 0 ? ea(1, i) : ea(2, i);
      return Distance(a(1, i), a(2, i)) + ea(1, i) + ea(2, i);
    }
    case ErrorRule::kPeriodic:
      return std::min(ea(0, i), 2.0);
    case ErrorRule::kTangent:
      return ea(0, i) == 0 ? 0 : Tangent(i);
    case ErrorRule::kBits:
      return ea(0, i) == 0 ? 0 : kUnknown;
    default:
      return ea(0, i) == 0 ? 0 : Monotone(i);
  }
}

void NodeBound::Elementwise() {
  // A conversion is correctly rounded, so the range of its operand says all.
  const double units = traits_.rounding == Rounding::kRounds ? OpInfo(node_.op).ulp + 0.5 : 0;
  const bool is_float = IsFloat(v_.dtype);
  const bool discrete =
      !is_float && traits_.errors != ErrorRule::kComparison && traits_.errors != ErrorRule::kChoice;
  for (size_t i = 0; i < e_.size(); ++i) {
    const double v = Value(v_, i);
    double carried = any_ ? Known(Element(static_cast<int64_t>(i))) : 0;
    // Integers and bools are either exact or unknown.
    if (discrete || (!is_float && carried != 0)) carried = carried == 0 ? 0 : kUnknown;
    e_[i] = carried + Rounding(v_.dtype, v, units);
  }
  if (!any_ || !discrete || traits_.rounding == Rounding::kConverts) return;
  for (size_t i = 0; i < e_.size(); ++i) {
    for (size_t o = 0; o < in_.size(); ++o) {
      if (ea(static_cast<int>(o), i) != 0) e_[i] = kUnknown;
    }
  }
}

void NodeBound::AddSumRounding(const Errors& magnitudes, int64_t terms) {
  if (!IsFloat(v_.dtype)) return;
  const double gamma = Gamma(terms + kExtraRoundings, UnitRoundoff(AccumulatorOf(v_.dtype)));
  for (size_t i = 0; i < e_.size(); ++i) {
    const double v = Value(v_, i);
    // A sum that is infinite or NaN is so in any order, unless by overflow of a partial sum.
    if (!std::isfinite(v)) continue;
    e_[i] += Times(gamma, magnitudes[i]) + Rounding(v_.dtype, v, 1);
  }
}

absl::Status NodeBound::Sum() {
  const Tensor magnitude = Magnitude(0);
  ASSIGN_OR_RETURN(Errors magnitudes, Apply({&magnitude}, node_.attrs));
  if (any_) {
    const Tensor error = ErrorTensor(0);
    ASSIGN_OR_RETURN(e_, Apply({&error}, node_.attrs));
  }
  if (traits_.errors == ErrorRule::kLargest) {
    for (double& e : e_) e = std::max(e, 0.0);
    return absl::OkStatus();
  }
  AddSumRounding(magnitudes, in_[0]->elements() / std::max<int64_t>(v_.elements(), 1));
  return absl::OkStatus();
}

// The bound is the product of |a| + e(a) minus that of |a|. It is known if no partial product
// leaves the range: neither the product of all factors above 1 nor that of all below 1.
absl::Status NodeBound::Products() {
  if (!IsFloat(v_.dtype)) {
    for (size_t i = 0; any_ && i < e_.size(); ++i) e_[i] = kUnknown;
    return absl::OkStatus();
  }
  const bool scatter = traits_.errors == ErrorRule::kScattered;
  Errors products[kFactorKinds];
  for (FactorKind kind : {kMagnitude, kWidened, kLarge, kSmall}) {
    const Tensor first = Factor(0, kind), updates = scatter ? Factor(2, kind) : Tensor();
    ASSIGN_OR_RETURN(products[kind], scatter ? Apply({&first, in_[1], &updates}, node_.attrs)
                                             : Apply({&first}, node_.attrs));
  }
  for (size_t i = 0; i < e_.size(); ++i) {
    const bool inside =
        std::isfinite(products[kLarge][i]) && products[kSmall][i] >= kSmallestNormalF32;
    e_[i] = inside ? products[kWidened][i] - products[kMagnitude][i] : kUnknown;
  }
  const int64_t terms =
      scatter ? in_[1]->elements() + 1 : in_[0]->elements() / std::max<int64_t>(v_.elements(), 1);
  AddSumRounding(products[kWidened], terms);
  return absl::OkStatus();
}

absl::Status NodeBound::Contraction() {
  ASSIGN_OR_RETURN(ContractSpec spec,
                   ContractSpec::Parse(GetAttr<std::string>(node_.attrs, "spec")));
  int64_t terms = 1;
  std::string counted = spec.result;
  for (int side = 0; side < 2; ++side) {
    const std::string& letters = side == 0 ? spec.lhs : spec.rhs;
    for (size_t axis = 0; axis < letters.size(); ++axis) {
      if (counted.find(letters[axis]) != std::string::npos) continue;
      counted += letters[axis];
      terms *= in_[side]->shape[axis];
    }
  }
  const Tensor lhs = Magnitude(0), rhs = Magnitude(1);
  ASSIGN_OR_RETURN(Errors magnitudes, Apply({&lhs, &rhs}, node_.attrs));
  // Adds |a|e(b), then e(a)(|b| + e(b)).
  for (int side = 0; side < 2; ++side) {
    if (!AnyError(*err_[side])) continue;
    const Tensor error = ErrorTensor(side);
    const Tensor other = side == 1 ? Magnitude(0) : Widened(1);
    ASSIGN_OR_RETURN(Errors carried, side == 1 ? Apply({&other, &error}, node_.attrs)
                                               : Apply({&error, &other}, node_.attrs));
    for (size_t i = 0; i < e_.size(); ++i) e_[i] = Known(e_[i] + carried[i]);
  }
  AddSumRounding(magnitudes, terms);
  return absl::OkStatus();
}

absl::Status NodeBound::Bags() {
  if (AnyError(*err_[1]) || AnyError(*err_[2])) {
    e_.assign(e_.size(), kUnknown);
    return absl::OkStatus();
  }
  const bool max = GetAttr<std::string>(node_.attrs, "mode") == "max";
  const Tensor magnitude = Magnitude(0), error = ErrorTensor(0);
  absl::StatusOr<Errors> magnitudes = Apply({&magnitude, in_[1], in_[2]}, node_.attrs);
  absl::StatusOr<Errors> carried = Apply({&error, in_[1], in_[2]}, node_.attrs);
  if (!magnitudes.ok()) return magnitudes.status();
  if (!carried.ok()) return carried.status();
  e_ = *std::move(carried);
  if (!max) AddSumRounding(*magnitudes, in_[1]->elements());
  return absl::OkStatus();
}

absl::Status NodeBound::Moved() {
  if (!any_) return absl::OkStatus();
  const bool selects = in_.size() > 1;
  if (selects && AnyError(*err_[1])) {
    e_.assign(e_.size(), kUnknown);
    return absl::OkStatus();
  }
  const Tensor error = FromDoubles(in_[0]->shape, *err_[0], DType::kF64);
  Attrs attrs = node_.attrs;
  if (attrs.contains("fill")) attrs.find("fill")->second = Tensor::Zeros(DType::kF64, {});
  ASSIGN_OR_RETURN(e_, selects ? Apply({&error, in_[1]}, attrs) : Apply({&error}, attrs));
  return absl::OkStatus();
}

absl::Status NodeBound::Scattered() {
  if (AnyError(*err_[1])) {
    e_.assign(e_.size(), kUnknown);
    return absl::OkStatus();
  }
  const auto mode = GetAttrOr<std::string>(node_.attrs, "mode", "set");  // StateWrite has none
  if (mode == "mul") return Products();
  Attrs attrs = node_.attrs;
  // Carries the largest error of all values that could be chosen.
  if (mode == "min") attrs.find("mode")->second = std::string("max");
  const Tensor data = ErrorTensor(0), updates = ErrorTensor(2);
  ASSIGN_OR_RETURN(e_, Apply({&data, in_[1], &updates}, attrs));
  if (mode != "add") return absl::OkStatus();
  const Tensor a = Magnitude(0), b = Magnitude(2);
  ASSIGN_OR_RETURN(Errors magnitudes, Apply({&a, in_[1], &b}, attrs));
  AddSumRounding(magnitudes, in_[1]->elements() + 1);
  return absl::OkStatus();
}

absl::StatusOr<Errors> NodeBound::Compute() {
  absl::Status status;
  switch (traits_.errors) {
    case ErrorRule::kSum:
    case ErrorRule::kLargest:
      status = Sum();
      break;
    case ErrorRule::kProduct:
      status = Products();
      break;
    case ErrorRule::kContraction:
      status = Contraction();
      break;
    case ErrorRule::kBags:
      status = Bags();
      break;
    case ErrorRule::kMoved:
      status = Moved();
      break;
    case ErrorRule::kScattered:
      status = Scattered();
      break;
    case ErrorRule::kOrder:
      // An inexact element may be sorted elsewhere, and so may all elements it is compared with.
      if (AnyError(*err_[0])) e_.assign(e_.size(), kUnknown);
      break;
    case ErrorRule::kLoop:
      if (absl::StatusOr<Errors> e = LoopBounds(ViewScan(node_), in_, err_, dims_); e.ok()) {
        e_ = *std::move(e);
      } else {
        status = e.status();
      }
      break;
    default:
      if (IsElementwise(node_.op)) Elementwise();
  }
  if (!status.ok()) return status;
  const bool integer = !IsFloat(v_.dtype);
  for (double& e : e_) {
    if (integer && e != 0) e = kUnknown;
  }
  return std::move(e_);
}

}  // namespace

absl::StatusOr<BoundedValues> BoundGraph(const Graph& simple, absl::Span<const Tensor> inputs,
                                         absl::Span<const Errors> input_errors,
                                         const Expr::Env* given) {
  ASSIGN_OR_RETURN(std::vector<Tensor> values, EvaluateAll(simple, inputs, given));
  std::vector<std::vector<int64_t>> shapes;
  for (const Tensor& t : inputs) shapes.push_back(t.shape);
  ASSIGN_OR_RETURN(Expr::Env dims, given != nullptr ? *given : BindDims(simple, shapes));
  std::vector<Errors> errors;
  size_t input = 0;
  for (size_t n = 0; n < simple.nodes.size(); ++n) {
    if (IsInput(simple.nodes[n].op) && !input_errors.empty()) {
      errors.push_back(input_errors[input++]);
      continue;
    }
    ASSIGN_OR_RETURN(Errors e,
                     NodeBound(dims, simple.nodes[n], values, errors, values[n]).Compute());
    errors.push_back(std::move(e));
  }
  BoundedValues bounded;
  for (const Output& output : simple.outputs) {
    bounded.values.push_back(values[output.node]);
    bounded.errors.push_back(errors[output.node]);
  }
  return bounded;
}

}  // namespace athanor
