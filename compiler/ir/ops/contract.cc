// Contract: sums of products.
#include <map>
#include <string>
#include <vector>

#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/ops/value_facts.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::Status CheckLetters(std::string_view what, const std::string& letters, const Shape& shape) {
  if (letters.size() == shape.size()) return absl::OkStatus();
  return Invalid("spec gives ", what, " the axes ", Quoted(letters), ", but it has shape ",
                 ShapeToString(shape), "; it needs one letter per axis");
}

absl::StatusOr<TensorType> InferContract(TypeSpan inputs, const Attrs& attrs,
                                         const Bounds& bounds) {
  ASSIGN_OR_RETURN(ContractSpec spec, ContractSpec::Parse(GetAttr<std::string>(attrs, "spec")));
  absl::Status s = CheckDType("operand 0", inputs[0].dtype, DTypeClass::kNumeric);
  if (s.ok()) s = CheckSameDType("operand 0", inputs[0].dtype, "operand 1", inputs[1].dtype);
  if (s.ok()) s = CheckLetters("operand 0", spec.lhs, inputs[0].shape);
  if (s.ok()) s = CheckLetters("operand 1", spec.rhs, inputs[1].shape);
  if (!s.ok()) return s;
  std::map<char, Expr> sizes;
  for (size_t i = 0; i < spec.lhs.size(); ++i) sizes[spec.lhs[i]] = inputs[0].shape[i];
  for (size_t i = 0; i < spec.rhs.size(); ++i) {
    const Expr& size = inputs[1].shape[i];
    auto [it, fresh] = sizes.emplace(spec.rhs[i], size);
    if (fresh) continue;
    s = CheckSameSize("operand 0", static_cast<int>(spec.lhs.find(spec.rhs[i])), it->second,
                      "operand 1", static_cast<int>(i), size, bounds);
    if (!s.ok()) return Prefixed(Cat("letter ", std::string(1, spec.rhs[i]), ": "), s);
  }
  TensorType result{inputs[0].dtype, {}};
  for (char letter : spec.result) result.shape.push_back(sizes[letter]);
  return result;
}

// A contraction's letters with their sizes: first the result's, then the summed ones.
struct Axes {
  std::string result;
  std::string summed;
  std::vector<int64_t> result_sizes;
  std::vector<int64_t> summed_sizes;
};

Axes AxesOf(const ContractSpec& spec, const Tensor& lhs, const Tensor& rhs) {
  Axes axes;
  axes.result = spec.result;
  const auto size_of = [&](char letter) {
    const size_t in_lhs = spec.lhs.find(letter);
    return in_lhs != std::string::npos ? lhs.shape[in_lhs] : rhs.shape[spec.rhs.find(letter)];
  };
  for (char letter : spec.lhs + spec.rhs) {
    if (axes.result.find(letter) == std::string::npos &&
        axes.summed.find(letter) == std::string::npos) {
      axes.summed += letter;
    }
  }
  for (char letter : axes.result) axes.result_sizes.push_back(size_of(letter));
  for (char letter : axes.summed) axes.summed_sizes.push_back(size_of(letter));
  return axes;
}

// Returns the strides of an operand over `letters`; zero if it lacks the letter.
std::vector<int64_t> LetterStrides(const std::string& letters, const std::string& operand_letters,
                                   absl::Span<const int64_t> operand_shape) {
  const std::vector<int64_t> own = Strides(operand_shape);
  std::vector<int64_t> strides;
  for (char letter : letters) {
    const size_t axis = operand_letters.find(letter);
    strides.push_back(axis == std::string::npos ? 0 : own[axis]);
  }
  return strides;
}

// An operand rearranged so that the summed elements belonging to one result element are adjacent.
template <typename Value>
class PackedOperand {
 public:
  PackedOperand(const Axes& axes, const std::string& letters, const Tensor& tensor,
                const std::vector<Value>& values) {
    std::vector<int64_t> own_sizes;
    std::string own_letters;
    for (size_t i = 0; i < axes.result.size(); ++i) {
      if (letters.find(axes.result[i]) == std::string::npos) continue;
      own_letters += axes.result[i];
      own_sizes.push_back(axes.result_sizes[i]);
    }
    row_strides_ = LetterStrides(axes.result, own_letters, own_sizes);
    row_length_ = Product(axes.summed_sizes);
    const std::vector<int64_t> strides =
        LetterStrides(own_letters + axes.summed, letters, tensor.shape);
    own_sizes.insert(own_sizes.end(), axes.summed_sizes.begin(), axes.summed_sizes.end());
    values_.resize(Product(own_sizes));
    ForEachOffset(own_sizes, strides,
                  [&](int64_t position, int64_t source) { values_[position] = values[source]; });
  }

  // Returns the summed elements of the result element at `at`.
  const Value* Row(const std::vector<int64_t>& at) const {
    int64_t row = 0;
    for (size_t i = 0; i < at.size(); ++i) row += at[i] * row_strides_[i];
    return values_.data() + row * row_length_;
  }
  int64_t row_length() const { return row_length_; }

 private:
  std::vector<Value> values_;
  std::vector<int64_t> row_strides_;
  int64_t row_length_ = 0;
};

