// Cuts a graph into regions of at most a few hundred nodes, so that each is rewritten by itself and
// equal ones, as the layers of a transformer, only once.
//
//   Regions regions = CutRegions(graph);
//   regions.distinct[0].graph;        // a graph of its own: what crosses into it is an input "x0",
//                                     // "x1", ..., or a parameter "p0", ... where it is a weight;
//                                     // what leaves it an output "y0", "y1", ...
//   Graph same = *Stitch(graph, regions, {&other, ...});   // one graph for each distinct region
//
// Regions are intervals of one topological order: depth first from the outputs, those of least
// depth first, so that what hangs on an inner value comes right after it. Intervals of an order are
// convex, and regions in their order need only what came before. Literals, iotas and views of
// leaves belong to no region: each that uses one has a copy of its own, and Stitch merges equal
// ones again.
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

// What equal parts of the graph have in common.
struct Region {
  Graph graph;  // with the dims of the graph that it was cut from; passes Verify
  // Of the canonical graph, in which weights have their magnitudes, and the dims it uses.
  std::string key;
  int instances = 0;
  int nodes = 0;  // of one instance, copies not counted
};

struct RegionInstance {
  int region;                      // in Regions::distinct
  std::vector<NodeId> nodes;       // of the graph that was cut, in order
  std::vector<NodeId> inputs;      // bound to the region graph's Inputs in their order
  std::vector<NodeId> parameters;  // likewise
  std::vector<NodeId> results;     // what the region graph's outputs are
};

struct Regions {
  std::vector<Region> distinct;           // in the order of their first instances
  std::vector<RegionInstance> instances;  // each uses results of earlier ones only
};

// REQUIRES: Verify(graph).ok(). Nodes that no output needs are in no region.
Regions CutRegions(const Graph& graph, const CutOptions& options = {});

// As `regions`, but each instance of `first` that an instance of `second` follows is one region
// with it. With `first` == `second` every other one is joined to the next. REQUIRES: `regions` was
// cut from `graph`.
Regions JoinRegions(const Graph& graph, const Regions& regions, int first, int second);

// `graph` with forms[i] in the place of every instance of regions.distinct[i]: equal nodes merged,
// dims, inputs, parameters and outputs as they were. INVALID_ARGUMENT names the form that has other
// inputs, parameters, outputs or types than its region's graph; its dims are those of the graph.
absl::StatusOr<Graph> Stitch(const Graph& graph, const Regions& regions,
                             absl::Span<const Graph* const> forms);

// Likewise, with a graph for each of regions.instances. `places`, if given, receives for each
// instance what the nodes of its form became; -1 for those that no output needs.
absl::StatusOr<Graph> StitchInstances(const Graph& graph, const Regions& regions,
                                      absl::Span<const Graph* const> forms,
                                      std::vector<std::vector<NodeId>>* places = nullptr);

// Canonicalize, but dims and the names of inputs, parameters and outputs are those of `like`, which
// has as many of each. `moved` as that of Canonicalize (canonical.h).
Graph CanonicalizeLike(const Graph& graph, const Graph& like, std::vector<NodeId>* moved = nullptr);

// Places of StitchInstances in the graph that its result was moved to.
void MovePlaces(const std::vector<NodeId>& moved, std::vector<std::vector<NodeId>>* places);

// Other expressions in the place of dims, all at once, wherever nodes have them; graph->dims stay.
void SubstituteDims(const std::map<std::string, Expr, std::less<>>& values, Graph* graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_H_
