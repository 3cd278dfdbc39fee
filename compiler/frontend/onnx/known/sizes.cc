#include "compiler/frontend/onnx/known/sizes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "compiler/frontend/onnx/known/sizes_internal.h"

namespace athanor::onnx {
namespace {

constexpr int64_t kMostDivisor = int64_t{1} << 20;
// Limits on the elements of a value that holds more than numbers, and on the terms of an element.
// Shapes are smaller, and proofs and data made of large expressions are slow.
constexpr size_t kMostSymbolic = 256;
constexpr int64_t kMostTerms = 256;

// Returns the largest n such that all integers in [-n, n] are exact in the type.
int64_t ExactIntegers(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return int64_t{1} << 53;
    case DType::kF32:
      return int64_t{1} << 24;
    case DType::kF16:
      return int64_t{1} << 11;
    case DType::kBF16:
      return int64_t{1} << 8;
    default:
      return 0;
  }
}

struct Range {
  int64_t low, high;
};
Range RangeOf(Elem elem) {
  const ElemRow& row = Row(elem);
  if (row.carry == Carry::kNarrow) return {row.low, row.high};
  const DType dtype = row.carrier;
  if (dtype == DType::kBool) return {0, 1};
  if (IsFloat(dtype)) return {-ExactIntegers(dtype), ExactIntegers(dtype)};
  const int bits = 8 * DTypeBytes(dtype);
  if (IsSigned(dtype)) {
    const int64_t most =
        bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
    return {-most - 1, most};
  }
  return {0, bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1};
}

// Counts the terms and atoms of an expression; stops above `most`.
int64_t SizeOf(const Expr& e, int64_t most) {
  int64_t size = 0;
  for (const Expr::Term& term : e.terms()) {
    size += 1 + static_cast<int64_t>(term.monomial.size());
    for (const AtomRef& atom : term.monomial) {
      for (const Expr& part : atom->args) {
        if (size <= most) size += SizeOf(part, most - size);
      }
    }
    if (size > most) break;
  }
  return size;
}

bool Within(const Expr& e, Range range, const Bounds& bounds) {
  if (e.overflow()) return false;
  if (const std::optional<int64_t> n = e.constant()) return *n >= range.low && *n <= range.high;
  const std::optional<int64_t> low = bounds.Minimum(e);
  const std::optional<int64_t> high = bounds.Maximum(e);
  return low && high && *low >= range.low && *high <= range.high;
}

// Returns a float as an integer over a power of two.
std::optional<std::pair<int64_t, int64_t>> Dyadic(double value) {
  if (!std::isfinite(value) || (value == 0 && std::signbit(value))) return std::nullopt;
  for (int64_t divisor = 1; divisor <= kMostDivisor; divisor *= 2) {
    const double scaled = value * static_cast<double>(divisor);
    if (std::abs(scaled) > static_cast<double>(int64_t{1} << 53)) return std::nullopt;
    if (scaled == std::floor(scaled)) return std::pair(static_cast<int64_t>(scaled), divisor);
  }
  return std::nullopt;
}

std::optional<Cells> FloatCells(const Value& value) {
  const Known& known = *value.known;
  Cells cells{value.elem, known.shape, {}, 1};
  std::vector<std::pair<int64_t, int64_t>> numbers;
  for (int64_t i = 0; i < known.literal->elements(); ++i) {
    const auto number = Dyadic(LoadScalar(*known.literal, i).f);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    cells.divisor = std::max(cells.divisor, number->second);
  }
  for (const auto& [n, divisor] : numbers) {
    cells.sizes.push_back(Expr(n) * Expr(cells.divisor / divisor));
  }
  return cells;
}

// Returns the elements as a literal, if all are numbers.
std::optional<Tensor> LiteralOf(const Cells& cells) {
  Tensor literal = Tensor::Zeros(CarrierOf(cells.elem), cells.shape);
  for (size_t i = 0; i < cells.sizes.size(); ++i) {
    const std::optional<int64_t> n = cells.sizes[i].constant();
    if (!n) return std::nullopt;
    const DType dtype = literal.dtype;
    const auto at = static_cast<int64_t>(i);
    if (IsFloat(dtype)) {
      StoreScalar(
          literal, at,
          Scalar::Float(dtype, static_cast<double>(*n) / static_cast<double>(cells.divisor)));
    } else if (IsSigned(dtype)) {
      StoreScalar(literal, at, Scalar::Signed(dtype, *n));
    } else {
      StoreScalar(literal, at, Scalar::Unsigned(dtype, static_cast<uint64_t>(*n)));
    }
  }
  return literal;
}

}  // namespace

