// The steps of a recurrence, and the activations it applies.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_scan.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/networks/handlers_recurrent.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

// Returns a number in the type of x, rounded to it.
Value Number(OpBuilder& b, const Value& x, double value) {
  Tensor t = Tensor::Zeros(x.dtype(), {});
  StoreScalar(t, 0, Scalar::Float(t.dtype, value));
  return b.Literal(x.elem, std::move(t));
}

Value Scaled(OpBuilder& b, const Value& x, double alpha) { return Mul(b, x, Number(b, x, alpha)); }

struct ActivationRow {
  std::string_view name;  // in lower case
  Value (*apply)(OpBuilder& b, const Value& x, double alpha, double beta);
  int parameters;                     // 1: alpha; 2: alpha and beta
  std::optional<double> alpha, beta;  // defaults, if there are any
};

constexpr ActivationRow kActivations[] = {
    {"relu",
     [](OpBuilder& b, const Value& x, double, double) { return Unary(b, Op::kRelu, x); },
     0,
     {},
     {}},
    {"tanh",
     [](OpBuilder& b, const Value& x, double, double) { return Unary(b, Op::kTanh, x); },
     0,
     {},
     {}},
    {"sigmoid",
     [](OpBuilder& b, const Value& x, double, double) { return Unary(b, Op::kSigmoid, x); },
     0,
     {},
     {}},
    {"affine",
     [](OpBuilder& b, const Value& x, double alpha, double beta) {
       return Add(b, Scaled(b, x, alpha), Number(b, x, beta));
     },
     2,
     {},
     {}},
    {"leakyrelu",
     [](OpBuilder& b, const Value& x, double alpha, double) {
       return Select(b, Less(b, x, Number(b, x, 0)), Scaled(b, x, alpha), x);
     },
     1,
     0.01,
     {}},
    {"thresholdedrelu",
     [](OpBuilder& b, const Value& x, double alpha, double) {
       return Select(b, Less(b, x, Number(b, x, alpha)), Number(b, x, 0), x);
     },
     1,
     1.0,
     {}},
    {"scaledtanh",
     [](OpBuilder& b, const Value& x, double alpha, double beta) {
       return Scaled(b, Unary(b, Op::kTanh, Scaled(b, x, beta)), alpha);
     },
     2,
     {},
     {}},
    {"hardsigmoid",
     [](OpBuilder& b, const Value& x, double alpha, double beta) {
       return Clamp(b, Add(b, Scaled(b, x, alpha), Number(b, x, beta)), Number(b, x, 0),
                    Number(b, x, 1));
     },
     2, 0.2, 0.5},
    {"elu",
     [](OpBuilder& b, const Value& x, double alpha, double) {
       const Value below = Scaled(b, Unary(b, Op::kExpm1, x), alpha);
       return Select(b, Less(b, x, Number(b, x, 0)), below, x);
     },
     1,
     1.0,
     {}},
    {"softsign",
     [](OpBuilder& b, const Value& x, double, double) {
       return Div(b, x, Add(b, Abs(b, x), Number(b, x, 1)));
     },
     0,
     {},
     {}},
    {"softplus",
     [](OpBuilder& b, const Value& x, double, double) {
       const Value tail = Unary(b, Op::kLog1p, Unary(b, Op::kExp, Neg(b, Abs(b, x))));
       return Add(b, Max(b, x, Number(b, x, 0)), tail);
     },
     0,
     {},
     {}},
};

