// A kernel task: the part of a graph that one kernel computes, cut out as a graph of its own, with
// the schedule it starts from. Equal parts of a model (the same kernel of every layer) give equal
// tasks, so one measurement serves all of them.
//
//   KernelTask task = CutTask(graph, MemoryOf(graph, genome), genome.kernels[3]);
//   times[task.key] = ...
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_TASK_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_TASK_H_

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/schedule.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

struct KernelTask {
  // Has one output "y". Operands that are weights are Parameters, states and their writes are
  // StateReads named "s0", "s1", ... in order, others Inputs; these are named "x0", "x1", ... in
  // order, as Parameters are; literals stay. A StateWrite that is the output is its update. The
  // dims are those of the graph it was cut from.
  Graph graph;
  KernelChoice choice;        // in nodes of `graph`; nothing is packed
  std::vector<NodeId> nodes;  // by node of `graph`: the node it was cut from
  std::string key;            // SHA-256 of the text of `graph`, 64 hex digits; without the schedule
};

// Cuts out the task of `choice`, of which nothing is packed yet. `weights` as WeightsOf(graph).
KernelTask CutTask(const Graph& graph, const std::vector<bool>& memory,
                   const std::vector<bool>& weights, const KernelChoice& choice);

// Returns the leaf, without a name, that stands for a value in memory in the tasks that read it.
Node LeafOf(const Graph& graph, NodeId n, bool parameter);

// Reports whether `node` is a constant that a task holds itself; a larger one is an operand.
bool IsSmallLiteral(const Node& node);

// Input of codegen: a graph with its packed weights added, and its kernels. A task has one or two,
// the last of which is its own.
struct ScheduledGraph {
  Graph graph;
  Genome genome;
};
ScheduledGraph WithSchedule(const KernelTask& task, const KernelChoice& choice,
                            const v1::Target& target);

// Returns the operations of the kernel that computes `root`: two for each multiply-add, one for
// each element-wise result or summand.
Expr Flops(const Graph& graph, const std::vector<bool>& memory, NodeId root);
// Returns by node of the kernel that computes `root` how many elements of it this moves, each once:
// of the result all, of operands those that are read, of a state those that it writes, of what lies
// in no memory none.
std::map<NodeId, Expr> MovedElements(const Graph& graph, const std::vector<bool>& memory,
                                     NodeId root);
// Returns their bytes.
Expr MovedBytes(const Graph& graph, const std::vector<bool>& memory, NodeId root);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_TASK_H_
