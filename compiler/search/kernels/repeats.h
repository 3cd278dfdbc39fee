// Finds values that their readers would compute over and over if they were computed where they are
// read.
//
//   Repeats repeats(graph);
//   for (NodeId n = last; n >= 0; --n) {
//     if (repeats.Pay(n, users[n], has_memory)) has_memory[n] = true;
//   }
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_REPEATS_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_REPEATS_H_

#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// Decides by rule of thumb over the largest sizes. Borrows the graph.
class Repeats {
 public:
  explicit Repeats(const Graph& graph);

  // Reports whether memory for `n` saves more than it costs. Two kinds of values qualify: those
  // that overlapping windows or a Gather's repeated positions read, if they are computed at all;
  // and expensive functions of the position alone, such as a Resize's positions, which all rows
  // share. Must be called for the users of `n` first; `has_memory` tells the answer for them.
  bool Pay(NodeId n, absl::Span<const NodeId> users, const std::vector<bool>& has_memory);

  // Reports whether `n` is as cheap to compute in each kernel that reads it as to load: a condition
  // or number that depends on the position alone and is the same along the last axis, such as the
  // conditions that tell the pieces of a Concat apart.
  bool IsRowsPlace(NodeId n) const { return rows_place_[n]; }

 private:
  double Elements(NodeId n);
  bool IsWindow(NodeId user, NodeId n);

  const Graph& graph_;
  const Bounds bounds_;
  std::vector<double> elements_;  // at the largest sizes; negative until computed
  // per element, if it depends on its position alone; else negative
  std::vector<double> place_cost_;
  std::vector<double> again_;  // times an element is computed if it is computed where it is read
  std::vector<bool> window_;   // read through windows or by a Gather
  std::vector<bool> rows_place_;
};

// Reports whether one of the values that `node` is computed from is read by windows: through a map
// with a coordinate that moves with two axes.
bool ReadsWindows(const Graph& graph, const Node& node);

// Reports whether a reduction is over so few elements, of windows or of a short last axis, that the
// lanes are better used by its results.
bool IsShortReduction(const Graph& graph, const Node& node);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_REPEATS_H_
