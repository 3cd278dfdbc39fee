#include "compiler/ir/graph/check.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <string>

#include "compiler/ir/graph/input_value.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/graph/state.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Returns the number of terms, atoms and arguments of an expression. Stops counting beyond `cap`,
// which also bounds the depth of the recursion.
int64_t ExprSize(const Expr& e, int64_t cap) {
  int64_t size = 1;
  for (const Expr::Term& term : e.terms()) {
    ++size;
    for (const AtomRef& atom : term.monomial) {
      ++size;
      for (const Expr& arg : atom->args) {
        if (size > cap) return size;
        size += ExprSize(arg, cap - size);
      }
    }
    if (size > cap) return size;
  }
  return size;
}

std::optional<int> AxisOf(std::string_view symbol) {
  int axis = -1;
  if (symbol.size() < 2 || symbol[0] != '$') return std::nullopt;
  const auto [end, error] = std::from_chars(symbol.data() + 1, symbol.data() + symbol.size(), axis);
  if (error != std::errc() || end != symbol.data() + symbol.size()) return std::nullopt;
  return axis;
}

std::string AttrNames(const OpRow& row) {
  if (row.attrs.empty()) return "it takes none";
  std::string names;
  for (const AttrSpec& spec : row.attrs) names += Cat(names.empty() ? "" : ", ", spec.name);
  return "it takes " + names;
}

}  // namespace

absl::Status CheckName(std::string_view what, std::string_view name, const GraphLimits& limits) {
  if (static_cast<int64_t>(name.size()) > limits.max_name_bytes) {
    return Invalid(what, " ", Quoted(name), " is ", name.size(), " bytes long; ",
                   LimitIs(limits.max_name_bytes, "max_name_bytes"));
  }
  if (!IsValidUtf8(name)) return Invalid(what, " ", Quoted(name), " is not valid UTF-8");
  return absl::OkStatus();
}

bool NodeChecker::IsDim(std::string_view symbol) const {
  return std::any_of(dims_.begin(), dims_.end(),
                     [&](const Dim& dim) { return dim.name == symbol; });
}

absl::Status NodeChecker::CheckExpr(const Expr& expr, int axes) const {
  if (expr.overflow()) return Invalid("expression leaves the 64-bit range or is not well-formed");
  if (expr.constant()) return absl::OkStatus();
  if (std::optional<std::string> symbol = expr.symbol(); symbol && IsDim(*symbol)) {
    return absl::OkStatus();
  }
  if (ExprSize(expr, limits_.max_expr_size) > limits_.max_expr_size) {
    return Invalid("expression has too many terms, atoms and arguments; ",
                   LimitIs(limits_.max_expr_size, "max_expr_size"));
  }
  std::set<std::string> symbols;
  expr.CollectSymbols(&symbols);
  for (const std::string& symbol : symbols) {
    if (IsDim(symbol)) continue;
    const std::optional<int> axis = AxisOf(symbol);
    if (axis && *axis < axes && symbol == Expr::Axis(*axis).ToString()) continue;
    if (axes == 0) {
      return Invalid(Quoted(symbol), " in \"", expr.ToString(), "\" is not a dim of the graph");
    }
    return Invalid(Quoted(symbol), " in \"", expr.ToString(),
                   "\" is neither a dim of the graph nor one of $0 to $", axes - 1);
  }
  return absl::OkStatus();
}

absl::Status NodeChecker::CheckSize(int axis, const Expr& size, int64_t* bytes) const {
  if (absl::Status s = CheckExpr(size, 0); !s.ok()) return Prefixed(Cat("axis ", axis, ": "), s);
  if (!bounds_.NonNegative(size)) {
    const std::optional<int64_t> least = bounds_.Minimum(size);
    return Invalid("axis ", axis, " has size ", size.ToString(), ", which ",
                   least ? Cat("can be ", *least) : "is not provably 0 or more",
                   size.constant() ? "; a size must not be negative"
                                   : " within the dims' bounds; a size must not be negative");
  }
  const std::optional<int64_t> most = bounds_.Maximum(size);
  if (!most) {
    return Invalid("axis ", axis, " has size ", size.ToString(),
                   ", which leaves the 64-bit range or is not bounded; tighten the dims' bounds");
  }
  // Counts a zero size as one, so that no product of some of the axes overflows either.
  if (__builtin_mul_overflow(*bytes, std::max<int64_t>(*most, 1), bytes)) *bytes = INT64_MAX;
  return absl::OkStatus();
}

