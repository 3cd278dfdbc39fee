// A graph: what the user sends, after validation. Nodes are stored in topological order, operands
// by index; each node has one result.
//
//   Graph g;  g.dims = {{"b", 1, 64}};
//   GraphBuilder b(&g);
//   NodeId x = b.Input("x", {DType::kF32, {Expr::Symbol("b"), 64}}).value();
//   NodeId y = b.Add(Op::kExp, {x}).value();
//   b.Output("y", y);
//
// Plain data, copied freely; a graph that Verify() accepts is safe for every later stage.
#ifndef ATHANOR_COMPILER_IR_GRAPH_GRAPH_H_
#define ATHANOR_COMPILER_IR_GRAPH_GRAPH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/op.h"

namespace athanor {

using NodeId = int32_t;

// A named symbolic size with inclusive bounds, 0 <= min <= max.
struct Dim {
  std::string name;
  int64_t min = 1;
  int64_t max = 1;
  bool operator==(const Dim&) const = default;
};

struct Node {
  Op op = Op::kInput;
  std::vector<NodeId> inputs;
  Attrs attrs;
  TensorType type;
  std::string
      name;  // the user's name; unique and required for Input and Parameter, else may be empty
};

struct Output {
  std::string name;
  NodeId node = -1;
};

struct Graph {
  std::string name;
  std::vector<Dim> dims;
  std::vector<Node> nodes;
  std::vector<Output> outputs;

  const Node& node(NodeId id) const { return nodes[id]; }
  std::vector<NodeId> InputIds() const;      // nodes with Op::kInput, in order
  std::vector<NodeId> ParameterIds() const;  // nodes with Op::kParameter, in order
  Bounds DimBounds() const;
  // How a message names a node: `"logits" (Add)`, or `%7 (Add)` without a name.
  std::string Describe(NodeId id) const;
};

// Limits on what a graph from outside may hold.
struct GraphLimits {
  int64_t max_nodes = 100'000;
  int max_rank = 16;
  int64_t max_dims = 64;
  int64_t max_tensor_bytes = int64_t{1} << 40;
  int64_t max_name_bytes = 1024;
  int64_t max_attr_bytes = 64 << 20;  // one attribute, such as a literal
  int64_t max_expr_size = 256;        // terms, atoms and arguments of one expression
  int max_bodies = 4;                 // graphs inside graphs
};

// Adds nodes with inferred types; every Add validates attributes and operands against the op table.
// The error names the node. Does not own the graph.
class GraphBuilder {
 public:
  // The graph's dims are complete; it may already hold nodes.
  explicit GraphBuilder(Graph* graph, const GraphLimits& limits = {});

  // `value`: the only contents it takes (input_value.h).
  absl::StatusOr<NodeId> Input(std::string name, TensorType type,
                               std::optional<Tensor> value = std::nullopt);
  absl::StatusOr<NodeId> Parameter(std::string name, TensorType type);
  absl::StatusOr<NodeId> Constant(Tensor value);
  absl::StatusOr<NodeId> Add(Op op, std::vector<NodeId> inputs, Attrs attrs = {},
                             std::string name = "");
  void Output(std::string name, NodeId node) { graph_->outputs.push_back({std::move(name), node}); }

 private:
  absl::StatusOr<NodeId> AddDeclared(Op op, std::string name, TensorType type, Attrs attrs);
  absl::Status CheckNew(Op op, const std::string& name) const;
  NodeId Append(Node node);

  Graph* graph_;
  Bounds bounds_;
  GraphLimits limits_;
  absl::flat_hash_set<std::string> names_;  // of the graph's nodes
};

// Everything later stages rely on: topological order, arity, attributes of the right type, inferred
// types equal to stored ones, unique names, dims declared once with sane bounds, every size
// provably non-negative with a byte count inside int64 over the whole dim box, parameters of
// constant shape, outputs present. Safe on malformed graphs from anywhere; INVALID_ARGUMENT, or
// UNIMPLEMENTED for an op that does not take a dtype.
absl::Status Verify(const Graph& graph, const GraphLimits& limits = {});
// What an uploaded graph needs beyond Verify: every dim it uses follows from the inputs' shapes.
absl::Status VerifyBindable(const Graph& graph);

// Names and ids dropped, nodes no output needs dropped, equal nodes merged, defaults of attributes
// written out, Contract letters renamed in order of appearance, dims renamed d0, d1, ... in an
// order free of their names, unused dims dropped, nodes ordered by depth-first search from the
// outputs. Inputs and parameters come first, keep their relative order and are never dropped or
// merged. `dim_names`, if given, receives the former names of d0, d1, ... REQUIRES:
// Verify(graph).ok().
Graph Canonicalize(const Graph& graph, std::vector<std::string>* dim_names = nullptr);
// SHA-256 as 64 hex digits over the canonical form; dim bounds are not in it (DESIGN §6.1).
std::string CanonicalHash(const Graph& graph);

// The text form; ParseGraph reads what ToText prints.
std::string ToText(const Graph& graph);
absl::StatusOr<Graph> ParseGraph(std::string_view text, const GraphLimits& limits = {});

// The reference evaluator: `inputs` are the Inputs in order, then the Parameters in order. Sizes of
// dims are found from the inputs; a shape or dtype that does not fit is INVALID_ARGUMENT.
// Graphs cut out of others may have dims that no input tells: `dims` gives all of them then.
absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, absl::Span<const Tensor> inputs,
                                             const Expr::Env* dims = nullptr);
// As Evaluate, but returns every node's value (taps, kernel checks).
absl::StatusOr<std::vector<Tensor>> EvaluateAll(const Graph& graph, absl::Span<const Tensor> inputs,
                                                const Expr::Env* dims = nullptr);
// The sizes of a shape at these dims; INVALID_ARGUMENT names an axis that has none or a negative
// one.
absl::StatusOr<std::vector<int64_t>> ConcreteShape(const Shape& shape, const Expr::Env& dims);
// Solves dims from concrete input shapes; names the input and axis that does not fit.
// `shapes` are the inputs', or the inputs' and then the parameters'.
absl::StatusOr<Expr::Env> BindDims(const Graph& graph,
                                   absl::Span<const std::vector<int64_t>> shapes);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_GRAPH_H_
