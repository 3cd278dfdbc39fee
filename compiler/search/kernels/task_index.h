// Finds the task of a kernel without cutting it out, because a search meets the same few tasks in
// thousands of genomes.
//
//   NodeNumbers numbers;                              // of all graphs that are compared
//   TaskIndex index(graph, &numbers);
//   TaskIndex::Found found = index.Find(MemoryOf(graph, genome), genome.kernels[3]);
//   // found.signature: equal where CutTask would give tasks of one key and kind
//
// Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_TASK_INDEX_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_TASK_INDEX_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/schedule.h"

namespace athanor {

// Numbers nodes so that equal ones, in any graph, have the same number.
class NodeNumbers {
 public:
  // Returns the number of the op with its attributes and type; name and operands do not count.
  int OfKind(const Node& node);
  // Returns the number of the value: `kind` and the values of the operands. Inputs and parameters
  // differ by name.
  int OfValue(int kind, const std::string& name, const std::vector<int>& operands);

 private:
  absl::flat_hash_map<std::string, int> kinds_, values_;
};

class TaskIndex {
 public:
  // Borrows both arguments.
  TaskIndex(const Graph& graph, NodeNumbers* numbers);

  const std::vector<bool>& weights() const { return weights_; }  // as WeightsOf
  const std::vector<int>& kinds() const { return kinds_; }       // NodeNumbers::OfKind
  int value(NodeId n) const { return values_[n]; }

  struct Found {
    std::string signature;
    std::vector<NodeId> nodes;  // as KernelTask::nodes
  };
  Found Find(const std::vector<bool>& memory, const KernelChoice& choice);

 private:
  // Returns the kind of the node that LeafOf (task.h) gives.
  int KindOfLeaf(NodeId n, bool parameter);

  const Graph& graph_;
  NodeNumbers& numbers_;
  const std::vector<bool> weights_;
  std::vector<int> kinds_, values_;
  // by node: its KindOfLeaf as an input, as a parameter; -1: not computed yet
  std::vector<int> leaves_[2];
  std::vector<bool> literal_;  // by node: it is a small literal, which travels with the task
  std::vector<int> seen_;  // by node: its place in the current task, if `at_` is `turn_`, the call
  std::vector<int64_t> at_;
  int64_t turn_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_TASK_INDEX_H_
