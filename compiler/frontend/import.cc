// Converts a graph's message to an IR graph.
#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/frontend/attr_proto.h"
#include "compiler/frontend/datatype.h"
#include "compiler/frontend/dim_binding.h"
#include "compiler/frontend/element.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/names.h"
#include "compiler/frontend/parse.h"
#include "compiler/ir/graph/check.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr size_t kHashBytes = 32;
constexpr size_t kShownCycle = 16;

// Checks that `dtype` is the carrier of the values of `element`.
absl::Status CheckElement(const std::string& element, DType dtype) {
  if (element.empty()) return absl::OkStatus();
  const onnx::ElemRow* row = FindElement(element);
  if (row == nullptr) {
    return Invalid("element ", Quoted(element), " is unknown, or a dtype; leave it out");
  }
  if (onnx::WireOf(row->elem) == dtype) return absl::OkStatus();
  return Invalid("element ", Quoted(element), " is sent as ", DTypeName(onnx::WireOf(row->elem)),
                 ", not as ", DTypeName(dtype));
}

// Imports one message. Positions are indices into message.nodes(); ids are those of the graph.
class Importer {
 public:
  Importer(const v1::Graph& message, const MessageLimits& limits, GraphMaker maker)
      : message_(message), maker_(maker), limits_(limits.graph), message_limits_(limits) {}

  absl::StatusOr<ImportedGraph> Run() {
    absl::Status s = CheckName("graph name", message_.name(), limits_);
    if (s.ok()) s = AddDims();
    if (s.ok()) s = ReadNames();
    if (s.ok()) s = ResolveOperands();
    if (s.ok()) s = Sort();
    if (s.ok()) s = AddNodes();
    if (s.ok()) s = AddOutputs();
    if (s.ok()) s = AddUpdates();
    if (s.ok()) s = Verify(graph_, limits_);
    if (s.ok()) s = VerifyBindable(graph_);
    if (s.ok()) s = DimBinding::Create(graph_).status();
    if (!s.ok()) return s;
    return ImportedGraph{std::move(graph_), std::move(hashes_), std::move(input_elements_),
                         std::move(output_elements_)};
  }

 private:
  absl::Status CheckDim(const v1::GraphDim& dim) const;
  absl::Status AddDims();
  absl::Status ReadNames();
  absl::Status ReadOp(int position);
  absl::Status ResolveOperands();
  absl::Status Sort();
  absl::Status Cycle(const std::vector<int>& missing) const;
  absl::Status AddNodes();
  absl::StatusOr<Node> ReadDeclared(const v1::GraphNode& node, Op op, const NodeChecker& checker);
  absl::StatusOr<Node> ReadInferred(int position, Op op, const NodeChecker& checker) const;
  absl::StatusOr<Attrs> ReadAttrs(const v1::GraphNode& node, const OpRow& row) const;
  absl::StatusOr<TensorType> ReadType(const v1::GraphNode& node) const;
  absl::Status CheckStatedType(const v1::GraphNode& node, const TensorType& inferred) const;
  absl::Status AddOutputs();
  absl::Status AddUpdates();
  absl::Status NoSuchNode(std::string_view what, const std::string& name) const;

  std::string Describe(int position) const {
    const v1::GraphNode& node = message_.nodes(position);
    return Cat("node ", Quoted(node.name()), " (", Printable(node.op()), "): ");
  }
  // Returns an op's name, in quotes if it is unknown.
  static std::string Printable(const std::string& op) { return ParseOp(op) ? op : Quoted(op); }

  const v1::Graph& message_;
  const GraphMaker maker_;
  const GraphLimits limits_;
  const MessageLimits message_limits_;
  Graph graph_;
  Bounds bounds_;  // bounds of the dims
  std::vector<std::string> hashes_;
  std::vector<std::string> input_elements_, output_elements_;
  absl::flat_hash_map<std::string, int> positions_;  // by name
  std::vector<Op> ops_;                              // by position
  std::vector<std::vector<int>> operands_;           // by position: positions
  std::vector<int> order_;                           // positions, operands first
  std::vector<NodeId> ids_;                          // by position
};

absl::Status Importer::CheckDim(const v1::GraphDim& dim) const {
  if (!Expr::IsSymbolName(dim.name()) || dim.name().find('$') != std::string::npos) {
    return Invalid("dim ", Quoted(dim.name()),
                   ": the name must be a letter or _, then letters, digits, _ or .");
  }
  if (dim.min() < 0) {
    return Invalid("dim ", Quoted(dim.name()), ": min is ", dim.min(), "; it must be at least 0");
  }
  if (dim.max() < std::max<int64_t>(dim.min(), 1)) {
    return Invalid("dim ", Quoted(dim.name()), ": max is ", dim.max(), "; it must be at least ",
                   dim.min() > 1 ? Cat("min, ", dim.min()) : std::string("1"));
  }
  return absl::OkStatus();
}

