// Recognition rows find ops that a user wrote in primitives, so that the graph gets the same
// kernels as one written with composites.
//
//   absl::StatusOr<Graph> g = Recognise(Canonicalize(graph));
//
// Rows are exact: the recognised op has the same value by the op table. A row is a function from a
// node of a graph to the op that it is. The pass below applies all rows, and the e-graph uses the
// same rows as rewrites. Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

class ExampleBuilder;

// A graph, with the facts about it that rows use. Does not own the graph.
struct RecognitionSite {
  explicit RecognitionSite(const Graph& g);

  const Graph& graph;
  Bounds bounds;                           // bounds of the dims
  std::vector<std::vector<NodeId>> users;  // by node: its users, among the nodes that outputs need
  std::vector<bool> is_output;             // by node: it is an output or an update

  const Node& node(NodeId n) const { return graph.nodes[n]; }
};

// A node, optionally read through a view.
struct RecognisedOperand {
  NodeId node = -1;
  std::optional<IndexMap> view;
};

// The op that a node is: `view` of `op` of the operands.
struct Recognised {
  Op op = Op::kContract;
  std::vector<RecognisedOperand> operands;
  Attrs attrs;
  std::optional<IndexMap> view;
};

struct RecognitionRow {
  std::string_view name;
  std::string_view algebra;  // the row's equation, for people
  std::optional<Recognised> (*match)(const RecognitionSite& site, NodeId n);
  void (*example)(ExampleBuilder& e);  // builds a small graph in which the row matches
};

// In the order of application: later rows build on matches of earlier ones.
absl::Span<const RecognitionRow> RecognitionRows();

// The effect of a row on a graph.
struct Recognition {
  std::vector<NodeId> at;     // by node of the graph: the equal node of the result
  std::vector<NodeId> found;  // the nodes that the row matched
};
absl::StatusOr<Graph> ApplyRecognition(const Graph& graph, const RecognitionRow& row,
                                       Recognition* recognition = nullptr);
// Applies all rows.
absl::StatusOr<Graph> Recognise(const Graph& graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_H_
