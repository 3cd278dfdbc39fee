// What a kernel would touch, found without writing it: the same walk as codegen's point lowering,
// over symbolic coordinates. Search decides with it what may be computed where; codegen which axes
// may merge.
//
//   Accesses a = CollectAccesses(graph, has_memory, root, coordinates, bounds);
//   // a.loads: every buffer read with its coordinates; a.reductions: every reduction met on the
//   way
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_ACCESS_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_ACCESS_H_

#include <optional>
#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

struct Access {
  NodeId node;
  std::vector<Expr> coordinates;
  bool inside_reduction = false;
};

// What the condition of a filled map asks of a coordinate: to be in [0, extent).
struct Condition {
  Expr coordinate, extent;
};

struct Accesses {
  std::vector<Access> loads;  // nodes with memory
  std::vector<Access>
      reductions;  // Sum-, Max-, MulReduce, Contract, EmbeddingBag, Attention computed inline
  std::vector<Expr> indices;  // other uses of coordinates: Iota, the conditions of filled maps
  std::vector<Condition> conditions;  // those not proved
  std::vector<Condition> choices;     // of Selects by the place (ChoiceOf), those not decided
  Bounds bounds;                      // those given, and of the symbols made on the way
  int widest_bytes = 1;               // of the dtypes computed with
};

// Walks from `root` (even if it has memory) at `coordinates`. Reduced axes become symbols "$r0",
// "$r1", ..., computed indices too, so `bounds` is taken by value and grows on the way. Nodes
// before `first` are not walked into: a choice made from the outputs back has not decided about
// them yet.
Accesses CollectAccesses(const Graph& graph, const std::vector<bool>& has_memory, NodeId root,
                         const std::vector<Expr>& coordinates, Bounds bounds, NodeId first = 0);

// Where a Select takes its first value because of the place alone, as one made of a Concat does:
// where the condition's coordinate is below its extent; both may be negative. nullopt for any other
// node.
std::optional<Condition> ChoiceOf(const Graph& graph, const std::vector<bool>& has_memory,
                                  const Node& select, const std::vector<Expr>& coordinates,
                                  const Bounds& bounds);

// Which of its values such a Select takes: its operand's number; nullopt unless the bounds say.
std::optional<int> Decided(const Condition& choice, const Bounds& bounds);

// Row-major offset of an element, in elements.
Expr RowMajorOffset(const Shape& shape, const std::vector<Expr>& coordinates);

// Coordinates of `node`'s users' operand, through an IndexMap, simplified.
std::vector<Expr> MapCoordinates(const IndexMap& map, const std::vector<Expr>& coordinates,
                                 const Bounds& bounds);

// The coordinates of an IndexMap's result at which it reads its operand's `coordinates`, where the
// map is one to one; empty optional where that is not proved.
std::optional<std::vector<Expr>> InvertMap(const IndexMap& map, const Shape& operand,
                                           const std::vector<Expr>& coordinates, Bounds bounds);

// The coordinates of `root` at which `anchor` is needed at `coordinates`, along the one path of
// element-wise nodes and invertible maps between them.
std::optional<std::vector<Expr>> RootCoordinates(const Graph& graph,
                                                 const std::vector<bool>& has_memory, NodeId root,
                                                 NodeId anchor,
                                                 const std::vector<Expr>& coordinates,
                                                 const Bounds& bounds);

// Whether `root` needs each element of `anchor` once, at one place of its own, and so can be
// computed where the anchor's elements are, in any order.
bool IsEpilogue(const Graph& graph, const std::vector<bool>& has_memory, NodeId root,
                NodeId anchor);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_ACCESS_H_
