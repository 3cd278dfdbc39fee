#include "compiler/frontend/onnx/model/dims.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/frontend/names.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using Substitution = std::map<std::string, Expr, std::less<>>;

constexpr size_t kMaxGiven = 1024;
constexpr size_t kShownPlaces = 4;
constexpr size_t kShownDims = 16;
// Limit on sizes without a number. Each becomes a dim, of which a graph has at most 64, or depends
// on other dims.
constexpr size_t kMaxTexts = 2048;

std::set<std::string> SymbolsOf(const Expr& e) {
  std::set<std::string> symbols;
  e.CollectSymbols(&symbols);
  return symbols;
}

// Reports whether a text is a name. A text such as "?" only says that the size is unknown.
bool IsName(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

// Returns a divisor in `e` that may be below 1 within the bounds. For some requests such a size has
// no value, and proofs about it hold only for the others.
std::optional<Expr> UnsafeDivisor(const Expr& e, const Bounds& bounds) {
  for (const Expr::Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) {
      for (const Expr& part : atom->args) {
        if (std::optional<Expr> inner = UnsafeDivisor(part, bounds)) return inner;
      }
      if (atom->kind != Atom::Kind::kFloorDiv) continue;
      if (!bounds.NonNegative(atom->args[1] - 1)) return atom->args[1];
    }
  }
  return std::nullopt;
}

// Derives dims and shapes from the inputs and the user's statements.
class DimReader {
 public:
  DimReader(absl::Span<const ::onnx::ValueInfoProto* const> inputs,
            absl::Span<const DimGiven> given, const GraphLimits& limits)
      : inputs_(inputs), given_(given), limits_(limits) {}

  absl::Status Run() {
    absl::Status s = ReadInputs();
    if (!s.ok()) return s;
    NameTexts();
    s = ReadGiven();
    if (s.ok()) s = Resolve();
    if (!s.ok()) return s;
    for (auto& [input, shape] : shapes) {
      for (Expr& size : shape) size = size.Substitute(substitution_);
    }
    for (auto& [text, size] : by_text) size = size.Substitute(substitution_);
    s = MakeDims();
    if (s.ok()) s = CheckDetermined();
    if (s.ok()) s = CheckSizes();
    return s;
  }

  std::vector<Dim> dims;
  std::map<std::string, Expr, std::less<>> by_text;
  std::map<std::string, Shape, std::less<>> shapes;

 private:
  // A size that is not a number: one dim_param, or one axis without any.
  struct Text {
    std::string text;  // the dim_param, or <input>_<axis>
    bool named = true;
    std::optional<Expr> size;
  };

  absl::Status ReadInputs();
  absl::Status ReadInput(const ::onnx::ValueInfoProto& input);
  int FindText(std::string text, bool named);
  void NameTexts();
  void AcceptExpressions();
  Expr NewSymbol(const Text& text);

  absl::Status ReadGiven();
  absl::StatusOr<Expr> ParseEquals(const DimGiven& given) const;
  std::string SymbolOf(const std::string& name) const;
  absl::Status Resolve();

  absl::Status MakeDims();
  absl::Status NoSuchDim(const std::string& name) const;
  std::string PlacesOf(const std::string& symbol) const;
  absl::Status CheckDetermined() const;
  absl::Status CheckSizes() const;
  Bounds DimBounds() const;

  const absl::Span<const ::onnx::ValueInfoProto* const> inputs_;
  const absl::Span<const DimGiven> given_;
  const GraphLimits limits_;
  std::vector<Text> texts_;
  std::map<std::pair<std::string, bool>, int> text_index_;
  // By input: a number, or an index into texts_ if >= 0.
  std::vector<std::vector<std::pair<int64_t, int>>> axes_;
  std::map<std::string, std::string> symbol_texts_;  // symbol to the file's text
  std::map<std::string, const DimGiven*> given_by_symbol_;
  Substitution equals_;        // as given
  Substitution substitution_;  // over remaining dims only
};

int DimReader::FindText(std::string text, bool named) {
  const auto [at, fresh] = text_index_.try_emplace({text, named}, static_cast<int>(texts_.size()));
  if (fresh) texts_.push_back({std::move(text), named, std::nullopt});
  return at->second;
}

absl::Status DimReader::ReadInputs() {
  for (const ::onnx::ValueInfoProto* input : inputs_) {
    if (absl::Status s = ReadInput(*input); !s.ok()) {
      return Prefixed(Cat("input ", Quoted(input->name()), ": "), s);
    }
  }
  return absl::OkStatus();
}