absl::Status Importer::AddDims() {
  if (message_.dims_size() > limits_.max_dims) {
    return Invalid("the graph has ", message_.dims_size(), " dims; ",
                   LimitIs(limits_.max_dims, "max_dims"));
  }
  absl::flat_hash_set<std::string> names;
  for (const v1::GraphDim& dim : message_.dims()) {
    RETURN_IF_ERROR(CheckDim(dim));
    if (!names.insert(dim.name()).second) {
      return Invalid("dim ", Quoted(dim.name()), " is declared twice; declare it once");
    }
    graph_.dims.push_back({dim.name(), dim.min(), dim.max()});
  }
  graph_.name = message_.name();
  return absl::OkStatus();
}

absl::Status Importer::ReadOp(int position) {
  const v1::GraphNode& node = message_.nodes(position);
  const std::optional<Op> op = ParseOp(node.op());
  if (op && IsState(*op) && maker_ == GraphMaker::kUser) {
    return Unimplemented(Describe(position),
                         "an uploaded graph has no states; those of checkpoints do");
  }
  if (op) {
    ops_.push_back(*op);
    return absl::OkStatus();
  }
  std::vector<std::string_view> known;
  for (const OpRow& row : OpTable()) known.push_back(row.name);
  return Unimplemented("node ", Quoted(node.name()), ": op ", Quoted(node.op()),
                       " is not supported", DidYouMean(node.op(), known));
}

absl::Status Importer::ReadNames() {
  if (message_.nodes_size() > limits_.max_nodes) {
    return Invalid("the graph has ", message_.nodes_size(), " nodes; ",
                   LimitIs(limits_.max_nodes, "max_nodes"));
  }
  for (int i = 0; i < message_.nodes_size(); ++i) {
    const std::string& name = message_.nodes(i).name();
    if (name.empty()) {
      return Invalid("nodes[", i, "] (", Printable(message_.nodes(i).op()),
                     ") has no name; every node needs one");
    }
    RETURN_IF_ERROR(CheckName("node", name, limits_));
    if (!positions_.emplace(name, i).second) {
      return Invalid("node ", Quoted(name), " is there twice, as nodes[", positions_[name],
                     "] and nodes[", i, "]; names must be unique");
    }
    RETURN_IF_ERROR(ReadOp(i));
  }
  return absl::OkStatus();
}

absl::Status Importer::NoSuchNode(std::string_view what, const std::string& name) const {
  std::vector<std::string_view> names;
  for (const v1::GraphNode& node : message_.nodes()) names.push_back(node.name());
  return Invalid(what, " is ", Quoted(name), ", but the graph has no node of that name",
                 DidYouMean(name, names));
}

absl::Status Importer::ResolveOperands() {
  operands_.resize(message_.nodes_size());
  for (int i = 0; i < message_.nodes_size(); ++i) {
    const v1::GraphNode& node = message_.nodes(i);
    const OpRow& row = OpInfo(ops_[i]);
    if (node.inputs_size() < row.min_inputs || node.inputs_size() > row.max_inputs) {
      return Invalid(Describe(i), "has ", node.inputs_size(), " operands; ", row.name, " takes ",
                     row.min_inputs,
                     row.min_inputs == row.max_inputs ? "" : Cat(" to ", row.max_inputs));
    }
    for (const std::string& input : node.inputs()) {
      auto it = positions_.find(input);
      if (it == positions_.end()) {
        return Prefixed(Describe(i), NoSuchNode(Cat("operand ", operands_[i].size()), input));
      }
      operands_[i].push_back(it->second);
    }
  }
  return absl::OkStatus();
}

// Takes, among the nodes whose operands are placed, the first in the message.
absl::Status Importer::Sort() {
  const int count = message_.nodes_size();
  std::vector<int> missing(count, 0);  // operands not yet placed
  std::vector<std::vector<int>> users(count);
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  for (int i = 0; i < count; ++i) {
    missing[i] = static_cast<int>(operands_[i].size());
    for (int operand : operands_[i]) users[operand].push_back(i);
    if (missing[i] == 0) ready.push(i);
  }
  while (!ready.empty()) {
    const int next = ready.top();
    ready.pop();
    order_.push_back(next);
    for (int user : users[next]) {
      if (--missing[user] == 0) ready.push(user);
    }
  }
  return static_cast<int>(order_.size()) == count ? absl::OkStatus() : Cycle(missing);
}