bool IsWhole(Elem elem) {
  const ElemRow& row = Row(elem);
  return (row.carry == Carry::kSame || row.carry == Carry::kNarrow) && !IsFloat(row.carrier);
}

std::optional<int64_t> CountOf(const Shape64& shape, int64_t most) {
  // Leaves out axes of size 0, so that products of the others are within the limit in any order.
  int64_t count = 1;
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) return std::nullopt;
    empty = empty || size == 0;
    if (size > 0 && count > most / size) return std::nullopt;
    if (size > 0) count *= size;
  }
  return empty ? 0 : count;
}

std::optional<Cells> CellsOf(const Value& value) {
  const Known& known = *value.known;
  const std::optional<int64_t> count = CountOf(known.shape);
  if (!count) return std::nullopt;
  if (IsWhole(value.elem) || !known.literal) {
    if (static_cast<int64_t>(known.sizes.size()) != *count) return std::nullopt;
    return Cells{value.elem, known.shape, known.sizes, known.divisor};
  }
  return ExactIntegers(value.dtype()) > 0 ? FloatCells(value) : std::nullopt;
}

std::optional<Value> FromCells(Cells cells, const Bounds& bounds) {
  const bool whole = IsWhole(cells.elem);
  if (!whole && ExactIntegers(CarrierOf(cells.elem)) == 0) return std::nullopt;
  if (whole && cells.divisor != 1) return std::nullopt;
  if (cells.divisor > kMostDivisor || (cells.divisor & (cells.divisor - 1)) != 0) {
    return std::nullopt;
  }
  const Range range = RangeOf(cells.elem);
  for (Expr& size : cells.sizes) {
    const bool number = size.constant().has_value();
    if (!number && (cells.sizes.size() > kMostSymbolic || SizeOf(size, kMostTerms) > kMostTerms)) {
      return std::nullopt;
    }
    if (!Within(size, range, bounds)) return std::nullopt;
    if (number) continue;
    size = bounds.Simplify(size);
  }
  Value value;
  value.elem = cells.elem;
  value.shape.assign(cells.shape.begin(), cells.shape.end());
  Known known;
  known.literal = LiteralOf(cells);
  known.shape = std::move(cells.shape);
  if (whole || !known.literal) {
    known.sizes = std::move(cells.sizes);
    known.divisor = cells.divisor;
  }
  value.known = std::make_shared<const Known>(std::move(known));
  return value;
}

Value WithKnown(Elem elem, Known known) {
  Value value;
  value.elem = elem;
  value.shape.assign(known.shape.begin(), known.shape.end());
  value.known = std::make_shared<const Known>(std::move(known));
  return value;
}

Values One(std::optional<Value> value) {
  if (!value) return std::nullopt;
  return std::vector<Value>{*std::move(value)};
}

std::optional<Shape64> Broadcast(const Shape64& a, const Shape64& b, int64_t most) {
  Shape64 shape(std::max(a.size(), b.size()));
  for (size_t i = 0; i < shape.size(); ++i) {  // from the last axis
    const int64_t m = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t n = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (m != n && m != 1 && n != 1) return std::nullopt;
    shape[shape.size() - 1 - i] = m == 1 ? n : m;
  }
  return CountOf(shape, most) ? std::optional(shape) : std::nullopt;
}