absl::Status DimReader::ReadInput(const ::onnx::ValueInfoProto& input) {
  if (!input.type().has_tensor_type()) return Unimplemented("it is not a tensor");
  const ::onnx::TypeProto::Tensor& type = input.type().tensor_type();
  if (!type.has_shape()) {
    return Invalid("the model states no shape of it; its rank must be known");
  }
  if (type.shape().dim_size() > limits_.max_rank) {
    return Invalid("rank ", type.shape().dim_size(), " is too high; ",
                   LimitIs(limits_.max_rank, "max_rank"));
  }
  std::vector<std::pair<int64_t, int>> axes;
  for (const ::onnx::TensorShapeProto::Dimension& dim : type.shape().dim()) {
    if (dim.has_dim_value() && dim.dim_value() < -1) {
      return Invalid("axis ", axes.size(), " has the negative size ", dim.dim_value());
    }
    // Some exporters write -1 for an unknown size.
    if (dim.dim_value() >= 0 && dim.has_dim_value()) {
      axes.push_back({dim.dim_value(), -1});
    } else if (!IsValidUtf8(dim.dim_param())) {
      return Invalid("axis ", axes.size(), " has the dim_param ", Quoted(dim.dim_param()),
                     ", which is not UTF-8");
    } else if (IsName(dim.dim_param())) {
      axes.push_back({0, FindText(dim.dim_param(), true)});
    } else {
      axes.push_back({0, FindText(Cat(input.name(), "_", axes.size()), false)});
    }
    if (texts_.size() > kMaxTexts) {
      return Invalid("with it the inputs have more than ", kMaxTexts, " different symbolic sizes; ",
                     LimitIs(limits_.max_dims, "max_dims"), " for independent ones");
    }
  }
  axes_.push_back(std::move(axes));
  return absl::OkStatus();
}

void DimReader::NameTexts() {
  for (Text& text : texts_) {
    if (!text.named || !Expr::IsSymbolName(text.text) || text.text.find('$') != std::string::npos) {
      continue;
    }
    text.size = Expr::Symbol(text.text);
    symbol_texts_[text.text] = text.text;
  }
  AcceptExpressions();
  for (Text& text : texts_) {
    if (!text.size) text.size = NewSymbol(text);
  }
  for (size_t i = 0; i < axes_.size(); ++i) {
    Shape shape;
    for (const auto& [number, text] : axes_[i]) {
      shape.push_back(text < 0 ? Expr(number) : *texts_[text].size);
    }
    shapes[inputs_[i]->name()] = std::move(shape);
  }
  for (const Text& text : texts_) {
    if (text.named) by_text[text.text] = *text.size;
  }
}

// Accepts texts as expressions if all their symbols but one are sizes of axes or depend on such
// sizes.
void DimReader::AcceptExpressions() {
  std::set<std::string> numbers;  // symbols stated as numbers need no axis of their own
  for (const DimGiven& given : given_) {
    const std::optional<Expr> equals = ParseDimParam(given.equals);
    if (equals && equals->constant()) numbers.insert(given.name);
  }
  std::vector<std::pair<Text*, Expr>> left;
  for (Text& text : texts_) {
    if (!text.named || text.size) continue;
    if (std::optional<Expr> e = ParseDimParam(text.text)) left.push_back({&text, *std::move(e)});
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (auto& [text, e] : left) {
      if (text->size) continue;
      std::vector<std::string> unknown;
      for (const std::string& symbol : SymbolsOf(e)) {
        if (symbol_texts_.count(symbol) == 0 && numbers.count(symbol) == 0) {
          unknown.push_back(symbol);
        }
      }
      if (unknown.size() > 1) continue;
      if (unknown.size() == 1) {
        const std::optional<Expr::Affine> affine = e.AsAffine(unknown[0]);
        if (!affine || affine->stride.constant().value_or(0) == 0) continue;
      }
      for (const std::string& symbol : SymbolsOf(e)) {
        symbol_texts_.emplace(symbol, symbol);
        by_text.emplace(symbol, Expr::Symbol(symbol));
      }
      text->size = e;
      changed = true;
    }
  }
}

Expr DimReader::NewSymbol(const Text& text) {
  const std::string base = SymbolFor(text.text);
  std::string symbol = base;
  for (int i = 2; symbol_texts_.count(symbol) > 0; ++i) symbol = Cat(base, "_", i);
  symbol_texts_[symbol] = text.named ? text.text : symbol;
  return Expr::Symbol(symbol);
}

// Returns the symbol that a user's name refers to: by the file's text, else by the symbol itself;
// empty if there is none.
std::string DimReader::SymbolOf(const std::string& name) const {
  const auto found = text_index_.find({name, true});
  if (found != text_index_.end()) return texts_[found->second].size->symbol().value_or("");
  return symbol_texts_.count(name) > 0 ? name : "";
}

