// Which values get memory and which are computed inside the kernels that use them. Without a say of
// the search every node is computed where it is used unless that would repeat real work or cannot
// be expressed as one kernel: the baseline.
//
//   Genome baseline = ChooseKernels(graph, target);
//   Genome other = ChooseKernels(graph, target, {.nodes = {{7, Fuse::kMemory}}});
//   PackWeights(&graph, &other, target);   // then codegen can lower it
//
// What cannot be one kernel is never fused, whatever is asked for: every genome is possible by
// construction. Pure functions, thread-safe but for the memo.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_FUSION_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_FUSION_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/schedule.h"
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
  bool tiles = true;       // a contraction by register tiles; else each of its elements by itself

  bool operator==(const FusionRules&) const = default;
};

struct Fusion {
  std::map<NodeId, Fuse> nodes;  // others are decided by rule of thumb
  FusionRules rules;

  bool operator==(const Fusion&) const = default;
};

// What ChooseKernels found of parts of graphs, by what they look like: equal layers, and what the
// forms of a graph have in common, are looked at once. Of graphs with the same dims and one target.
struct FusionMemo {
  // A reduction inside a kernel: needed once per row of the root, or once per element.
  struct Reduction {
    bool row = false, same = false;
  };
  absl::flat_hash_map<std::string, Reduction> reductions;
  absl::flat_hash_map<std::string, bool> epilogues, divisions;
  absl::flat_hash_map<std::string, std::optional<ContractSchedule>> contracts;
};
// A memo with numbers of the graph's nodes, equal where op, attributes and type are (TaskIndex).
struct FusionKnowledge {
  FusionMemo* memo;
  const std::vector<int>* kinds;
};

// `graph` holds no composites but Contract, Attention (with constant head sizes) and EmbeddingBag.
Genome ChooseKernels(const Graph& graph, const v1::Target& target, const Fusion& fusion = {},
                     std::optional<FusionKnowledge> known = std::nullopt);

// The nodes about which the search may have a say other than the one in `genome`, with that say, as
// far as the rules allow it.
std::vector<std::pair<NodeId, Fuse>> FusionFlips(const Graph& graph, const Genome& genome,
                                                 const FusionRules& rules = {});

// Nodes that depend on parameters and constants only, and whose shape no dim changes; no loops,
// which `prepare` has none of.
std::vector<bool> WeightsOf(const Graph& graph);

// Adds the packed layouts that contractions want ahead to the graph, equal ones once, and the
// kernels that compute them in front of the first that reads them.
void PackWeights(Graph* graph, Genome* genome, const v1::Target& target);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_FUSION_H_