template <typename Value>
std::vector<Value> ContractValues(const ContractSpec& spec, const Tensor& lhs, const Tensor& rhs,
                                  const std::vector<Value>& lhs_values,
                                  const std::vector<Value>& rhs_values) {
  const Axes axes = AxesOf(spec, lhs, rhs);
  const PackedOperand<Value> a(axes, spec.lhs, lhs, lhs_values);
  const PackedOperand<Value> b(axes, spec.rhs, rhs, rhs_values);
  std::vector<Value> result(Product(axes.result_sizes));
  ForEachElement(axes.result_sizes, [&](int64_t position, const std::vector<int64_t>& at) {
    const Value* row_a = a.Row(at);
    const Value* row_b = b.Row(at);
    Value sum = 0;
    for (int64_t i = 0; i < a.row_length(); ++i) sum += row_a[i] * row_b[i];
    result[position] = sum;
  });
  return result;
}

absl::Status ReferenceContract(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                               const Expr::Env& dims, Tensor* result) {
  ASSIGN_OR_RETURN(ContractSpec spec, ContractSpec::Parse(GetAttr<std::string>(attrs, "spec")));
  const Tensor& lhs = *inputs[0];
  const Tensor& rhs = *inputs[1];
  if (!IsFloat(result->dtype)) {
    StoreBitPatterns(ContractValues(spec, lhs, rhs, LoadBitPatterns(lhs), LoadBitPatterns(rhs)),
                     result);
    return absl::OkStatus();
  }
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    StoreReals(ContractValues(spec, lhs, rhs, LoadReals<Real>(lhs), LoadReals<Real>(rhs)), result);
  });
  return absl::OkStatus();
}

AxisFlow ContractFlow(const Graph&, const Node& node) {
  const ContractSpec spec = ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec")).value();
  AxisFlow flow;
  for (const std::string& letters : {spec.lhs, spec.rhs}) {
    flow.emplace_back();
    for (char letter : letters) {
      const size_t axis = spec.result.find(letter);
      flow.back().push_back(axis == std::string::npos ? kMixed : static_cast<int>(axis));
    }
  }
  return flow;
}

ValueFacts ContractedValues(const ValueQuery& query) {
  const int product = MagnitudeOfProduct(query.operands[0].magnitude, query.operands[1].magnitude);
  return Derived({.magnitude = MagnitudeOfSum(product, query.terms)}, query);
}

absl::Status SampleContract(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  ASSIGN_OR_RETURN(ContractSpec spec,
                   ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec")));
  const absl::Span<const int64_t> lhs = cutter.ShapeOf(node.inputs[0]),
                                  rhs = cutter.ShapeOf(node.inputs[1]);
  std::string summed;
  std::vector<int64_t> sizes;
  for (char letter : spec.lhs + spec.rhs) {
    if ((spec.result + summed).find(letter) != std::string::npos) continue;
    summed += letter;
    const size_t axis = spec.lhs.find(letter);
    sizes.push_back(axis != std::string::npos ? lhs[axis] : rhs[spec.rhs.find(letter)]);
  }
  const int64_t count = Count(cutter.Wanted(n)), terms = Product(sizes);
  RETURN_IF_ERROR(cutter.Spend(n, count, terms));
  RETURN_IF_ERROR(cutter.Spend(n, count, terms));
  // Each wanted element becomes a row of the terms' factors in either operand. One contraction then
  // sums the products of the rows.
  Cutter::Handle sides[2];
  for (int side = 0; side < 2; ++side) {
    const std::string& own = side == 0 ? spec.lhs : spec.rhs;
    const absl::Span<const int64_t> shape = side == 0 ? lhs : rhs;
    const std::vector<int64_t> strides = LetterStrides(spec.result, own, shape);
    Positions bases;
    for (int64_t p : cutter.Wanted(n))
      bases.push_back(Dot(CoordinatesOf(cutter.ShapeOf(n), p), strides));
    sides[side] = cutter.Pull(node.inputs[side], {count, terms},
                              Sums(bases, OffsetsOf(sizes, LetterStrides(summed, own, shape))));
  }
  cutter.RecipeOf(n) = [&cutter, a = sides[0], b = sides[1]] {
    return cutter.Add(Op::kContract, {cutter.Get(a), cutter.Get(b)},
                      {{"spec", std::string("ab,ab->a")}});
  };
  return absl::OkStatus();
}

}  // namespace

void AddContract(Rows* rows) {
  ATHANOR_ROW(
      Contract, kComposite, 2, 2,
      ATHANOR_ATTRS(Required("spec", AttrType::kString, "axes by letter: \"bmk,bkn->bmn\"")),
      InferContract, 0,
      "The sum, over every letter not in the result, of the product of the two operands at "
      "those letters. f16 and bf16 products and sums are in f32 and round once; f32 in f32, "
      "f64 in f64, in any order, fused or not; integers wrap. An empty sum is 0. NaN and "
      "infinities follow from the sum; zeros are never skipped.",
      .form = OpForm::kContract, .errors = ErrorRule::kContraction,
      .roles = {OperandRole::kContracted, OperandRole::kContracted},
      .rows = {ContractFlow, "sums across"}, .values = ContractedValues, .sample = SampleContract);
}

}  // namespace athanor