absl::StatusOr<Expr> DimReader::ParseEquals(const DimGiven& given) const {
  if (const std::string symbol = SymbolOf(given.equals); !symbol.empty()) {
    return Expr::Symbol(symbol);
  }
  const std::optional<Expr> parsed = ParseDimParam(given.equals);
  if (!parsed) {
    return Invalid("dim ", Quoted(given.name), " is given as ", Quoted(given.equals),
                   ", which is neither a number nor an expression over dims");
  }
  Substitution named;
  for (const std::string& name : SymbolsOf(*parsed)) {
    if (const std::string symbol = SymbolOf(name); !symbol.empty()) {
      named.emplace(name, Expr::Symbol(symbol));
    }
  }
  return parsed->Substitute(named);
}

absl::Status DimReader::ReadGiven() {
  if (given_.size() > kMaxGiven) {
    return Invalid(given_.size(), " dims are given; at most ", kMaxGiven, " can be");
  }
  std::set<std::string> fresh;  // symbols that only the user mentions
  for (const DimGiven& given : given_) {
    if (given.equals.empty()) continue;
    ASSIGN_OR_RETURN(Expr equals, ParseEquals(given));
    for (const std::string& symbol : SymbolsOf(equals)) {
      if (symbol_texts_.count(symbol) == 0) fresh.insert(symbol);
    }
  }
  for (const DimGiven& given : given_) {
    std::string symbol = SymbolOf(given.name);
    if (symbol.empty() && fresh.count(given.name) > 0) symbol = given.name;
    if (symbol.empty()) return NoSuchDim(given.name);
    if (!given_by_symbol_.emplace(symbol, &given).second) {
      return Invalid("dim ", Quoted(given.name), " is given twice");
    }
    if (given.equals.empty()) continue;
    if (given.min || given.max) {
      return Invalid("dim ", Quoted(given.name), " is given bounds and a value; give one of them");
    }
    equals_[symbol] = *ParseEquals(given);
  }
  for (const std::string& symbol : fresh) symbol_texts_.emplace(symbol, symbol);
  return absl::OkStatus();
}

absl::Status DimReader::NoSuchDim(const std::string& name) const {
  if (by_text.count(name) > 0) {
    return Invalid("dim ", Quoted(name), " is given, but it is ",
                   by_text.find(name)->second.ToString(), "; give the dims in it");
  }
  std::vector<std::string_view> names;
  for (const auto& [symbol, text] : symbol_texts_) names.push_back(text);
  return Invalid("dim ", Quoted(name), " is given, but no input has it", DidYouMean(name, names),
                 names.empty() ? "; all sizes of this model's inputs are numbers"
                               : Cat("; the inputs have ", JoinNames(names)));
}

// Substitutes stated dims in other statements until none is left.
absl::Status DimReader::Resolve() {
  std::map<std::string, Expr> left(equals_.begin(), equals_.end());
  for (bool changed = true; changed && !left.empty();) {
    changed = false;
    for (auto at = left.begin(); at != left.end();) {
      const std::set<std::string> symbols = SymbolsOf(at->second);
      const bool waits = std::any_of(symbols.begin(), symbols.end(),
                                     [&](const std::string& s) { return left.count(s) > 0; });
      if (waits) {
        ++at;
        continue;
      }
      substitution_[at->first] = at->second.Substitute(substitution_);
      at = left.erase(at);
      changed = true;
    }
  }
  if (left.empty()) return absl::OkStatus();
  std::string text;
  for (const auto& [symbol, e] : left) {
    text += Cat(text.empty() ? "" : ", ", Quoted(symbol_texts_.at(symbol)), " = ", e.ToString());
  }
  return Invalid("dims are defined by each other in a cycle: ", text);
}

std::string DimReader::PlacesOf(const std::string& symbol) const {
  std::string text;
  size_t places = 0;
  for (const ::onnx::ValueInfoProto* input : inputs_) {
    const Shape& shape = shapes.at(input->name());
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (!shape[axis].Uses(symbol) || ++places > kShownPlaces) continue;
      text += Cat(text.empty() ? "" : ", ", "axis ", axis, " of input ", Quoted(input->name()));
    }
  }
  if (places > kShownPlaces) text += Cat(" and ", places - kShownPlaces, " more");
  return text;
}