absl::Status NodeChecker::CheckType(const TensorType& type) const {
  if (!IsKnown(type.dtype)) return Invalid("dtype ", static_cast<int>(type.dtype), " is unknown");
  if (static_cast<int64_t>(type.shape.size()) > limits_.max_rank) {
    return Invalid("rank ", type.shape.size(), " is too high; ",
                   LimitIs(limits_.max_rank, "max_rank"));
  }
  int64_t bytes = DTypeBytes(type.dtype);
  for (size_t i = 0; i < type.shape.size(); ++i) {
    RETURN_IF_ERROR(CheckSize(static_cast<int>(i), type.shape[i], &bytes));
  }
  // Refuses an empty tensor of huge axes too, under any limits: later stages multiply its sizes.
  if (bytes > limits_.max_tensor_bytes || bytes == INT64_MAX) {
    return Invalid("type ", TypeToString(type), " takes ",
                   bytes == INT64_MAX ? std::string("more than 2^63") : Cat(bytes),
                   " bytes at the dims' largest sizes; ",
                   LimitIs(limits_.max_tensor_bytes, "max_tensor_bytes"));
  }
  return absl::OkStatus();
}

absl::Status NodeChecker::CheckShapeAttr(const Shape& shape) const {
  // Sizes are checked with the inferred type.
  if (static_cast<int64_t>(shape.size()) > limits_.max_rank) {
    return Invalid("rank ", shape.size(), " is too high; ", LimitIs(limits_.max_rank, "max_rank"));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (absl::Status s = CheckExpr(shape[i], 0); !s.ok()) return Prefixed(Cat("axis ", i, ": "), s);
  }
  return absl::OkStatus();
}

absl::Status NodeChecker::CheckMapAttr(const IndexMap& map) const {
  RETURN_IF_ERROR(CheckShapeAttr(map.shape));
  if (static_cast<int64_t>(map.coordinates.size()) > limits_.max_rank) {
    return Invalid(map.coordinates.size(), " coordinates, one per axis; ",
                   LimitIs(limits_.max_rank, "max_rank"));
  }
  for (size_t i = 0; i < map.coordinates.size(); ++i) {
    absl::Status s = CheckExpr(map.coordinates[i], static_cast<int>(map.shape.size()));
    if (!s.ok()) return Prefixed(Cat("coordinate ", i, ": "), s);
  }
  return absl::OkStatus();
}

