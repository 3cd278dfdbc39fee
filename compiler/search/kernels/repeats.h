// Which values their readers would compute over and over, were they computed where they are read.
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

// A rule of thumb over the largest sizes. The graph is not owned.
class Repeats {
 public:
  explicit Repeats(const Graph& graph);

  // Whether memory of its own spares more than it costs. Two kinds of values do: what overlapping
  // windows or a Gather's repeated positions read, if anything is computed on the way; and dear
  // functions of the place alone, as a Resize's positions are, that all rows share. Asked of users
  // first; `has_memory` says it of them.
  bool Pay(NodeId n, absl::Span<const NodeId> users, const std::vector<bool>& has_memory);

  // Whether `n` is as cheap to compute in each kernel that reads it as to load: a condition or
  // number that is the same along its last axis, of the place alone, as the pieces of a Concat are
  // told apart by.
  bool IsRowsPlace(NodeId n) const { return rows_place_[n]; }

 private:
  double Elements(NodeId n);
  bool IsWindow(NodeId user, NodeId n);

  const Graph& graph_;
  const Bounds bounds_;
  std::vector<double> elements_;    // at the largest sizes; negative until asked for
  std::vector<double> place_cost_;  // of an element that depends on its place alone; else negative
  std::vector<double> again_;       // how often an element is computed, if where it is read
  std::vector<bool> window_;        // read by windows or a Gather
  std::vector<bool> rows_place_;
};

// Whether one of the values that `node` is computed from is read by windows: a map with a
// coordinate that moves with two axes.
bool ReadsWindows(const Graph& graph, const Node& node);

// Whether a reduction is over so few elements, of windows or of a short last axis, that its lanes
// are better used by its results.
bool IsShortReduction(const Graph& graph, const Node& node);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_REPEATS_H_