absl::Status DimReader::MakeDims() {
  std::set<std::string> seen;
  std::string missing, hint;
  size_t unbounded = 0;
  for (const ::onnx::ValueInfoProto* input : inputs_) {
    for (const Expr& size : shapes.at(input->name())) {
      for (const std::string& symbol : SymbolsOf(size)) {
        if (!seen.insert(symbol).second) continue;
        const std::string& text = symbol_texts_.at(symbol);
        const auto found = given_by_symbol_.find(symbol);
        const DimGiven* given = found == given_by_symbol_.end() ? nullptr : found->second;
        if (given == nullptr || !given->max) {
          if (++unbounded > kShownDims) continue;
          missing += Cat(missing.empty() ? "" : ", ", Quoted(text), " (", PlacesOf(symbol), ")");
          if (hint.empty()) hint = Cat(Quoted(text), ": (1, N)");
          continue;
        }
        const Dim dim{symbol, given->min.value_or(1), *given->max};
        if (dim.min < 0 || dim.max < 1 || dim.min > dim.max) {
          return Invalid("dim ", Quoted(text), " is given the bounds ", dim.min, " to ", dim.max,
                         "; they must be 0 <= min <= max and max >= 1");
        }
        dims.push_back(dim);
      }
    }
  }
  if (!missing.empty()) {
    if (unbounded > kShownDims) missing += Cat(" and ", unbounded - kShownDims, " more");
    return Invalid("dims without bounds: ", missing, "; give dims={", hint, ", ...}");
  }
  if (static_cast<int64_t>(dims.size()) > limits_.max_dims) {
    return Invalid("the model has ", dims.size(), " dims; ", LimitIs(limits_.max_dims, "max_dims"));
  }
  return absl::OkStatus();
}

Bounds DimReader::DimBounds() const {
  Bounds bounds;
  for (const Dim& dim : dims) bounds.Set(dim.name, dim.min, dim.max);
  return bounds;
}

// Checks that every dim follows from the shapes of a request, one after the other, as DimBinding
// solves them.
absl::Status DimReader::CheckDetermined() const {
  const Bounds bounds = DimBounds();
  std::set<std::string> unknown;
  for (const Dim& dim : dims) unknown.insert(dim.name);
  for (bool changed = true; changed && !unknown.empty();) {
    changed = false;
    for (const auto& [input, shape] : shapes) {
      for (const Expr& size : shape) {
        std::vector<std::string> open;
        for (const std::string& symbol : SymbolsOf(size)) {
          if (unknown.count(symbol) > 0) open.push_back(symbol);
        }
        if (open.size() != 1) continue;
        const std::optional<Expr::Affine> affine = size.AsAffine(open[0]);
        if (!affine) continue;
        const Expr& stride = affine->stride;
        if (!bounds.NonNegative(stride - 1) && !bounds.NonNegative(-1 - stride)) continue;
        unknown.erase(open[0]);
        changed = true;
      }
    }
  }
  if (unknown.empty()) return absl::OkStatus();
  const std::string& symbol = *unknown.begin();
  return Invalid("dim ", Quoted(symbol_texts_.at(symbol)), " (", PlacesOf(symbol),
                 ") does not follow from the shapes of the inputs; state it as a number or as an "
                 "expression over other dims");
}

absl::Status DimReader::CheckSizes() const {
  const Bounds bounds = DimBounds();
  for (const ::onnx::ValueInfoProto* input : inputs_) {
    const Shape& shape = shapes.at(input->name());
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (const std::optional<Expr> divisor = UnsafeDivisor(shape[axis], bounds)) {
        return Invalid("input ", Quoted(input->name()), ": axis ", axis, " is ",
                       shape[axis].ToString(), ", which divides by ", divisor->ToString(),
                       "; that must be at least 1 for all sizes within the bounds of its dims");
      }
      if (!shape[axis].overflow() && bounds.NonNegative(shape[axis])) continue;
      return Invalid("input ", Quoted(input->name()), ": axis ", axis, " is ",
                     shape[axis].ToString(),
                     ", which is not at least 0 for all sizes within the bounds of its dims");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DimTable> DimTable::Create(absl::Span<const ::onnx::ValueInfoProto* const> inputs,
                                          absl::Span<const DimGiven> given,
                                          const GraphLimits& limits) {
  DimReader reader(inputs, given, limits);
  RETURN_IF_ERROR(reader.Run());
  DimTable table;
  table.dims_ = std::move(reader.dims);
  table.by_text_ = std::move(reader.by_text);
  table.shapes_ = std::move(reader.shapes);
  return table;
}

const Shape& DimTable::ShapeOf(std::string_view input) const { return shapes_.find(input)->second; }

std::optional<Expr> DimTable::Parse(std::string_view text) const {
  if (const auto found = by_text_.find(text); found != by_text_.end()) return found->second;
  const std::optional<Expr> parsed = ParseDimParam(text);
  if (!parsed) return std::nullopt;
  for (const std::string& symbol : SymbolsOf(*parsed)) {
    if (by_text_.count(symbol) == 0) return std::nullopt;
  }
  return parsed->Substitute(by_text_);
}

}  // namespace athanor::onnx
