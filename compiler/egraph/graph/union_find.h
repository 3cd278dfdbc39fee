// Disjoint sets of classes with path compression (Tarjan 1975). The caller chooses the
// representative of a united set: the e-graph keeps the class that is more expensive to move.
//
//   UnionFind sets;
//   ClassId a = sets.Make(), b = sets.Make();
//   sets.Union(a, b);        // a represents both
//   sets.Find(b) == a;
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_UNION_FIND_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_UNION_FIND_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/egraph/graph/ids.h"

namespace athanor::egraph {

class UnionFind {
 public:
  ClassId Make() {
    parents_.push_back(ClassId{static_cast<uint32_t>(parents_.size())});
    return parents_.back();
  }

  // Returns the representative of `id`. An id that was never made represents itself.
  ClassId Find(ClassId id) const {
    if (id.value >= parents_.size()) return id;
    while (parents_[id.value] != id) id = parents_[id.value];
    return id;
  }

  // Same, and makes every element on the path point to its grandparent.
  ClassId FindAndCompress(ClassId id) {
    if (id.value >= parents_.size()) return id;
    while (parents_[id.value] != id) {
      ClassId& parent = parents_[id.value];
      parent = parents_[parent.value];
      id = parent;
    }
    return id;
  }

  // REQUIRES: both are representatives, and differ.
  void Union(ClassId winner, ClassId loser) { parents_[loser.value] = winner; }

  size_t size() const { return parents_.size(); }
  size_t Bytes() const { return parents_.capacity() * sizeof(ClassId); }

 private:
  std::vector<ClassId> parents_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_UNION_FIND_H_
