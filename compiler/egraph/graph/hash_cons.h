// Hash table that makes every e-node unique: maps a hash of (operator, payload, children) to the
// node. It stores only ids; the caller compares contents. Uses linear probing, at most two thirds
// full, with deletion by shifting back (Knuth, volume 3, 6.4, algorithm R), so there are no
// tombstones.
//
//   NodeId twin = table.Find(hash, [&](NodeId n) { return SameContent(n, wanted); });
//   if (!twin.valid()) table.Insert(hash, node);
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_HASH_CONS_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_HASH_CONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/egraph/graph/ids.h"

namespace athanor::egraph {

class HashCons {
 public:
  HashCons() : slots_(kInitialSlots) {}

  // Returns the node with this hash for which `equal` is true, or an invalid id.
  template <typename Equal>
  NodeId Find(uint32_t hash, Equal equal) const {
    for (size_t i = hash & mask(); slots_[i].node.valid(); i = (i + 1) & mask()) {
      if (slots_[i].hash == hash && equal(slots_[i].node)) return slots_[i].node;
    }
    return NodeId{};
  }

  // REQUIRES: no equal node is in the table.
  void Insert(uint32_t hash, NodeId node) {
    if ((size_ + 1) * 3 > slots_.size() * 2) Grow();
    Place({hash, node});
    ++size_;
  }

  // REQUIRES: `hash` is the one that `node` was inserted with. Does nothing if it is not in the
  // table.
  void Erase(uint32_t hash, NodeId node) {
    size_t hole = hash & mask();
    while (slots_[hole].node != node) {
      if (!slots_[hole].node.valid()) return;
      hole = (hole + 1) & mask();
    }
    for (size_t i = (hole + 1) & mask(); slots_[i].node.valid(); i = (i + 1) & mask()) {
      // An entry may move into the hole unless its home slot lies cyclically after the hole.
      if (((i - slots_[i].hash) & mask()) >= ((i - hole) & mask())) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = Slot{};
    --size_;
  }

  size_t size() const { return size_; }
  size_t Bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  static constexpr size_t kInitialSlots = 16;
  struct Slot {
    uint32_t hash = 0;
    NodeId node;
  };

  size_t mask() const { return slots_.size() - 1; }

  void Place(Slot slot) {
    size_t i = slot.hash & mask();
    while (slots_[i].node.valid()) i = (i + 1) & mask();
    slots_[i] = slot;
  }

  void Grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.node.valid()) Place(slot);
    }
  }

  std::vector<Slot> slots_;  // size is a power of two
  size_t size_ = 0;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_HASH_CONS_H_
