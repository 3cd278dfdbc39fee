// Cuts a graph into regions of at most a few hundred nodes. Each is rewritten by itself, and equal
// ones, such as the layers of a transformer, only once.
//
//   Regions regions = CutRegions(graph);
//   regions.distinct[0].graph;        // a graph of its own: what crosses into it is an input "x0",
//                                     // "x1", ..., or a parameter "p0", ... where it is a weight;
//                                     // or a state "s0", ... where it is one; what leaves it is
//                                     // an output "y0", "y1", ...; so is each write of a state
//   Graph same = *Stitch(graph, regions, {&other, ...});   // one graph for each distinct region
//
// Regions are intervals of one topological order: depth first from the outputs, outputs of least
// depth first, so that nodes that hang on an inner value come right after it. Intervals of an order
// are convex, and each region needs earlier ones only. Literals, iotas and views of leaves belong
// to no region: each region that uses one has a copy of its own, and Stitch merges equal copies
// again.
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/regions/region_cuts.h"

namespace athanor {

// Properties that equal parts of the graph share.
struct Region {
  Graph graph;  // with the dims of the graph that it was cut from; passes Verify
  // Identifies equal regions: by the canonical graph, in which weights have their magnitudes, and
  // by the dims it uses.
  std::string key;
  int instances = 0;
  int nodes = 0;  // of one instance, without copies
};

struct RegionInstance {
  int region;                      // index in Regions::distinct
  std::vector<NodeId> nodes;       // nodes of the cut graph, in order
  std::vector<NodeId> inputs;      // nodes bound to the region graph's Inputs, in their order
  std::vector<NodeId> parameters;  // likewise, to its Parameters
  std::vector<NodeId> states;   // likewise, to its StateReads: StateReads, and StateWrites outside
  std::vector<NodeId> results;  // nodes that the region graph's outputs compute
};

struct Regions {
  std::vector<Region> distinct;           // in the order of their first instances
  std::vector<RegionInstance> instances;  // each uses results of earlier ones only
};

// Cuts `graph`. Nodes that no output needs are in no region. REQUIRES: Verify(graph).ok().
Regions CutRegions(const Graph& graph, const CutOptions& options = {});

// Returns `regions` with each instance of `first` that is followed by one of `second` joined to it
// as one region. If `first` == `second`, instances are joined in pairs. REQUIRES: `regions` was cut
// from `graph`.
Regions JoinRegions(const Graph& graph, const Regions& regions, int first, int second);

// Returns `graph` with forms[i] in place of every instance of regions.distinct[i]: equal nodes
// merged, dims, inputs, parameters, states, outputs and updates as they were. A form's dims are
// those of the graph. INVALID_ARGUMENT names the form that has other inputs, parameters, states,
// outputs, updates or types than its region's graph.
absl::StatusOr<Graph> Stitch(const Graph& graph, const Regions& regions,
                             absl::Span<const Graph* const> forms);

// Likewise, with a graph for each of regions.instances. `places`, if given, receives for each
// instance what the nodes of its form became; -1 for those that no output needs.
absl::StatusOr<Graph> StitchInstances(const Graph& graph, const Regions& regions,
                                      absl::Span<const Graph* const> forms,
                                      std::vector<std::vector<NodeId>>* places = nullptr);

// Canonicalizes `graph`, but with the dims and the names of inputs, parameters, states and outputs
// of `like`, which has as many of each. `moved` as in Canonicalize (canonical.h).
Graph CanonicalizeLike(const Graph& graph, const Graph& like, std::vector<NodeId>* moved = nullptr);

// Maps the places of StitchInstances to the graph that `moved` leads to.
void MovePlaces(const std::vector<NodeId>& moved, std::vector<std::vector<NodeId>>* places);

// Replaces dims by other expressions, all at once, wherever nodes have them; graph->dims stay.
void SubstituteDims(const std::map<std::string, Expr, std::less<>>& values, Graph* graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_H_
