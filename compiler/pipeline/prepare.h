// Turns a user's graph into the one that the search chooses from: composites without kernels are
// decomposed, composites in primitives recognised, and the form is canonical.
//
//   Prepared prepared = Prepare(graph).value();
//   // prepared.graph.dims are d0, d1, ...; prepared.dim_names what the user calls them
#ifndef ATHANOR_COMPILER_PIPELINE_PREPARE_H_
#define ATHANOR_COMPILER_PIPELINE_PREPARE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/rows/paged_sizes.h"

namespace athanor {

struct Prepared {
  // inputs, parameters, states and outputs keep the user's names
  Graph graph;
  std::vector<std::string> dim_names;  // the user's, in the order of graph.dims
};

// `plain`: every op as primitives or a contraction, as it is written. Nothing is recognised, and
// views stay as they are. `paged`: the target has a kernel of PagedAttention, for the
// nodes that it fits. UNIMPLEMENTED names a loop that reads a whole state.
absl::StatusOr<Prepared> Prepare(const Graph& graph, bool plain = false, bool paged = true);

// Returns the sizes of calls of `graph` as dims of its prepared form name them.
std::optional<PagedSizes> PagedSizesOf(const Graph& graph, const Prepared& prepared);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_PREPARE_H_
