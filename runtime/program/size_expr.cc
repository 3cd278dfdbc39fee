#include "runtime/program/size_expr.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace athanor {
namespace {

// A sum holds one value below the current operand, a product one more, and each level of nesting
// one first argument.
constexpr int kStackDepth = 3 * (SizeTable::kMaxNesting + 1);

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b <= 0) return 0;
  const int64_t quotient = a / b;
  return a % b < 0 ? quotient - 1 : quotient;
}

absl::StatusOr<SizeRange> Checked(__int128 min, __int128 max) {
  if (min < std::numeric_limits<int64_t>::min() || max > std::numeric_limits<int64_t>::max()) {
    return absl::InvalidArgumentError("a size leaves 64 bits within the dims' ranges");
  }
  return SizeRange{static_cast<int64_t>(min), static_cast<int64_t>(max)};
}

absl::StatusOr<SizeRange> Multiply(const SizeRange& a, const SizeRange& b) {
  // A product over two ranges is least and greatest at their ends.
  const __int128 corners[] = {__int128{a.min} * b.min, __int128{a.min} * b.max,
                              __int128{a.max} * b.min, __int128{a.max} * b.max};
  return Checked(*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4));
}

absl::StatusOr<SizeRange> Divide(const SizeRange& a, const SizeRange& b) {
  if (b.max <= 0) {
    return absl::InvalidArgumentError("a size is divided by an expression that is never positive");
  }
  const int64_t least = std::max<int64_t>(b.min, 1);
  const int64_t corners[] = {FloorDivide(a.min, least), FloorDivide(a.min, b.max),
                             FloorDivide(a.max, least), FloorDivide(a.max, b.max)};
  SizeRange range{*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
  // FloorDivide gives 0 where the divisor is not positive.
  if (b.min <= 0) {
    range = {std::min<int64_t>(range.min, 0), std::max<int64_t>(range.max, 0)};
  }
  return range;
}

}  // namespace

// Appends one expression's instructions; on failure the caller removes them.
class SizeTable::Compiler {
 public:
  explicit Compiler(SizeTable& table) : table_(table) {}

  bool constant() const { return constant_; }

  absl::StatusOr<SizeRange> Sum(const v1::SizeExpr& expr, int nesting) {
    if (nesting > kMaxNesting) {
      return absl::InvalidArgumentError(
          absl::StrCat("a size nests divisions, minima and maxima deeper than ", kMaxNesting));
    }
    if (expr.terms().empty()) return Constant(0);
    SizeRange sum;
    for (int i = 0; i < expr.terms_size(); ++i) {
      absl::StatusOr<SizeRange> term = Product(expr.terms(i), nesting);
      if (!term.ok()) return term;
      if (i == 0) {
        sum = *term;
        continue;
      }
      Emit(Code::kAdd);
      absl::StatusOr<SizeRange> next =
          Checked(__int128{sum.min} + term->min, __int128{sum.max} + term->max);
      if (!next.ok()) return next;
      sum = *next;
    }
    return sum;
  }

 private:
  void Emit(Code code, int64_t operand = 0) { table_.code_.push_back({code, operand}); }

  SizeRange Constant(int64_t value) {
    Emit(Code::kConst, value);
    return {value, value};
  }

  absl::StatusOr<SizeRange> Product(const v1::SizeExpr::Term& term, int nesting) {
    const bool coefficient = term.coefficient() != 1 || term.factors().empty();
    SizeRange product{1, 1};
    if (coefficient) product = Constant(term.coefficient());
    for (int i = 0; i < term.factors_size(); ++i) {
      absl::StatusOr<SizeRange> factor = Factor(term.factors(i), nesting);
      if (!factor.ok()) return factor;
      if (coefficient || i > 0) Emit(Code::kMul);
      absl::StatusOr<SizeRange> next = Multiply(product, *factor);
      if (!next.ok()) return next;
      product = *next;
    }
    return product;
  }

