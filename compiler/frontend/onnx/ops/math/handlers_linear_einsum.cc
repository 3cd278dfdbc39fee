// Einsum, as contractions of two operands at a time.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/frontend/onnx/ops/math/handlers_linear.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

// Letters as in the equation. Axes of an ellipsis are negative, counted from its end.
using Labels = std::vector<int>;
int EllipsisLabel(int from_end) { return -1 - from_end; }

struct Term {
  Labels before, after;
  bool ellipsis = false;
};

absl::StatusOr<Term> ParseTerm(std::string_view text, std::string_view equation) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 3) == "..." && !term.ellipsis) {
      term.ellipsis = true;
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      (term.ellipsis ? term.after : term.before).push_back(text[i]);
    } else {
      return Invalid("attribute \"equation\" is ", Quoted(equation),
                     "; terms hold letters and one \"...\", as in \"bij,...jk->...ik\"");
    }
  }
  return term;
}

struct Equation {
  std::vector<Term> operands;
  std::optional<Term> result;
};

absl::StatusOr<Equation> ParseEquation(const std::string& equation) {
  std::string text;
  for (char ch : equation) {
    if (ch != ' ') text.push_back(ch);
  }
  Equation parsed;
  const size_t arrow = text.find("->");
  std::string_view operands = std::string_view(text).substr(0, arrow);
  while (true) {
    const size_t comma = operands.find(',');
    ASSIGN_OR_RETURN(Term term, ParseTerm(operands.substr(0, comma), equation));
    parsed.operands.push_back(std::move(term));
    if (comma == std::string_view::npos) break;
    operands.remove_prefix(comma + 1);
  }
  if (arrow != std::string::npos) {
    ASSIGN_OR_RETURN(parsed.result, ParseTerm(std::string_view(text).substr(arrow + 2), equation));
  }
  return parsed;
}

Labels LabelsOf(const Term& term, int ellipsis) {
  Labels labels = term.before;
  for (int i = ellipsis; term.ellipsis && i-- > 0;) labels.push_back(EllipsisLabel(i));
  labels.insert(labels.end(), term.after.begin(), term.after.end());
  return labels;
}

bool Holds(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

struct Factor {
  Value value;
  Labels labels;
};

// Merges axes with the same label into one, their diagonal.
absl::StatusOr<Factor> Diagonal(OpBuilder& b, const Value& x, const Labels& labels) {
  Factor factor;
  Shape shape;
  std::vector<Expr> coordinates;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto it = std::find(factor.labels.begin(), factor.labels.end(), labels[i]);
    const auto axis = static_cast<int>(it - factor.labels.begin());
    if (it == factor.labels.end()) {
      factor.labels.push_back(labels[i]);
      shape.push_back(x.shape[i]);
    } else if (!b.bounds().ProvablyEqual(shape[axis], x.shape[i])) {
      return Invalid("an operand of shape ", ShapeToString(x.shape),
                     " has one letter for axes of sizes ", shape[axis].ToString(), " and ",
                     x.shape[i].ToString(), "; they must be equal");
    }
    coordinates.push_back(Expr::Axis(axis));
  }
  factor.value = Map(b, x, std::move(shape), std::move(coordinates));
  return factor;
}

// Drops the axes of size 1 whose label has another size elsewhere: they broadcast.
Factor Narrowed(OpBuilder& b, const Factor& factor, const std::map<int, Expr>& sizes) {
  std::vector<int> dropped;
  Factor result;
  for (size_t i = 0; i < factor.labels.size(); ++i) {
    const Expr& size = sizes.at(factor.labels[i]);
    if (b.bounds().ProvablyEqual(factor.value.shape[i], 1) && !b.bounds().ProvablyEqual(size, 1)) {
      dropped.push_back(static_cast<int>(i));
    } else {
      result.labels.push_back(factor.labels[i]);
    }
  }
  result.value = Squeeze(b, factor.value, dropped);
  return result;
}

std::string LettersOf(const Labels& labels, std::map<int, char>* letters) {
  std::string text;
  for (int label : labels) {
    const char next = kLetters[letters->size() % kLetters.size()];
    text.push_back(letters->emplace(label, next).first->second);
  }
  return text;
}

Factor Product(OpBuilder& b, const Factor& x, const Factor& y, const std::set<int>& needed) {
  Factor product;
  for (const Labels* labels : {&x.labels, &y.labels}) {
    for (int label : *labels) {
      if (needed.contains(label) && !Holds(product.labels, label)) product.labels.push_back(label);
    }
  }
  std::map<int, char> letters;
  const std::string left = LettersOf(x.labels, &letters), right = LettersOf(y.labels, &letters);
  const std::string spec = Cat(left, ",", right, "->", LettersOf(product.labels, &letters));
  product.value = Contract(b, spec, x.value, y.value);
  return product;
}

