// Known contents: elementwise arithmetic, comparisons and casts.
#include <algorithm>
#include <string_view>

#include "compiler/frontend/onnx/known/sizes_internal.h"

namespace athanor::onnx {
namespace {

constexpr std::string_view kOps[] = {"Identity",
                                     "Cast",
                                     "CastLike",
                                     "Where",
                                     "Add",
                                     "Sub",
                                     "Mul",
                                     "Div",
                                     "Mod",
                                     "Neg",
                                     "Abs",
                                     "Sign",
                                     "Min",
                                     "Max",
                                     "Relu",
                                     "Floor",
                                     "Ceil",
                                     "Round",
                                     "Equal",
                                     "Less",
                                     "LessOrEqual",
                                     "Greater",
                                     "GreaterOrEqual",
                                     "Not",
                                     "And",
                                     "Or"};

// An element of each operand, both over `divisor`.
struct Pair {
  const Expr& a;
  const Expr& b;
};

using Decided = std::optional<bool>;

class Arithmetic {
 public:
  Arithmetic(const SizeCall& call, bool whole) : call_(call), bounds_(call.bounds), whole_(whole) {}

  std::optional<int64_t> Low(const Expr& e) const {
    return e.constant() ? e.constant() : bounds_.Minimum(e);
  }
  bool AtLeast(const Expr& e, int64_t n) const {
    const std::optional<int64_t> constant = e.constant();
    return constant ? *constant >= n : bounds_.NonNegative(e - n);
  }
  bool AtMost(const Expr& e, int64_t n) const {
    const std::optional<int64_t> constant = e.constant();
    return constant ? *constant <= n : bounds_.NonNegative(Expr(n) - e);
  }

  std::optional<Expr> Divide(const Expr& a, const Expr& b) const {
    if (a.constant() && b.constant()) {
      const int64_t x = *a.constant(), y = *b.constant();
      if (y == 0 || (y == -1 && x == std::numeric_limits<int64_t>::min())) return std::nullopt;
      return Expr(x / y);  // towards zero
    }
    if (!AtLeast(a, 0) || !AtLeast(b, 1)) return std::nullopt;
    return FloorDiv(a, b);
  }