  absl::StatusOr<SizeRange> Factor(const v1::SizeExpr::Factor& factor, int nesting) {
    switch (factor.kind_case()) {
      case v1::SizeExpr::Factor::kSymbol:
        return Symbol(factor.symbol());
      case v1::SizeExpr::Factor::kFloorDiv:
        return Pair(Code::kFloorDiv, factor.floor_div(), nesting);
      case v1::SizeExpr::Factor::kMin:
        return Pair(Code::kMin, factor.min(), nesting);
      case v1::SizeExpr::Factor::kMax:
        return Pair(Code::kMax, factor.max(), nesting);
      case v1::SizeExpr::Factor::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError(
        "a size has a factor that is neither a dim nor floor_div, min or max");
  }

  absl::StatusOr<SizeRange> Symbol(const std::string& name) {
    const std::vector<SizeDim>& dims = table_.dims_;
    const auto dim =
        std::find_if(dims.begin(), dims.end(), [&](const SizeDim& d) { return d.name == name; });
    if (dim == dims.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a size names dim '", name, "'; the dims are [",
          absl::StrJoin(dims, ", ",
                        [](std::string* out, const SizeDim& d) { absl::StrAppend(out, d.name); }),
          "]"));
    }
    constant_ = false;
    Emit(Code::kDim, dim - dims.begin());
    return SizeRange{dim->min, dim->max};
  }

  absl::StatusOr<SizeRange> Pair(Code code, const v1::SizeExpr::Pair& pair, int nesting) {
    absl::StatusOr<SizeRange> a = Sum(pair.a(), nesting + 1);
    if (!a.ok()) return a;
    absl::StatusOr<SizeRange> b = Sum(pair.b(), nesting + 1);
    if (!b.ok()) return b;
    Emit(code);
    if (code == Code::kFloorDiv) return Divide(*a, *b);
    if (code == Code::kMin) {
      return SizeRange{std::min(a->min, b->min), std::min(a->max, b->max)};
    }
    return SizeRange{std::max(a->min, b->min), std::max(a->max, b->max)};
  }

  SizeTable& table_;
  bool constant_ = true;
};

absl::StatusOr<int> SizeTable::Add(const v1::SizeExpr& expr) {
  // Equal expressions share an id, so that a call evaluates each once.
  std::string key = expr.SerializeAsString();
  if (const auto known = ids_.find(key); known != ids_.end()) {
    return known->second;
  }
  const int begin = static_cast<int>(code_.size());
  Compiler compiler(*this);
  absl::StatusOr<SizeRange> range = compiler.Sum(expr, 0);
  if (!range.ok()) {
    code_.erase(code_.begin() + begin, code_.end());
    return range.status();
  }
  entries_.push_back({begin, static_cast<int>(code_.size()), *range, compiler.constant()});
  ids_.emplace(std::move(key), size() - 1);
  return size() - 1;
}

int64_t SizeTable::Execute(const Entry& entry, const int64_t* dims) const {
  // No step overflows: Add refuses an expression if any intermediate value could exceed 64 bits.
  int64_t stack[kStackDepth + 1];  // the first element is never used
  int64_t* top = stack;
  for (int i = entry.begin; i < entry.end; ++i) {
    const Instruction& instruction = code_[i];
    switch (instruction.code) {
      case Code::kConst:
        *++top = instruction.operand;
        continue;
      case Code::kDim:
        *++top = dims[instruction.operand];
        continue;
      case Code::kAdd:
        top[-1] += *top;
        break;
      case Code::kMul:
        top[-1] *= *top;
        break;
      case Code::kFloorDiv:
        top[-1] = FloorDivide(top[-1], *top);
        break;
      case Code::kMin:
        top[-1] = std::min(top[-1], *top);
        break;
      case Code::kMax:
        top[-1] = std::max(top[-1], *top);
        break;
    }
    --top;
  }
  return *top;
}

void SizeTable::Evaluate(absl::Span<const int64_t> dims, absl::Span<int64_t> values) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    values[i] = Execute(entries_[i], dims.data());
  }
}

int64_t SizeTable::EvaluateOne(int id, absl::Span<const int64_t> dims) const {
  return Execute(entries_[id], dims.data());
}

}  // namespace athanor
