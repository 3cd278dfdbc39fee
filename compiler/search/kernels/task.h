// A kernel task: the part of a graph that one kernel computes, cut out as a graph of its own, with
// the schedule it starts from. Equal parts of a model (the same kernel of every layer) give equal
// tasks, so that what is measured once serves all of them.
//
//   KernelTask task = CutTask(graph, MemoryOf(graph, genome), genome.kernels[3]);
//   times[task.key] = ...
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_TASK_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_TASK_H_

#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/schedule.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

struct KernelTask {
  // One output "y". Operands that are weights are Parameters, others Inputs, named "x0", "x1", ...
  // in their order; literals stay. The dims are those of the graph it was cut from.
  Graph graph;
  KernelChoice choice;        // in nodes of `graph`, nothing packed
  std::vector<NodeId> nodes;  // by node of `graph`: the one it was cut from
  std::string key;            // SHA-256 over the text of `graph`, 64 hex digits; not the schedule
};

// `weights` as WeightsOf(graph). Nothing of `choice` is packed yet.
KernelTask CutTask(const Graph& graph, const std::vector<bool>& memory,
                   const std::vector<bool>& weights, const KernelChoice& choice);

// A constant that a task holds itself; a larger one is an operand.
bool IsSmallLiteral(const Node& node);

// What codegen takes: a graph with its packed weights added, and its kernels; of a task one or two,
// the last of which is the task's.
struct ScheduledGraph {
  Graph graph;
  Genome genome;
};
ScheduledGraph WithSchedule(const KernelTask& task, const KernelChoice& choice,
                            const v1::Target& target);

// Operations of the kernel that computes `root`: two for each multiply-add, one for each
// element-wise result or summand.
Expr Flops(const Graph& graph, const std::vector<bool>& memory, NodeId root);
// Bytes of the operands and of the result, as far as they are read, each once.
Expr MovedBytes(const Graph& graph, const std::vector<bool>& memory, NodeId root);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_TASK_H_