Shape64 StridesOf(const Shape64& shape) {
  Shape64 strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::vector<int64_t> BroadcastIndex(const Shape64& from, const Shape64& to) {
  const Shape64 strides = StridesOf(from);
  const Shape64 places = StridesOf(to);
  const size_t skipped = to.size() - from.size();
  std::vector<int64_t> index(*CountOf(to));
  for (size_t e = 0; e < index.size(); ++e) {
    for (size_t axis = 0; axis < from.size(); ++axis) {
      if (from[axis] == 1) continue;
      const size_t outer = axis + skipped;
      index[e] += static_cast<int64_t>(e) / places[outer] % to[outer] * strides[axis];
    }
  }
  return index;
}

std::optional<std::vector<int64_t>> Numbers(const SizeCall& call, int i) {
  if (!call.c.Has(i) || call.c.In(i).known == nullptr || !IsWhole(call.c.In(i).elem)) {
    return std::nullopt;
  }
  return IntegersOf(call.known(i));
}

std::optional<int> AxisOf(int64_t axis, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n) return std::nullopt;
  return static_cast<int>(axis < 0 ? axis + n : axis);
}

std::optional<std::vector<int>> AxesOf(const std::vector<int64_t>& axes, size_t rank) {
  std::vector<int> result;
  for (int64_t axis : axes) {
    const std::optional<int> one = AxisOf(axis, rank);
    if (!one || std::find(result.begin(), result.end(), *one) != result.end()) return std::nullopt;
    result.push_back(*one);
  }
  std::sort(result.begin(), result.end());
  return result;
}

Known KnownOf(Tensor literal) {
  Known known;
  known.shape = literal.shape;
  if (!IsFloat(literal.dtype)) {
    for (int64_t i = 0; i < literal.elements(); ++i) {
      const Scalar scalar = LoadScalar(literal, i);
      if (scalar.i < 0 && !IsSigned(literal.dtype)) {  // a u64 beyond int64
        known.sizes.clear();
        break;
      }
      known.sizes.emplace_back(scalar.i);
    }
  }
  known.literal = std::move(literal);
  return known;
}

std::optional<std::vector<int64_t>> IntegersOf(const Known& known) {
  const std::optional<int64_t> count = CountOf(known.shape);
  if (!count || static_cast<int64_t>(known.sizes.size()) != *count || known.divisor != 1) {
    return std::nullopt;
  }
  std::vector<int64_t> values;
  for (const Expr& size : known.sizes) {
    const std::optional<int64_t> value = size.constant();
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

Values ComputeKnown(const HandlerContext& call, const Bounds& bounds, int64_t most) {
  const std::string_view op = call.node().op_type();
  const absl::Span<const std::string_view> ops = KnownOps();
  if (std::find(ops.begin(), ops.end(), op) == ops.end()) return std::nullopt;
  const bool of_shape = op == "Shape" || op == "Size";
  const int needed = op == "CastLike" ? 1 : call.inputs();
  for (int i = 0; i < needed && !of_shape; ++i) {
    if (!call.Has(i)) continue;
    if (call.In(i).known == nullptr) return std::nullopt;
    if (!CountOf(call.In(i).known->shape, most)) return std::nullopt;
  }
  const SizeCall sizes{call, bounds, most};
  if (Values values = KnownElementwise(sizes)) return values;
  if (Values values = KnownMovement(sizes)) return values;
  if (Values values = KnownMade(sizes)) return values;
  return KnownReduce(sizes);
}

absl::Span<const std::string_view> KnownOps() {
  static const auto* const ops = [] {
    auto* all = new std::vector<std::string_view>;
    for (absl::Span<const std::string_view> part :
         {ElementwiseOps(), MovementOps(), MadeOps(), ReduceOps()}) {
      all->insert(all->end(), part.begin(), part.end());
    }
    return all;
  }();
  return *ops;
}

}  // namespace athanor::onnx