// Returns each label's size: that of its axes, ignoring axes of size 1 that broadcast.
absl::StatusOr<std::map<int, Expr>> SizesOf(const std::vector<Factor>& factors,
                                            const Bounds& bounds) {
  std::map<int, Expr> sizes;
  for (const Factor& factor : factors) {
    for (size_t i = 0; i < factor.labels.size(); ++i) {
      const Expr& size = factor.value.shape[i];
      auto [it, fresh] = sizes.emplace(factor.labels[i], size);
      if (fresh || bounds.ProvablyEqual(it->second, size) || bounds.ProvablyEqual(size, 1))
        continue;
      if (bounds.ProvablyEqual(it->second, 1)) {
        it->second = size;
      } else {
        return Invalid(
            "axes of one letter have sizes ", it->second.ToString(), " and ", size.ToString(),
            "; they must be equal or 1",
            size.constant() && it->second.constant() ? "" : " for every size of the dims");
      }
    }
  }
  return sizes;
}

// Returns the result's labels without "->": the ellipsis, then the letters that occur once, in
// alphabetical order.
Labels ImplicitResult(const Equation& equation, int ellipsis) {
  std::map<int, int> counts;
  bool any = false;
  for (const Term& term : equation.operands) {
    any = any || term.ellipsis;
    for (int letter : term.before) ++counts[letter];
    for (int letter : term.after) ++counts[letter];
  }
  Labels labels;
  for (int i = any ? ellipsis : 0; i-- > 0;) labels.push_back(EllipsisLabel(i));
  for (const auto& [letter, count] : counts) {
    if (count == 1) labels.push_back(letter);
  }
  return labels;
}

}  // namespace

absl::Status Einsum12(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const Equation equation, ParseEquation(c.String("equation")));
  if (static_cast<int>(equation.operands.size()) != c.inputs()) {
    return Invalid("attribute \"equation\" has ", equation.operands.size(), " terms for ",
                   c.inputs(), " operands");
  }
  std::vector<Factor> factors;
  int widest = 0;
  for (int i = 0; i < c.inputs(); ++i) {
    const Term& term = equation.operands[i];
    const int named = static_cast<int>(term.before.size() + term.after.size());
    const int ellipsis = c.In(i).rank() - named;
    if (ellipsis < 0 || (ellipsis > 0 && !term.ellipsis)) {
      return Invalid("operand ", i, " has shape ", ShapeToString(c.In(i).shape), ", its term ",
                     named, " letters", term.ellipsis ? " beside \"...\"" : "");
    }
    widest = std::max(widest, ellipsis);
    ASSIGN_OR_RETURN(Factor factor, Diagonal(b, c.In(i), LabelsOf(term, ellipsis)));
    factors.push_back(std::move(factor));
  }
  if (!b.status().ok()) return absl::OkStatus();  // the builder reports the failure
  const absl::StatusOr<std::map<int, Expr>> sizes = SizesOf(factors, b.bounds());
  if (!sizes.ok()) return sizes.status();
  const Labels result = equation.result.has_value() ? LabelsOf(*equation.result, widest)
                                                    : ImplicitResult(equation, widest);
  const std::set<int> distinct(result.begin(), result.end());
  bool known = distinct.size() == result.size();
  for (int label : result) known = known && sizes->contains(label);
  if (!known) {
    return Invalid("attribute \"equation\" is ", Quoted(c.String("equation")),
                   "; the result's letters must be different and all be in an operand's term");
  }
  if (sizes->size() > kLetters.size()) {
    return Unimplemented("it has more than ", kLetters.size(), " different axes");
  }
  for (Factor& factor : factors) factor = Narrowed(b, factor, *sizes);
  Factor y = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) {
    std::set<int> needed(result.begin(), result.end());
    for (size_t k = i + 1; k < factors.size(); ++k) {
      needed.insert(factors[k].labels.begin(), factors[k].labels.end());
    }
    y = Product(b, y, factors[i], needed);
  }
  if (!b.status().ok()) return absl::OkStatus();
  std::vector<int> summed, order;
  Labels kept;
  for (size_t i = 0; i < y.labels.size(); ++i) {
    if (distinct.contains(y.labels[i])) {
      kept.push_back(y.labels[i]);
    } else {
      summed.push_back(static_cast<int>(i));
    }
  }
  for (int label : result) {
    order.push_back(static_cast<int>(std::find(kept.begin(), kept.end(), label) - kept.begin()));
  }
  c.Set(0, Permute(b, Reduce(b, Op::kSumReduce, y.value, summed, /*keepdims=*/false), order));
  return absl::OkStatus();
}

}  // namespace athanor::onnx
