// The nodes of each class and the nodes that have it as a child, by canonical class id.
//
//   lists.AddClass(n);                    // the class of the next id
//   lists.AddParent(child, n);
//   lists.Merge(winner, loser);
//   lists.Tidy(nodes, sets);              // now sorted by (operator, id), without repetition
//   lists.WithOp(lists.parents(c), op, nodes);
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_CLASS_LISTS_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_CLASS_LISTS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/list_pool.h"
#include "compiler/egraph/graph/node_table.h"
#include "compiler/egraph/graph/union_find.h"

namespace athanor::egraph {

class ClassLists {
 public:
  absl::Span<const NodeId> nodes(ClassId id) const { return pool_.Get(lists_[id.value].nodes); }
  absl::Span<const NodeId> parents(ClassId id) const { return pool_.Get(lists_[id.value].parents); }
  // Returns the part of a list that has this operator. REQUIRES: the list is tidy.
  static absl::Span<const NodeId> WithOp(absl::Span<const NodeId> sorted, OpId op,
                                         const NodeTable& nodes);
  size_t Bytes() const;

  // Adds a class that consists of one node.
  void AddClass(NodeId n);
  void AddParent(ClassId id, NodeId n);
  // Moves the lists of one class to another.
  void Merge(ClassId winner, ClassId loser);
  // Puts a class on the list of what Tidy sorts, because a node in its lists died.
  void MarkUntidy(ClassId id);
  // Removes dead nodes and repetitions from all lists that changed, and sorts them.
  void Tidy(const NodeTable& nodes, const UnionFind& sets);

  // Compares the lists of every class with newly computed lists. REQUIRES: all are tidy.
  absl::Status Verify(const NodeTable& nodes, const UnionFind& sets) const;

 private:
  using List = ListPool<NodeId>::List;
  struct Lists {
    List nodes;
    List parents;
    bool untidy = false;
  };

  std::vector<Lists> lists_;  // by ClassId; classes that were merged into another are empty
  ListPool<NodeId> pool_;
  std::vector<ClassId> untidy_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_CLASS_LISTS_H_
