// A graph: the user's graph after validation. Nodes are stored in topological order and name
// operands by index; each node has one result.
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
  // Unique and required for Input, Parameter and StateRead, otherwise may be empty.
  std::string name;
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
  // StateWrites: roots as outputs are. Each StateWrite of the graph is one of them, once.
  std::vector<NodeId> updates;

  const Node& node(NodeId id) const { return nodes[id]; }
  std::vector<NodeId> InputIds() const;      // nodes with Op::kInput, in order
  std::vector<NodeId> ParameterIds() const;  // nodes with Op::kParameter, in order
  std::vector<NodeId> StateIds() const;      // nodes with Op::kStateRead, in order
  // Nodes whose bytes come from outside: inputs, then parameters, then states.
  std::vector<NodeId> ArgumentIds() const;
  Bounds DimBounds() const;
  // Returns the node's name for messages: `"logits" (Add)`, or `%7 (Add)` without a name.
  std::string Describe(NodeId id) const;
};

// Limits on a graph from outside.
struct GraphLimits {
  int64_t max_nodes = 100'000;
  int max_rank = 16;
  int64_t max_dims = 64;
  int64_t max_tensor_bytes = int64_t{1} << 40;
  int64_t max_name_bytes = 1024;
  int64_t max_attr_bytes = 64 << 20;  // one attribute, such as a literal
  int64_t max_expr_size = 256;        // terms, atoms and arguments of one expression
  int max_bodies = 4;                 // nesting depth of graphs inside graphs
};

// Adds nodes with inferred types. Every Add validates attributes and operands against the op table;
// an error names the node. Does not own the graph.
class GraphBuilder {
 public:
  // REQUIRES: the graph's dims are complete. It may already hold nodes.
  explicit GraphBuilder(Graph* graph, const GraphLimits& limits = {});

  // `value`, if given, is the only contents the input accepts (input_value.h).
  absl::StatusOr<NodeId> Input(std::string name, TensorType type,
                               std::optional<Tensor> value = std::nullopt);
  absl::StatusOr<NodeId> Parameter(std::string name, TensorType type);
  // `role` is "keys", "values" or "" (ops/states.cc).
  absl::StatusOr<NodeId> State(std::string name, TensorType type, std::string role = "");
  // Adds a StateWrite, and makes it an update.
  absl::StatusOr<NodeId> Write(NodeId state, NodeId index, NodeId update);
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
  absl::flat_hash_set<std::string> names_;  // names of the graph's nodes
};

// Checks everything that later stages rely on: topological order, arity, attributes of the right
// type, inferred types equal to stored ones, unique names, dims declared once with sane bounds,
// every size provably non-negative with a byte count inside int64 over the whole dim box,
// parameters of constant shape, outputs present; each StateWrite an update, of a StateRead that
// nothing else reads. Safe on malformed graphs from anywhere. Returns INVALID_ARGUMENT, or
// UNIMPLEMENTED for an op that does not take a dtype.
absl::Status Verify(const Graph& graph, const GraphLimits& limits = {});
// Checks what an uploaded graph needs beyond Verify: every dim it uses follows from the shapes of
// the inputs and states.
absl::Status VerifyBindable(const Graph& graph);

// Returns the graph's canonical form:
// - names and ids are dropped, and so are nodes and dims that no output or update needs;
// - equal nodes are merged;
// - defaults of attributes are written out, Contract letters renamed in order of appearance;
// - dims are renamed d0, d1, ... in an order that does not depend on their names;
// - nodes are ordered by depth-first search from the outputs, then the updates, which are ordered
// as their states are; inputs, parameters and states come first, keep their relative order and are
// never dropped or merged.
// `dim_names`, if given, receives the former names of d0, d1, ... REQUIRES: Verify(graph).ok().
Graph Canonicalize(const Graph& graph, std::vector<std::string>* dim_names = nullptr);
// Returns the SHA-256 of the canonical form as 64 hex digits; dim bounds are not hashed (DESIGN
// §6.1).
std::string CanonicalHash(const Graph& graph);

// Prints and parses the text form; ParseGraph reads what ToText prints.
std::string ToText(const Graph& graph);
absl::StatusOr<Graph> ParseGraph(std::string_view text, const GraphLimits& limits = {});

// Runs the reference evaluator. `inputs` are those of graph.ArgumentIds(). Returns the outputs,
// then each state as it is left. The sizes of dims are solved from the inputs; a shape or dtype
// that does not fit is INVALID_ARGUMENT. A graph cut out of another may have dims that no input
// determines: `dims` then gives all of them.
absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, absl::Span<const Tensor> inputs,
                                             const Expr::Env* dims = nullptr);
// Same as Evaluate, but returns every node's value (for taps and kernel checks).
absl::StatusOr<std::vector<Tensor>> EvaluateAll(const Graph& graph, absl::Span<const Tensor> inputs,
                                                const Expr::Env* dims = nullptr);
// Returns the sizes of a shape at these dims. INVALID_ARGUMENT names an axis whose size has no
// value or is negative.
absl::StatusOr<std::vector<int64_t>> ConcreteShape(const Shape& shape, const Expr::Env& dims);
// Solves dims from concrete input shapes. An error names the input and axis that does not fit.
// `shapes` are those of the inputs, optionally followed by those of the parameters and then of the
// states.
absl::StatusOr<Expr::Env> BindDims(const Graph& graph,
                                   absl::Span<const std::vector<int64_t>> shapes);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_GRAPH_H_
