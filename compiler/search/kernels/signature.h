// Says in which order plans compute, so that sequences may go from one to another: plans of one
// signature give equal bits.
//
//   std::string signature = SignatureOf(scheduled.graph, scheduled.genome, target);
//   OrdersOf(graph, memory, choice, target);   // of one kernel: {"SumReduce ... row 16x2"}
//
// An order is that of a sum (kind of kernel, vectors of sums side by side, lanes of each, panels of
// stored weights) or of a function whose last bits depend on how many lanes compute it, such as
// Exp. What of a schedule changes no bits is not in it: tiles, items, pieces of sums, copies.
//
// A function counts by the lanes that have values of their own, a short sum of products
// that are not in memory by its whole kernel, which decides whether it is one of multiply-adds.
// Nodes that are alike count in the graph's order where theirs differ. Each node counts once
// however many kernels compute it, unless they do so in different orders: then each order counts
// with its kernel's root, since kernels that swap theirs give other bits. Nodes are told apart by
// op, attributes and types, so rewriting that is exact and leaves sums as they are leaves the
// signature, too. Two signatures may differ where all bits are equal; the opposite would be an
// error. It holds for genomes of one graph: in a rewritten one a sum may have taken the place of
// one that is alike, as Contract(x, v) that of Contract(x, w). Pure functions.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_SIGNATURE_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_SIGNATURE_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Returns the orders of what the kernel computes, by node; nodes without one are left out.
std::map<NodeId, std::string> OrdersOf(const Graph& graph, const std::vector<bool>& memory,
                                       const KernelChoice& choice, const v1::Target& target);

// Reports whether another schedule of the task computes in the orders of the task's own.
class SameOrders {
 public:
  // Borrows both.
  SameOrders(const KernelTask& task, const v1::Target& target);
  bool operator()(const KernelChoice& other) const;

 private:
  const KernelTask& task_;
  const v1::Target& target_;
  // Only of a map, whose orders are compared one by one.
  std::vector<bool> memory_;
  std::map<NodeId, std::string> orders_;
};

// The orders in which kernels compute a node, each with the kernel's root, by node.
using NodeOrders = std::map<NodeId, std::set<std::pair<std::string, NodeId>>>;

// Returns 16 hex digits for these orders of the graph's nodes.
std::string SignatureOf(const Graph& graph, const NodeOrders& orders, const v1::Target& target);
// Returns them for the orders of all kernels.
std::string SignatureOf(const Graph& graph, const Genome& genome, const v1::Target& target);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_SIGNATURE_H_
