// Finds the memory that a kernel would touch without generating the kernel: the same walk as
// codegen's point lowering, over symbolic coordinates. The search uses it to decide what may be
// computed where, codegen to decide which axes may merge.
//
//   Accesses a = CollectAccesses(graph, has_memory, root, coordinates, bounds);
//   // a.loads: every buffer read, with its coordinates
//   // a.reductions: every reduction met during the walk
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

// A filled map's condition on a coordinate: it is in [0, extent). A Select's (ChoiceOf): it is
// below extent.
struct Condition {
  Expr coordinate, extent;
};

struct Accesses {
  std::vector<Access> loads;  // reads of nodes with memory
  std::vector<Access>
      reductions;  // Sum-, Max-, MulReduce, Contract, EmbeddingBag, Attention computed inline
  // coordinates used as values: by Iota, RandomBits, conditions of filled maps
  std::vector<Expr> indices;
  std::vector<Condition> conditions;  // of filled maps, those not proved
  std::vector<Condition> choices;     // of Selects by position (ChoiceOf), those not decided
  Bounds bounds;         // the given ones, and those of the symbols made during the walk
  int widest_bytes = 1;  // bytes of the widest dtype that is computed with
};

// Walks from `root` (even if it has memory) at `coordinates`. Reduced axes and computed indices
// become symbols "$r0", "$r1", ..., which are added to `bounds`; therefore it is taken by value.
// Nodes before `first` are not entered but count as loads: a choice that is made from the outputs
// backwards has not decided about them yet.
Accesses CollectAccesses(const Graph& graph, const std::vector<bool>& has_memory, NodeId root,
                         const std::vector<Expr>& coordinates, Bounds bounds, NodeId first = 0);

// Returns the condition of a Select that chooses by position alone, as the Selects of a Concat do:
// it takes its first value where the coordinate is below the extent. Both may be negative. nullopt
// for any other node.
std::optional<Condition> ChoiceOf(const Graph& graph, const std::vector<bool>& has_memory,
                                  const Node& select, const std::vector<Expr>& coordinates,
                                  const Bounds& bounds);

// Returns the number of the operand that such a Select takes; nullopt if the bounds do not decide
// it.
std::optional<int> Decided(const Condition& choice, const Bounds& bounds);

// Returns the row-major offset of an element, in elements.
Expr RowMajorOffset(const Shape& shape, const std::vector<Expr>& coordinates);

// Returns the coordinates at which an IndexMap reads its operand for its own `coordinates`,
// simplified.
std::vector<Expr> MapCoordinates(const IndexMap& map, const std::vector<Expr>& coordinates,
                                 const Bounds& bounds);

// Returns the coordinates of an IndexMap's result at which it reads its operand's `coordinates`;
// nullopt unless the map is proved to be one to one.
std::optional<std::vector<Expr>> InvertMap(const IndexMap& map, const Shape& operand,
                                           const std::vector<Expr>& coordinates, Bounds bounds);

// Returns the coordinates of `root` at which it needs `anchor` at `coordinates`, along one path of
// element-wise nodes and invertible maps between them; nullopt if there is no such path.
std::optional<std::vector<Expr>> RootCoordinates(const Graph& graph,
                                                 const std::vector<bool>& has_memory, NodeId root,
                                                 NodeId anchor,
                                                 const std::vector<Expr>& coordinates,
                                                 const Bounds& bounds);

// Reports whether `root` needs each element of `anchor` once, at one position of its own. The root
// can then be computed where the anchor's elements are, in any order.
bool IsEpilogue(const Graph& graph, const std::vector<bool>& has_memory, NodeId root,
                NodeId anchor);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_ACCESS_H_