absl::Status NodeChecker::CheckTensorAttr(const Tensor& value) const {
  if (static_cast<int64_t>(value.bytes.size()) > limits_.max_attr_bytes) {
    return Invalid("literal has ", value.bytes.size(), " bytes; ",
                   LimitIs(limits_.max_attr_bytes, "max_attr_bytes"),
                   "; larger tensors are parameters");
  }
  TensorType type{value.dtype, {}};
  if (static_cast<int64_t>(value.shape.size()) > limits_.max_rank) {
    return Invalid("rank ", value.shape.size(), " is too high; ",
                   LimitIs(limits_.max_rank, "max_rank"));
  }
  for (int64_t size : value.shape) type.shape.push_back(size);
  RETURN_IF_ERROR(CheckType(type));
  const int64_t bytes = value.elements() * DTypeBytes(value.dtype);
  if (bytes != static_cast<int64_t>(value.bytes.size())) {
    return Invalid("literal of type ", TypeToString(type), " has ", value.bytes.size(),
                   " bytes; it needs ", bytes);
  }
  if (value.dtype == DType::kBool) {
    for (char byte : value.bytes) {
      if (byte != 0 && byte != 1) {
        return Invalid("bool literal holds byte ", static_cast<int>(static_cast<uint8_t>(byte)),
                       "; it must be 0 or 1");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status NodeChecker::CheckGraphAttr(const SubGraph& body) const {
  if (!body) return Invalid("is not a graph");
  if (limits_.max_bodies <= 0) {
    return Invalid("is nested too deep; graphs may be nested ", GraphLimits().max_bodies, " deep");
  }
  if (!body->dims.empty()) {
    return Invalid("declares dim ", body->dims[0].name,
                   "; its sizes are over the dims of the graph around it");
  }
  for (NodeId n = 0; n < static_cast<NodeId>(body->nodes.size()); ++n) {
    const Node& node = body->nodes[n];
    if (IsParameter(node.op)) {
      return Invalid(body->Describe(n),
                     ": a weight is captured, as an operand of the node around "
                     "the graph");
    }
    if (IsState(node.op)) {
      return Invalid(body->Describe(n), ": a graph inside a graph has no states");
    }
    if (IsInput(node.op) && !node.attrs.empty()) {
      return Invalid(body->Describe(n), ": an input of a graph inside a graph has no attributes");
    }
  }
  GraphLimits inside = limits_;
  --inside.max_bodies;
  Graph whole = *body;
  whole.dims = dims_;
  return Verify(whole, inside);
}

absl::Status NodeChecker::CheckAttr(const AttrSpec& spec, const AttrValue& value) const {
  const auto type = static_cast<AttrType>(value.index());
  if (type != spec.type) {
    return Invalid("is of type ", AttrTypeName(type), "; it must be of type ",
                   AttrTypeName(spec.type));
  }
  switch (type) {
    case AttrType::kString:
      return CheckName("text", std::get<std::string>(value), limits_);
    case AttrType::kDType:
      if (IsKnown(std::get<DType>(value))) return absl::OkStatus();
      return Invalid("is dtype ", static_cast<int>(std::get<DType>(value)), ", which is unknown");
    case AttrType::kInts:
      if (static_cast<int64_t>(std::get<std::vector<int64_t>>(value).size()) > limits_.max_rank) {
        return Invalid("holds ", std::get<std::vector<int64_t>>(value).size(), " axes; ",
                       LimitIs(limits_.max_rank, "max_rank"));
      }
      return absl::OkStatus();
    case AttrType::kShape:
      return CheckShapeAttr(std::get<Shape>(value));
    case AttrType::kIndexMap:
      return CheckMapAttr(std::get<IndexMap>(value));
    case AttrType::kTensor:
      return CheckTensorAttr(std::get<Tensor>(value));
    case AttrType::kGraph:
      return CheckGraphAttr(std::get<SubGraph>(value));
    case AttrType::kBool:
    case AttrType::kInt:
    case AttrType::kFloat:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status NodeChecker::CheckAttrs(const OpRow& row, const Attrs& attrs) const {
  for (const auto& [name, value] : attrs) {
    const std::string_view given = name;
    auto spec = std::find_if(row.attrs.begin(), row.attrs.end(),
                             [&](const AttrSpec& candidate) { return candidate.name == given; });
    if (spec == row.attrs.end()) {
      return Invalid(row.name, " has no attribute ", Quoted(name), "; ", AttrNames(row));
    }
    if (absl::Status s = CheckAttr(*spec, value); !s.ok()) {
      return Prefixed(Cat("attribute ", name, ": "), s);
    }
  }
  for (const AttrSpec& spec : row.attrs) {
    if (spec.required && !attrs.contains(spec.name)) {
      return Invalid("attribute ", spec.name, " (", AttrTypeName(spec.type), ": ", spec.doc,
                     ") is missing");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorType> NodeChecker::Infer(Op op, absl::Span<const TensorType> inputs,
                                              const Attrs& attrs) const {
  const OpRow& row = OpInfo(op);
  const int count = static_cast<int>(inputs.size());
  if (count < row.min_inputs || count > row.max_inputs) {
    return Invalid("has ", count, " operands; ", row.name, " takes ", row.min_inputs,
                   row.min_inputs == row.max_inputs ? "" : Cat(" to ", row.max_inputs));
  }
  RETURN_IF_ERROR(CheckAttrs(row, attrs));
  absl::StatusOr<TensorType> type = row.infer(inputs, attrs, bounds_);
  if (!type.ok()) return type;
  RETURN_IF_ERROR(CheckType(*type));
  return type;
}

absl::Status NodeChecker::CheckDeclared(Op op, const TensorType& type, const Attrs& attrs) const {
  RETURN_IF_ERROR(CheckAttrs(OpInfo(op), attrs));
  RETURN_IF_ERROR(CheckType(type));
  if (IsInput(op)) return CheckInputValue(type, attrs, bounds_);
  if (IsStateRead(op)) return CheckState(type, attrs);
  RETURN_IF_ERROR(CheckMagnitude(type, attrs));
  for (size_t i = 0; i < type.shape.size(); ++i) {
    if (type.shape[i].constant()) continue;
    return Invalid("axis ", i, " has size ", type.shape[i].ToString(),
                   "; a parameter's shape must be constant");
  }
  return absl::OkStatus();
}

}  // namespace athanor