const ActivationRow* FindActivation(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower({name.data(), name.size()});
  for (const ActivationRow& row : kActivations) {
    if (row.name == lower) return &row;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::vector<Activation>> ActivationsOf(const HandlerContext& c, size_t count,
                                                      absl::Span<const std::string_view> names) {
  std::vector<std::string> chosen;
  while (chosen.size() < count) chosen.insert(chosen.end(), names.begin(), names.end());
  if (c.Given("activations")) chosen = c.Strings("activations");
  if (chosen.size() != count) {
    return Invalid("attribute activations names ", chosen.size(), " functions; it must name ",
                   count);
  }
  std::vector<double> alphas, betas;
  if (c.Given("activation_alpha")) alphas = c.Floats("activation_alpha");
  if (c.Given("activation_beta")) betas = c.Floats("activation_beta");
  // Given values go, in order, to the functions that take one.
  size_t next_alpha = 0, next_beta = 0;
  std::vector<Activation> activations;
  for (const std::string& name : chosen) {
    const ActivationRow* row = FindActivation(name);
    if (row == nullptr) {
      return Invalid("attribute activations names ", Quoted(name),
                     "; it must be one of Affine, Elu, HardSigmoid, LeakyRelu, Relu, ScaledTanh, "
                     "Sigmoid, Softplus, Softsign, Tanh, ThresholdedRelu");
    }
    std::optional<double> alpha = row->alpha, beta = row->beta;
    if (row->parameters > 0 && next_alpha < alphas.size()) alpha = alphas[next_alpha++];
    if (row->parameters > 1 && next_beta < betas.size()) beta = betas[next_beta++];
    if ((row->parameters > 0 && !alpha) || (row->parameters > 1 && !beta)) {
      return Invalid("activation ", Quoted(name), " has no default ", alpha ? "beta" : "alpha",
                     "; give it in activation_", alpha ? "beta" : "alpha");
    }
    activations.push_back({row->apply, alpha.value_or(0), beta.value_or(0)});
  }
  return activations;
}

void Sequence::SetLengths(OpBuilder& b, const Value& lengths) {
  const Value wide = Cast(b, lengths, Elem::kInt64);
  lengths_ =
      Max(b, Min(b, wide, Size(b, Elem::kInt64, length_, wide.shape)), b.Integer(Elem::kInt64, 0));
}

Value Sequence::Used(OpBuilder& b, const Value& x) const {
  if (!lengths_) return x;
  const Value longest = Reduce(b, Op::kMaxReduce, *lengths_, {0}, false);
  if (!b.status().ok()) return x;
  const Value used = Less(b, b.Iota(Elem::kInt64, x.shape, 0), longest);
  return Select(b, used, x, Splat(b, b.Scalar(x.elem, 0), x.shape));
}

Value Sequence::Within(OpBuilder& b, const Value& step, const Value& value,
                       const Value& otherwise) const {
  if (!lengths_) return value;
  return Select(b, Map(b, Less(b, step, *lengths_), value.shape, {Expr::Axis(0)}), value,
                otherwise);
}

Sequence::Ran Sequence::Run(OpBuilder& b, const std::vector<Value>& scanned,
                            const std::vector<Value>& states, bool reverse, Step step) const {
  Ran ran;
  if (length_.IsConstant(1)) {  // no loop
    std::vector<Value> slices;
    for (const Value& x : scanned) slices.push_back(Squeeze(b, x, {0}));
    std::vector<Value> results = step(b.Integer(Elem::kInt64, 0), slices, states);
    for (size_t i = 0; i < results.size(); ++i) {
      if (i < states.size()) {
        ran.last.push_back(results[i]);
      } else {
        ran.stacked.push_back(Unsqueeze(b, results[i], {0}));
      }
    }
    return ran;
  }
  ScanBuilder scan(&b, length_, reverse);
  std::vector<Value> inside, slices;
  for (const Value& state : states) inside.push_back(scan.State(state));
  for (const Value& x : scanned) slices.push_back(scan.Slice(x));
  std::vector<Value> next = step(scan.step(), slices, inside);
  std::vector<Value> elements(next.begin() + static_cast<int64_t>(states.size()), next.end());
  next.resize(states.size());
  const size_t count = elements.size();
  scan.Finish(std::move(next), std::move(elements));
  for (size_t i = 0; i < states.size(); ++i) ran.last.push_back(scan.Last(i));
  for (size_t k = 0; k < count; ++k) ran.stacked.push_back(scan.Stacked(k));
  return ran;
}

Value Sequence::Reversed(OpBuilder& b, const Value& x) const {
  if (!b.status().ok()) return x;
  if (!lengths_) return Reverse(b, x, 0);
  const Expr batch = x.shape[1];
  const Shape rows = {length_, batch};
  const Value t = b.Iota(Elem::kInt64, rows, 0);
  const Value lengths = Map(b, *lengths_, rows, {Expr::Axis(1)});
  const Value turned = Sub(b, Sub(b, lengths, b.Integer(Elem::kInt64, 1)), t);
  const Value from = Select(b, Less(b, t, lengths), turned, t);
  const Value flat =
      Add(b, Mul(b, from, Size(b, Elem::kInt64, batch, rows)), b.Iota(Elem::kInt64, rows, 1));
  return Gather(b, Reshape(b, x, {length_ * batch, x.shape[2]}), flat, 0);
}

}  // namespace athanor::onnx