// Every node that is not placed has an operand that is not placed. Following these operands must
// therefore close a cycle.
absl::Status Importer::Cycle(const std::vector<int>& missing) const {
  std::vector<int> visited_at(missing.size(), -1);
  std::vector<int> path;
  const auto is_stuck = [&](int i) { return missing[i] > 0; };
  int at = static_cast<int>(
      std::find_if(missing.begin(), missing.end(), [](int n) { return n > 0; }) - missing.begin());
  while (visited_at[at] < 0) {
    visited_at[at] = static_cast<int>(path.size());
    path.push_back(at);
    at = *std::find_if(operands_[at].begin(), operands_[at].end(), is_stuck);
  }
  std::vector<int> cycle(path.begin() + visited_at[at], path.end());
  std::reverse(cycle.begin(), cycle.end());
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
  std::string text;
  for (size_t i = 0; i < cycle.size() && i < kShownCycle; ++i) {
    text += Cat(Quoted(message_.nodes(cycle[i]).name()), " -> ");
  }
  if (cycle.size() > kShownCycle) text += Cat("... (", cycle.size(), " nodes) -> ");
  return Invalid("the graph has a cycle: ", text, Quoted(message_.nodes(cycle[0]).name()),
                 "; a graph must be acyclic");
}

absl::StatusOr<TensorType> Importer::ReadType(const v1::GraphNode& node) const {
  ASSIGN_OR_RETURN(DType dtype, DTypeFromProto("dtype", node.dtype()));
  ASSIGN_OR_RETURN(Shape shape, ShapeFromProto("shape", node.shape(), message_limits_));
  return TensorType{dtype, std::move(shape)};
}

absl::StatusOr<Node> Importer::ReadDeclared(const v1::GraphNode& node, Op op,
                                            const NodeChecker& checker) {
  if (!node.has_type()) return Invalid("has no type; set dtype, shape and has_type");
  ASSIGN_OR_RETURN(Attrs attrs, ReadAttrs(node, OpInfo(op)));
  ASSIGN_OR_RETURN(TensorType type, ReadType(node));
  if (IsInput(op) && DatatypeOf(type.dtype) == nullptr) {
    return Unimplemented("an input of dtype ", DTypeName(type.dtype),
                         " cannot be sent in a "
                         "request; declare it u8 and Bitcast it to ",
                         DTypeName(type.dtype));
  }
  if (IsParameter(op)) {
    if (node.content_hash().size() != kHashBytes) {
      return Invalid("content_hash has ", node.content_hash().size(), " bytes; it must be the ",
                     kHashBytes, " bytes of the parameter's SHA-256");
    }
    hashes_.push_back(node.content_hash());
    if (attrs.contains(kMagnitude)) {
      return Invalid("has attribute ", kMagnitude,
                     ", which is found from the contents and not stated; leave it out");
    }
  }
  RETURN_IF_ERROR(checker.CheckDeclared(op, type, attrs));
  if (IsInput(op)) {
    RETURN_IF_ERROR(CheckElement(node.element(), type.dtype));
    input_elements_.push_back(node.element());
  }
  return Node{op, {}, std::move(attrs), std::move(type), node.name()};
}

absl::StatusOr<Attrs> Importer::ReadAttrs(const v1::GraphNode& node, const OpRow& row) const {
  // The message's map has no order of its own. Visiting the names in order makes errors
  // deterministic.
  std::vector<const std::string*> given;
  for (const auto& [name, value] : node.attrs()) given.push_back(&name);
  std::sort(given.begin(), given.end(), [](const auto* a, const auto* b) { return *a < *b; });
  Attrs attrs;
  for (const std::string* name : given) {
    auto spec = std::find_if(row.attrs.begin(), row.attrs.end(),
                             [&](const AttrSpec& candidate) { return candidate.name == *name; });
    if (spec == row.attrs.end()) {
      std::vector<std::string_view> known;
      for (const AttrSpec& attr : row.attrs) known.push_back(attr.name);
      return Invalid(row.name, " has no attribute ", Quoted(*name), "; it takes ",
                     known.empty() ? std::string("none") : JoinNames(known));
    }
    ASSIGN_OR_RETURN(AttrValue value,
                     AttrFromProto(*name, spec->type, node.attrs().at(*name), message_limits_));
    attrs.emplace(*name, std::move(value));
  }
  return attrs;
}

