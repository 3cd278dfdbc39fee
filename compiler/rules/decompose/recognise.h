// Recognition rows: what a user wrote in primitives, found again as the op it is, so that it gets
// the same kernels as the same graph written in composites.
//
//   absl::StatusOr<Graph> g = Recognise(Canonicalize(graph));
//
// Rows are exact: the recognised op has the same value by the op table. A row looks at a graph and
// says what one node is; the pass below applies all rows, and the e-graph takes the same rows as
// rewrites. Pure functions, thread-safe.
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

// A graph to look at, with what rows ask of it. Does not own the graph.
struct RecognitionSite {
  explicit RecognitionSite(const Graph& g);

  const Graph& graph;
  Bounds bounds;                           // of the dims
  std::vector<std::vector<NodeId>> users;  // that some output needs
  std::vector<bool> is_output;

  const Node& node(NodeId n) const { return graph.nodes[n]; }
};

// A node, read through a view where there is one.
struct RecognisedOperand {
  NodeId node = -1;
  std::optional<IndexMap> view;
};

// What a node is: `view` of `op` of the operands.
struct Recognised {
  Op op = Op::kContract;
  std::vector<RecognisedOperand> operands;
  Attrs attrs;
  std::optional<IndexMap> view;
};

struct RecognitionRow {
  std::string_view name;
  std::string_view algebra;  // what the row says, for people
  std::optional<Recognised> (*match)(const RecognitionSite& site, NodeId n);
  void (*example)(ExampleBuilder& e);  // a small graph in which it finds something
};

// In the order they are applied: later rows build on what earlier ones found.
absl::Span<const RecognitionRow> RecognitionRows();

// What a row did to a graph.
struct Recognition {
  std::vector<NodeId> at;     // by node of the graph: the node of the result that is equal to it
  std::vector<NodeId> found;  // the nodes that the row matched
};
absl::StatusOr<Graph> ApplyRecognition(const Graph& graph, const RecognitionRow& row,
                                       Recognition* recognition = nullptr);
// All rows.
absl::StatusOr<Graph> Recognise(const Graph& graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_H_
