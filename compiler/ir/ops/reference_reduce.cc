// Reductions and contractions: plain loops over arrays of a wider type, one rounding at the end.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference.h"
#include "compiler/ir/ops/reference_util.h"

namespace athanor {
namespace {

// Returns strides over operand axes that lead to the result element into which an operand element
// is reduced: zero for reduced axes.
std::vector<int64_t> ResultStrides(absl::Span<const int64_t> shape,
                                   absl::Span<const int64_t> reduced) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (int64_t axis : reduced) strides[axis] = 0;
  int64_t next = 1;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    if (strides[i] == 0) continue;
    strides[i] = next;
    next *= shape[i];
  }
  return strides;
}

template <typename Value, typename Function>
std::vector<Value> Fold(const Tensor& operand, const std::vector<Value>& values,
                        absl::Span<const int64_t> reduced, int64_t result_elements, Value initial,
                        Function function) {
  const std::vector<int64_t> strides = ResultStrides(operand.shape, reduced);
  std::vector<Value> result(result_elements, initial);
  ForEachElement(operand.shape, [&](int64_t position, const std::vector<int64_t>& at) {
    int64_t target = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) target += at[axis] * strides[axis];
    result[target] = function(result[target], values[position]);
  });
  return result;
}

// Reduces with an operation on floats and on bit patterns of integers; `initial` is its identity.
template <typename Function>
void Accumulate(const Tensor& operand, const Attrs& attrs, int initial, Function function,
                Tensor* result) {
  const auto& axes = GetAttr<std::vector<int64_t>>(attrs, "axes");
  if (!IsFloat(result->dtype)) {
    StoreBitPatterns(Fold(operand, LoadBitPatterns(operand), axes, result->elements(),
                          static_cast<uint64_t>(initial), function),
                     result);
    return;
  }
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    StoreReals(Fold(operand, LoadReals<Real>(operand), axes, result->elements(),
                    static_cast<Real>(initial), function),
               result);
  });
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
    ForEachElement(own_sizes, [&](int64_t position, const std::vector<int64_t>& at) {
      int64_t source = 0;
      for (size_t i = 0; i < at.size(); ++i) source += at[i] * strides[i];
      values_[position] = values[source];
    });
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

}  // namespace

absl::Status ReferenceSumReduce(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                                const Expr::Env& dims, Tensor* result) {
  Accumulate(*inputs[0], attrs, 0, [](auto sum, auto value) { return sum + value; }, result);
  return absl::OkStatus();
}

absl::Status ReferenceMulReduce(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                                const Expr::Env& dims, Tensor* result) {
  Accumulate(
      *inputs[0], attrs, 1, [](auto product, auto value) { return product * value; }, result);
  return absl::OkStatus();
}

absl::Status ReferenceMaxReduce(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                                const Expr::Env& dims, Tensor* result) {
  const auto& axes = GetAttr<std::vector<int64_t>>(attrs, "axes");
  const int64_t elements = result->elements();
  if (IsFloat(result->dtype)) {
    StoreReals(Fold(*inputs[0], LoadReals<double>(*inputs[0]), axes, elements,
                    -std::numeric_limits<double>::infinity(), MaxOfReals<double>),
               result);
    return absl::OkStatus();
  }
  const bool is_signed = IsSigned(result->dtype);
  const int unused = 64 - 8 * DTypeBytes(result->dtype);
  const int64_t minimum = std::numeric_limits<int64_t>::min() >> unused;
  const auto maximum = [is_signed](uint64_t a, uint64_t b) {
    if (!is_signed) return std::max(a, b);
    return static_cast<uint64_t>(std::max(static_cast<int64_t>(a), static_cast<int64_t>(b)));
  };
  StoreBitPatterns(Fold(*inputs[0], LoadBitPatterns(*inputs[0]), axes, elements,
                        is_signed ? static_cast<uint64_t>(minimum) : uint64_t{0}, maximum),
                   result);
  return absl::OkStatus();
}

absl::Status ReferenceContract(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                               const Expr::Env& dims, Tensor* result) {
  absl::StatusOr<ContractSpec> spec = ContractSpec::Parse(GetAttr<std::string>(attrs, "spec"));
  if (!spec.ok()) return spec.status();
  const Tensor& lhs = *inputs[0];
  const Tensor& rhs = *inputs[1];
  if (!IsFloat(result->dtype)) {
    StoreBitPatterns(ContractValues(*spec, lhs, rhs, LoadBitPatterns(lhs), LoadBitPatterns(rhs)),
                     result);
    return absl::OkStatus();
  }
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    StoreReals(ContractValues(*spec, lhs, rhs, LoadReals<Real>(lhs), LoadReals<Real>(rhs)), result);
  });
  return absl::OkStatus();
}

}  // namespace athanor