absl::Status Importer::CheckStatedType(const v1::GraphNode& node,
                                       const TensorType& inferred) const {
  if (!node.has_type()) return absl::OkStatus();
  ASSIGN_OR_RETURN(TensorType stated, ReadType(node));
  bool equal = stated.dtype == inferred.dtype && stated.shape.size() == inferred.shape.size();
  for (size_t i = 0; equal && i < inferred.shape.size(); ++i) {
    equal = stated.shape[i] == inferred.shape[i] ||
            bounds_.ProvablyEqual(stated.shape[i], inferred.shape[i]);
  }
  if (equal) return absl::OkStatus();
  return Invalid("is stated to be ", TypeToString(stated),
                 ", but its operands and attributes give ", TypeToString(inferred));
}

absl::StatusOr<Node> Importer::ReadInferred(int position, Op op, const NodeChecker& checker) const {
  const v1::GraphNode& node = message_.nodes(position);
  ASSIGN_OR_RETURN(Attrs attrs, ReadAttrs(node, OpInfo(op)));
  std::vector<NodeId> inputs;
  std::vector<TensorType> types;
  for (int operand : operands_[position]) {
    inputs.push_back(ids_[operand]);
    types.push_back(graph_.nodes[inputs.back()].type);
  }
  ASSIGN_OR_RETURN(TensorType type, checker.Infer(op, types, attrs));
  RETURN_IF_ERROR(CheckStatedType(node, type));
  return Node{op, std::move(inputs), std::move(attrs), std::move(type), node.name()};
}

absl::Status Importer::AddNodes() {
  bounds_ = graph_.DimBounds();
  const NodeChecker checker(graph_.dims, bounds_, limits_);
  ids_.resize(message_.nodes_size(), -1);
  graph_.nodes.reserve(message_.nodes_size());
  for (int position : order_) {
    const Op op = ops_[position];
    const v1::GraphNode& message = message_.nodes(position);
    if (!IsParameter(op) && !message.content_hash().empty()) {
      return Invalid(Describe(position), "has a content_hash; only a Parameter has one");
    }
    if (!IsInput(op) && !message.element().empty()) {
      return Invalid(Describe(position), "has an element; only an Input and an output have one");
    }
    absl::StatusOr<Node> node =
        IsDeclared(op) ? ReadDeclared(message, op, checker) : ReadInferred(position, op, checker);
    if (!node.ok()) return Prefixed(Describe(position), node.status());
    ids_[position] = static_cast<NodeId>(graph_.nodes.size());
    graph_.nodes.push_back(*std::move(node));
  }
  return absl::OkStatus();
}

absl::Status Importer::AddOutputs() {
  for (const v1::GraphOutput& output : message_.outputs()) {
    RETURN_IF_ERROR(CheckName("output", output.name(), limits_));
    const std::string what = Cat("output ", Quoted(output.name()));
    auto it = positions_.find(output.node());
    if (it == positions_.end()) return NoSuchNode(what, output.node());
    const NodeId id = ids_[it->second];
    const DType dtype = graph_.node(id).type.dtype;
    if (DatatypeOf(dtype) == nullptr) {
      return Unimplemented(what, " has dtype ", DTypeName(dtype),
                           ", which cannot be sent in a "
                           "reply; Bitcast it to u8 or Cast it to f16");
    }
    if (absl::Status s = CheckElement(output.element(), dtype); !s.ok()) {
      return Prefixed(Cat(what, ": "), s);
    }
    graph_.outputs.push_back({output.name(), id});
    output_elements_.push_back(output.element());
  }
  return absl::OkStatus();
}

absl::Status Importer::AddUpdates() {
  for (const std::string& update : message_.updates()) {
    const std::string what = Cat("update ", Quoted(update));
    if (maker_ == GraphMaker::kUser) {
      return Unimplemented(what, ": an uploaded graph has no states; those of checkpoints do");
    }
    auto it = positions_.find(update);
    if (it == positions_.end()) return NoSuchNode(what, update);
    graph_.updates.push_back(ids_[it->second]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImportedGraph> ImportGraph(const v1::Graph& message, const GraphLimits& limits,
                                          int max_nesting, GraphMaker maker) {
  absl::StatusOr<ImportedGraph> imported = Importer(message, {limits, max_nesting}, maker).Run();
  if (!imported.ok()) return Shortened(imported.status());
  return imported;
}

absl::StatusOr<ImportedGraph> ImportGraph(std::string_view bytes, const GraphLimits& limits,
                                          int max_nesting, GraphMaker maker) {
  v1::Graph message;
  RETURN_IF_ERROR(ParseMessage(bytes, &message));
  return ImportGraph(message, limits, max_nesting, maker);
}

absl::StatusOr<Graph> GraphFromProto(const v1::Graph& message, const GraphLimits& limits) {
  ASSIGN_OR_RETURN(ImportedGraph imported, ImportGraph(message, limits));
  return std::move(imported.graph);
}

}  // namespace athanor
