#include "compiler/frontend/onnx/build/build_sizes.h"

#include <map>
#include <optional>
#include <utility>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"

namespace athanor::onnx {
namespace {

// A size up to this is read from an Iota; a size that may be larger is computed from its symbols.
constexpr int64_t kMaxCounted = int64_t{1} << 20;

Value SizeData(OpBuilder& b, const Expr& size);

Value AtomData(OpBuilder& b, const AtomRef& atom) {
  if (atom->kind == Atom::Kind::kSymbol) {
    const Expr symbol = Expr::Of(atom);
    const Value counted = b.Iota(Elem::kInt64, {symbol + 1}, 0);
    return b.Raw(Op::kIndexMap, {counted}, {{"map", IndexMap{{}, {symbol}}}}, Elem::kInt64);
  }
  const Op op = atom->kind == Atom::Kind::kFloorDiv ? Op::kFloorDiv
                : atom->kind == Atom::Kind::kMin    ? Op::kMin
                                                    : Op::kMax;
  const Value first = SizeData(b, atom->args[0]);
  return b.Raw(op, {first, SizeData(b, atom->args[1])}, {}, Elem::kInt64);
}

// Returns the size as a scalar of i64: either an element of an Iota that is long enough, or the
// polynomial computed from its symbols.
Value SizeData(OpBuilder& b, const Expr& size) {
  if (auto number = size.constant()) return b.Integer(Elem::kInt64, *number);
  const std::optional<int64_t> most = b.bounds().Maximum(size);
  if (most && *most < kMaxCounted && b.bounds().NonNegative(size)) {
    const Value counted = b.Iota(Elem::kInt64, {size + 1}, 0);
    return b.Raw(Op::kIndexMap, {counted}, {{"map", IndexMap{{}, {size}}}}, Elem::kInt64);
  }
  Value sum = b.Integer(Elem::kInt64, 0);
  for (const Expr::Term& term : size.terms()) {
    Value product = b.Integer(Elem::kInt64, term.coefficient);
    for (const AtomRef& atom : term.monomial) {
      product = b.Raw(Op::kMul, {product, AtomData(b, atom)}, {}, Elem::kInt64);
    }
    sum = b.Raw(Op::kAdd, {sum, product}, {}, Elem::kInt64);
  }
  return sum;
}

// Returns expressions as a vector of i64. Expressions that differ by a constant share the
// computation of one size.
Value VectorData(OpBuilder& b, absl::Span<const Expr> sizes) {
  const auto count = static_cast<int64_t>(sizes.size());
  Tensor numbers = Tensor::Zeros(DType::kI64, {count});
  std::map<Expr, std::vector<int64_t>> places;  // by the part that is not a number
  for (int64_t i = 0; i < count; ++i) {
    int64_t number = 0;
    for (const Expr::Term& term : sizes[i].terms()) {
      if (term.monomial.empty()) number = term.coefficient;
    }
    numbers.data<int64_t>()[i] = number;
    const Expr rest = sizes[i] - number;
    if (!rest.IsConstant(0)) places[rest].push_back(i);
  }
  Value sum = b.Literal(Elem::kInt64, std::move(numbers));
  for (const auto& [rest, at] : places) {
    Value part = Splat(b, SizeData(b, rest), {count});
    if (static_cast<int64_t>(at.size()) != count) {
      Tensor here = Tensor::Zeros(DType::kBool, {count});
      for (int64_t i : at) here.bytes[i] = 1;
      part = b.Raw(Op::kSelect,
                   {b.Literal(Elem::kBool, std::move(here)), part,
                    Splat(b, b.Integer(Elem::kInt64, 0), {count})},
                   {}, Elem::kInt64);
    }
    sum = b.Raw(Op::kAdd, {sum, part}, {}, Elem::kInt64);
  }
  return sum;
}

// Arranges a vector's elements in a constant shape, in row-major order.
Value VectorAs(OpBuilder& b, const Value& vector, const Shape& shape) {
  if (shape.size() == 1) return vector;
  Expr at = 0;
  for (size_t i = 0; i < shape.size(); ++i) at = at * shape[i] + Expr::Axis(static_cast<int>(i));
  return b.Raw(Op::kIndexMap, {vector}, {{"map", IndexMap{shape, {at}}}}, vector.elem);
}

}  // namespace

Value Size(OpBuilder& b, Elem elem, const Expr& size, Shape shape) {
  if (!b.status().ok()) return FailedValue();
  return Splat(b, Cast(b, SizeData(b, size), elem), std::move(shape));
}

Value KnownSizes(OpBuilder& b, const Value& v) {
  const Known& known = *v.known;
  Value data = VectorAs(b, VectorData(b, known.sizes), v.shape);
  if (known.divisor != 1) {
    const Value divisor = b.Scalar(Elem::kDouble, static_cast<double>(known.divisor));
    data = Div(b, Cast(b, data, Elem::kDouble), divisor);
  }
  return Cast(b, data, v.elem);
}

}  // namespace athanor::onnx
