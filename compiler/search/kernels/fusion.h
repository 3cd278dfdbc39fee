// Decides which values get memory and which are computed inside the kernels that use them. By
// default, in the baseline, every node is computed where it is used, unless that would repeat real
// work or cannot be expressed as one kernel. The search overrides this for single nodes.
//
//   Genome baseline = ChooseKernels(graph, target);
//   Genome other = ChooseKernels(graph, target, {.nodes = {{7, Fuse::kMemory}}});
//   PackWeights(&graph, &other, target);   // then codegen can lower it
//
// Nodes that cannot be one kernel are never fused, whatever is asked for, so every genome is
// possible by construction. Pure functions; thread-safe except for the memo.
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

// Lowering recurses through a kernel's nodes, and Clang's time grows with them.
inline constexpr int kMaxKernelNodes = 200;

enum class Fuse : uint8_t {
  kMemory,  // computed once, by a kernel of its own
  kInline,  // computed in every kernel that uses it
};

// Fusions that are allowed at all. Movement is always computed where it is read.
struct FusionRules {
  bool producers = true;   // of a value into the one kernel that uses it
  bool reductions = true;  // of a reduction into one kernel with its operands and its users
  bool epilogues = true;  // of the users of a contraction or attention, before it writes its result
  bool again = true;      // of a cheap value into each of several kernels that use it
  bool tiles = true;      // contractions by register tiles; else element by element
  // CPUs: panels of a weight are as wide as it alone says (SharedPanel), so that plans for other
  // sizes share one copy of it; else as wide as tiles.
  bool one_panel = false;

  bool operator==(const FusionRules&) const = default;
};

struct Fusion {
  std::map<NodeId, Fuse> nodes;  // others are decided by rule of thumb
  FusionRules rules;

  bool operator==(const Fusion&) const = default;
};

// Results of ChooseKernels for parts of graphs, keyed by their structure: equal layers, and parts
// that several forms of a graph share, are analysed once. Valid for graphs with the same dims and
// one target.
struct FusionMemo {
  // Result for a reduction inside a kernel: it is needed once per row of the root (`row`), or once
  // per element (`same`).
  struct Reduction {
    bool row = false, same = false;
  };
  absl::flat_hash_map<std::string, Reduction> reductions;
  absl::flat_hash_map<std::string, bool> epilogues, divisions;
  absl::flat_hash_map<std::string, std::optional<ContractSchedule>> contracts;
};
// A memo, and a number for each of the graph's nodes that is equal where op, attributes and type
// are (TaskIndex).
struct FusionKnowledge {
  FusionMemo* memo;
  const std::vector<int>* kinds;
};

// Returns the genome of `graph`. REQUIRES: no composites but Contract, Attention (with constant
// head sizes) and EmbeddingBag.
Genome ChooseKernels(const Graph& graph, const v1::Target& target, const Fusion& fusion = {},
                     std::optional<FusionKnowledge> known = std::nullopt);

// Returns the nodes for which the search may decide otherwise than `genome`, each with that other
// decision; only those that the rules allow.
std::vector<std::pair<NodeId, Fuse>> FusionFlips(const Graph& graph, const Genome& genome,
                                                 const FusionRules& rules = {});

// Reports by node whether it depends on parameters and constants only and its shape on no dim.
// Never true for loops: `prepare` has none.
std::vector<bool> WeightsOf(const Graph& graph);

// Adds to the graph the packed layouts that contractions read (kAhead), equal ones once, and to the
// genome the kernels that compute them, before the first kernel that reads them. Removes kernels of
// weights that only packs read, such as casts and dequantisation of what is stored: the packs
// compute them, so that no copy but the packed one is made. A kernel of weights also computes what
// it alone reads element by element, such as a scale made of bytes. Without a pack, nothing is
// removed or computed elsewhere.
void PackWeights(Graph* graph, Genome* genome, const v1::Target& target);

// Returns MemoryOf(graph, genome) as a kernel sees it that reads packed panels, of whose column
// operand it computes nothing: what PackWeights left to the packs counts as memory.
std::vector<bool> MemoryBehindPanels(const Graph& graph, const Genome& genome);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_FUSION_H_
