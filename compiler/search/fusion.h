// Which values get memory and which are computed inside the kernels that use them. Without a say of
// the search every node is computed where it is used unless that would repeat real work or cannot
// be expressed as one kernel: the baseline.
//
//   Genome baseline = ChooseKernels(graph, target);
//   Genome other = ChooseKernels(graph, target, {.nodes = {{7, Fuse::kMemory}}});
//   PackWeights(&graph, &other, target);   // then codegen can lower it
//
// What cannot be one kernel is never fused, whatever is asked for: every genome is possible by
// construction. Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_FUSION_H_
#define ATHANOR_COMPILER_SEARCH_FUSION_H_

#include <map>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/search/schedule.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

enum class Fuse : uint8_t {
  kMemory,  // computed once, by a kernel of its own
  kInline,  // computed in every kernel that uses it
};

// What may be fused at all; movement is always computed where it is read.
struct FusionRules {
  bool producers = true;   // a value that one kernel uses, inside that kernel
  bool reductions = true;  // a reduction, in one kernel with what it reads and what reads it
  bool epilogues = true;   // what follows a contraction or attention, before it writes its result
  bool again = true;       // a cheap value, in each of several kernels that use it

  bool operator==(const FusionRules&) const = default;
};

struct Fusion {
  std::map<NodeId, Fuse> nodes;  // others are decided by rule of thumb
  FusionRules rules;

  bool operator==(const Fusion&) const = default;
};

// `graph` holds no composites but Contract, Attention (with constant head sizes) and EmbeddingBag.
Genome ChooseKernels(const Graph& graph, const v1::Target& target, const Fusion& fusion = {});

// The nodes about which the search may have a say other than the one in `genome`, with that say, as
// far as the rules allow it.
std::vector<std::pair<NodeId, Fuse>> FusionFlips(const Graph& graph, const Genome& genome,
                                                 const FusionRules& rules = {});

// Nodes that depend on parameters and constants only, and whose shape no dim changes.
std::vector<bool> WeightsOf(const Graph& graph);

// Adds the packed layouts that contractions want ahead to the graph, equal ones once, and the
// kernels that compute them in front of the first that reads them.
void PackWeights(Graph* graph, Genome* genome, const v1::Target& target);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_FUSION_H_