  std::optional<Expr> Modulo(const Expr& a, const Expr& b) const {
    const bool truncates = call_.c.Int("fmod") != 0;
    if (a.constant() && b.constant()) {
      const int64_t x = *a.constant(), y = *b.constant();
      if (y == 0) return std::nullopt;
      if (y == -1) return Expr(0);
      const int64_t rest = x % y;
      return Expr(!truncates && rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
    }
    if (!AtLeast(b, 1) || (truncates && !AtLeast(a, 0))) return std::nullopt;
    return Mod(a, b);
  }

  std::optional<Expr> Least(const Expr& a, const Expr& b) const {
    if (bounds_.NonNegative(b - a)) return a;
    if (bounds_.NonNegative(a - b)) return b;
    return MinOf(a, b);
  }
  std::optional<Expr> Most(const Expr& a, const Expr& b) const {
    if (bounds_.NonNegative(b - a)) return b;
    if (bounds_.NonNegative(a - b)) return a;
    return MaxOf(a, b);
  }

  // Returns whether a < b; nullopt if it depends on the dims.
  Decided Less(const Expr& a, const Expr& b) const {
    if (a.constant() && b.constant()) return *a.constant() < *b.constant();
    if (bounds_.NonNegative(b - a - 1)) return true;
    if (bounds_.NonNegative(a - b)) return false;
    return std::nullopt;
  }
  Decided Equal(const Expr& a, const Expr& b) const {
    if (a.constant() && b.constant()) return *a.constant() == *b.constant();
    if (bounds_.ProvablyEqual(a, b)) return true;
    if (bounds_.NonNegative(a - b - 1) || bounds_.NonNegative(b - a - 1)) return false;
    return std::nullopt;
  }

  std::optional<Expr> Binary(std::string_view op, const Expr& a, const Expr& b) const {
    if (op == "Add") return a + b;
    if (op == "Sub") return a - b;
    if (op == "Min") return Least(a, b);
    if (op == "Max") return Most(a, b);
    if (op == "Div") return Divide(a, b);
    if (op == "Mod") return Modulo(a, b);
    // A float product of 0 and a negative number would be -0, which is not a size.
    if (op == "Mul" && (whole_ || (AtLeast(a, 0) && AtLeast(b, 0)))) return a * b;
    return std::nullopt;
  }

  std::optional<Expr> Unary(std::string_view op, const Expr& a) const {
    if (op == "Neg") return whole_ || AtLeast(a, 1) ? std::optional(Expr(0) - a) : std::nullopt;
    if (op == "Relu") return Most(a, 0);
    if (op == "Abs") {
      if (AtLeast(a, 0)) return a;
      return AtMost(a, 0) ? std::optional(Expr(0) - a) : std::nullopt;
    }
    if (op == "Sign") {
      if (a.IsConstant(0)) return Expr(0);
      if (AtLeast(a, 1)) return Expr(1);
      return AtMost(a, -1) ? std::optional(Expr(-1)) : std::nullopt;
    }
    return std::nullopt;
  }

  Decided Compare(std::string_view op, const Expr& a, const Expr& b) const {
    if (op == "Equal") return Equal(a, b);
    if (op == "Less") return Less(a, b);
    if (op == "Greater") return Less(b, a);
    const Decided other = op == "LessOrEqual" ? Less(b, a) : Less(a, b);
    return other ? Decided(!*other) : other;
  }

 private:
  const SizeCall& call_;
  const Bounds& bounds_;
  const bool whole_;
};

bool AllLiteralFloats(const SizeCall& call) {
  for (int i = 0; i < call.c.inputs(); ++i) {
    if (call.c.Has(i) && (IsWhole(call.c.In(i).elem) || !call.known(i).literal)) return false;
  }
  return true;
}

void Rescale(Cells* cells, int64_t divisor) {
  for (Expr& size : cells->sizes) size *= Expr(divisor / cells->divisor);
  cells->divisor = divisor;
}

// Divides floats by a number; the divisor stays a power of two.
std::optional<Cells> FloatQuotient(const Cells& a, const Cells& b, const Arithmetic& arithmetic) {
  const std::optional<int64_t> by = b.sizes.size() == 1 ? b.sizes[0].constant() : std::nullopt;
  if (!by || *by <= 0) return std::nullopt;
  Cells result = a;
  for (Expr& size : result.sizes) {
    if (!arithmetic.AtLeast(size, 0)) return std::nullopt;
    size *= Expr(b.divisor);
  }
  if (a.divisor > kMaxKnownElements || *by > kMaxKnownElements) return std::nullopt;
  result.divisor = a.divisor * *by;
  return result;
}

std::optional<Cells> Combine(const SizeCall& call, std::string_view op, Cells a, Cells b) {
  const bool whole = IsWhole(a.elem);
  const Arithmetic arithmetic(call, whole);
  if (!whole && op == "Mod") return std::nullopt;
  if (!whole && op == "Div") {
    if (CountOf(b.shape) != 1 || b.shape.size() > a.shape.size()) return std::nullopt;
    return FloatQuotient(a, b, arithmetic);
  }
  if (!whole && op != "Mul") {
    const int64_t common = std::max(a.divisor, b.divisor);  // powers of two
    Rescale(&a, common);
    Rescale(&b, common);
  }
  const std::optional<Shape64> shape = Broadcast(a.shape, b.shape, call.most);
  if (!shape) return std::nullopt;
  Cells result{a.elem, *shape, {}, op == "Mul" ? a.divisor * b.divisor : a.divisor};
  const std::vector<int64_t> from_a = BroadcastIndex(a.shape, *shape);
  const std::vector<int64_t> from_b = BroadcastIndex(b.shape, *shape);
  const bool compares = op == "Equal" || op.starts_with("Less") || op.starts_with("Greater");
  const bool logic = op == "And" || op == "Or";
  if (compares) result.elem = Elem::kBool, result.divisor = 1;
  for (size_t i = 0; i < from_a.size(); ++i) {
    const Expr& x = a.sizes[from_a[i]];
    const Expr& y = b.sizes[from_b[i]];
    if (compares) {
      const Decided decided = arithmetic.Compare(op, x, y);
      if (!decided) return std::nullopt;
      result.sizes.emplace_back(*decided ? 1 : 0);
    } else if (logic) {
      result.sizes.push_back(op == "And" ? x * y : x + y - x * y);
    } else {
      const std::optional<Expr> one = arithmetic.Binary(op, x, y);
      if (!one) return std::nullopt;
      result.sizes.push_back(*one);
    }
  }
  return result;
}

// Handles binary ops, and Min and Max of any number of operands.
Values KnownBinary(const SizeCall& call, std::string_view op) {
  for (std::string_view old : {"broadcast", "axis"}) {
    if (call.c.Given(old)) return std::nullopt;  // before version 7
  }
  if (AllLiteralFloats(call) || call.c.inputs() == 0 || !call.c.Has(0)) return std::nullopt;
  std::optional<Cells> result = CellsOf(call.c.In(0));
  for (int i = 1; i < call.c.inputs() && result; ++i) {
    std::optional<Cells> next = call.c.Has(i) ? CellsOf(call.c.In(i)) : std::nullopt;
    if (!next) return std::nullopt;
    result = Combine(call, op, *std::move(result), *std::move(next));
  }
  return result ? One(FromCells(*std::move(result), call.bounds)) : std::nullopt;
}

Values KnownUnary(const SizeCall& call, std::string_view op) {
  if (AllLiteralFloats(call)) return std::nullopt;
  std::optional<Cells> cells = CellsOf(call.c.In(0));
  if (!cells) return std::nullopt;
  const bool whole = IsWhole(cells->elem);
  const Arithmetic arithmetic(call, whole);
  const bool rounds = op == "Floor" || op == "Ceil" || op == "Round";
  if (rounds && op == "Round" && cells->divisor != 1) return std::nullopt;
  for (Expr& size : cells->sizes) {
    std::optional<Expr> one;
    if (op == "Not") {
      one = Expr(1) - size;
    } else if (rounds) {
      // Ceil of a value in (-1, 0) is -0, which is not a size.
      if (op == "Ceil" && !arithmetic.AtLeast(size, 0)) return std::nullopt;
      one = op == "Ceil" ? CeilDiv(size, cells->divisor) : FloorDiv(size, cells->divisor);
    } else {
      one = arithmetic.Unary(op, size);
    }
    if (!one) return std::nullopt;
    size = *std::move(one);
  }
  if (rounds || op == "Sign") cells->divisor = 1;
  return One(FromCells(*std::move(cells), call.bounds));
}

Values KnownCast(const SizeCall& call, Elem to) {
  const Value& x = call.c.In(0);
  if (to == x.elem) return std::vector<Value>{x};
  std::optional<Cells> cells = CellsOf(x);
  if (!cells) return std::nullopt;
  const Arithmetic arithmetic(call, IsWhole(x.elem));
  cells->elem = to;
  if (to == Elem::kBool) {
    for (Expr& size : cells->sizes) {
      const Decided zero = arithmetic.Equal(size, 0);
      if (!zero) return std::nullopt;
      size = *zero ? 0 : 1;
    }
    cells->divisor = 1;
  } else if (IsWhole(to) && cells->divisor != 1) {
    for (Expr& size : cells->sizes) {  // towards zero
      const std::optional<Expr> whole = arithmetic.Divide(size, cells->divisor);
      if (!whole) return std::nullopt;
      size = *whole;
    }
    cells->divisor = 1;
  }
  return One(FromCells(*std::move(cells), call.bounds));
}

Values KnownWhere(const SizeCall& call) {
  const std::optional<Cells> condition = CellsOf(call.c.In(0));
  if (!condition) return std::nullopt;
  const Value& x = call.c.In(1);
  const Value& y = call.c.In(2);
  std::optional<Cells> a = CellsOf(x), b = CellsOf(y);
  if (!a || !b) return std::nullopt;
  const int64_t common = std::max(a->divisor, b->divisor);
  Rescale(&*a, common);
  Rescale(&*b, common);
  std::optional<Shape64> shape = Broadcast(a->shape, b->shape, call.most);
  if (shape) shape = Broadcast(*shape, condition->shape, call.most);
  if (!shape) return std::nullopt;
  Cells result{a->elem, *shape, {}, common};
  const std::vector<int64_t> from_condition = BroadcastIndex(condition->shape, *shape);
  const std::vector<int64_t> from_a = BroadcastIndex(a->shape, *shape);
  const std::vector<int64_t> from_b = BroadcastIndex(b->shape, *shape);
  for (size_t i = 0; i < from_a.size(); ++i) {
    const std::optional<int64_t> chosen = condition->sizes[from_condition[i]].constant();
    if (!chosen) return std::nullopt;
    result.sizes.push_back(*chosen != 0 ? a->sizes[from_a[i]] : b->sizes[from_b[i]]);
  }
  return One(FromCells(std::move(result), call.bounds));
}

}  // namespace

Values KnownElementwise(const SizeCall& call) {
  const std::string_view op = call.c.node().op_type();
  if (op == "Identity") return std::vector<Value>{call.c.In(0)};
  if (op == "CastLike") return KnownCast(call, call.c.In(1).elem);
  if (op == "Where") return KnownWhere(call);
  if (op == "Cast") {
    // Version 1 states the type as a string.
    const std::optional<Elem> to = call.version() < 6 ? std::nullopt : ElemOf(call.c.Int("to"));
    return to ? KnownCast(call, *to) : std::nullopt;
  }
  constexpr std::string_view kUnary[] = {"Neg",   "Abs",  "Sign",  "Relu",
                                         "Floor", "Ceil", "Round", "Not"};
  if (std::find(std::begin(kUnary), std::end(kUnary), op) != std::end(kUnary)) {
    return KnownUnary(call, op);
  }
  if (std::find(std::begin(kOps), std::end(kOps), op) == std::end(kOps)) return std::nullopt;
  return KnownBinary(call, op);
}

absl::Span<const std::string_view> ElementwiseOps() { return kOps; }

}  // namespace athanor::onnx
