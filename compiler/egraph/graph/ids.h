// Ids of operators, payloads, classes and nodes. Each kind has its own type, so that a class cannot
// be passed as a node. A default-constructed id is invalid.
//
//   ClassId c = graph.class_of(NodeId{3});
//   if (c.valid()) costs[c.value] = 1;
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_IDS_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_IDS_H_

#include <compare>
#include <cstdint>
#include <utility>

namespace athanor::egraph {

template <typename Kind>
struct Id {
  static constexpr uint32_t kNone = ~uint32_t{0};

  uint32_t value = kNone;

  constexpr bool valid() const { return value != kNone; }
  friend constexpr auto operator<=>(Id, Id) = default;
  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value);
  }
};

using OpId = Id<struct OpKind>;            // a row of the Language
using PayloadId = Id<struct PayloadKind>;  // an interned attribute; equal ids, equal attributes
using ClassId = Id<struct ClassKind>;      // an e-class; several ids may name one class
using NodeId = Id<struct NodeKind>;        // an e-node; never reused

// Origin of a change: the number of a rule in its runner, or one of the named values.
enum class Cause : uint32_t { kAnalysis = 0xfffffffe, kUser = 0xffffffff };

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_IDS_H_
