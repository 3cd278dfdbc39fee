// The value of a graph node at a point, as KIR: inlines every node that has no memory of its own.
//
//   PointLowering at(graph, has_memory, &emitter);
//   kir::Var v = at.At(node, {Expr::Symbol("i0"), Expr::Symbol("i1") + Expr::Symbol(kir::kLane)});
//
// This one recursion is the whole of element-wise fusion: views compose into index expressions,
// unary and binary ops into statements, reductions into loops. Kernel shapes (map, row, contract,
// ...) differ only in the loops they put around it.
//
// A coordinate may use loop variables, registers and "lane"; the value is a vector where it does.
#ifndef ATHANOR_COMPILER_CODEGEN_POINT_H_
#define ATHANOR_COMPILER_CODEGEN_POINT_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/emitter.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

using Coordinates = std::vector<Expr>;

class PointLowering {
 public:
  // `has_memory[n]`: node n is read from a buffer. Neither is owned.
  PointLowering(const Graph& graph, const std::vector<bool>& has_memory, kir::Emitter* emitter)
      : graph_(graph), has_memory_(has_memory), e_(*emitter) {}

  kir::Var At(NodeId node, const Coordinates& coordinates);

  // Sets what the values computed next are for; restores the former on destruction.
  class Context {
   public:
    Context(PointLowering* at, int lanes, std::optional<Expr> count)
        : at_(at), lanes_(at->lanes_), mask_(at->mask_) {
      at->lanes_ = lanes;
      at->mask_.count = std::move(count);
    }
    ~Context() {
      at_->lanes_ = lanes_;
      at_->mask_ = mask_;
    }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

   private:
    PointLowering* at_;
    int lanes_;
    kir::Mask mask_;
  };

  // From here on what all steps of a loop read is read before it, where that is sure to lie inside.
  void SetHoists() { hoists_ = true; }
  // Sums that a reduction along vectors has side by side.
  void SetUnroll(int unroll) { unroll_ = unroll; }
  // `node` is being computed: it is not read from its own memory.
  void SetRoot(NodeId node) { root_ = node; }
  // `node` is `value(coordinates)`: a tile's element inside its epilogue.
  using Provider = std::function<kir::Var(const Coordinates&)>;
  void Provide(NodeId node, Provider value) { provided_[node] = std::move(value); }
  // A kernel that works on one row at a time: the root's coordinates before the last, the row's
  // length, and the nodes (of the root's shape) whose values are kept in scratch from the first
  // pass over the row that computes them to the later ones.
  void SetRow(Coordinates prefix, Expr length, std::map<NodeId, int> scratch_of);
  // Runs `body` as a pass over the row whose lane 0 is element `r`.
  void BeginRowPass(const Expr& r) { row_.index = r; }
  void EndRowPass();

  // The buffer of a node read or written by this kernel; created on first use.
  int BufferOf(NodeId node, bool written);
  // Row-major element offset.
  Expr Offset(NodeId node, const Coordinates& coordinates) const;
  // Nodes behind the kernel's global buffers, in order.
  const std::vector<NodeId>& buffers() const { return buffer_nodes_; }

  int lanes() const { return lanes_; }
  const kir::Mask& mask() const { return mask_; }

 private:
  kir::Var Compute(NodeId node, const Coordinates& coordinates);
  kir::Var Elementwise(const Node& node, const Coordinates& coordinates);
  kir::Var Movement(const Node& node, const Coordinates& coordinates);
  kir::Var Gather(const Node& node, const Coordinates& coordinates);
  kir::Var Reduction(const Node& node, const Coordinates& coordinates);
  kir::Var Contraction(const Node& node, const Coordinates& coordinates);
  kir::Var Bag(const Node& node, const Coordinates& coordinates);
  kir::Var FromMemory(NodeId node, const Coordinates& coordinates);
  kir::Var FromRowCache(NodeId node, const Coordinates& coordinates);

  // Combines `term(indices)` over the box `extents` with kAdd or kMax, in `accumulator`'s dtype;
  // lanes run along the last extent where the coordinates leave the lanes free.
  kir::Var Combine(Op op, DType accumulator, const std::vector<Expr>& extents, bool free_lanes,
                   const std::function<kir::Var(const Coordinates& indices)>& term);
  // The same where there are few elements, their number known: without a loop, so that results side
  // by side share what they read. `term` adds a term to a sum.
  kir::Var Unrolled(Op op, DType accumulator, const std::vector<Expr>& extents,
                    const std::function<kir::Var(const Coordinates& indices, kir::Var sum)>& term);
  // Whether the coordinates are inside the node whatever its data or the lanes.
  bool IsInsideAlways(NodeId node, const Coordinates& coordinates) const;
  // Whether a node computed under a predicate is zero where that is false.
  bool IsZeroOutside(NodeId node) const;
  // Whether nothing in `coordinates` or the predicate differs by lane.
  bool LanesFree(const Coordinates& coordinates) const;
  // True where 0 <= coordinate < extent; kNoVar where proved.
  kir::Var Inside(const Expr& coordinate, const Expr& extent);

  const Graph& graph_;
  const std::vector<bool>& has_memory_;
  kir::Emitter& e_;
  NodeId root_ = -1;
  int lanes_ = 1;
  int unroll_ = 1;
  bool hoists_ = false;
  kir::Mask mask_;
  std::map<NodeId, Provider> provided_;
  struct Row {
    Coordinates prefix;
    Expr length;
    std::map<NodeId, int> scratch_of;
    std::set<NodeId> filled, filling;
    std::optional<Expr> index;  // set during a pass
  };
  Row row_;
  std::map<NodeId, int> buffer_of_;
  std::vector<NodeId> buffer_nodes_;
};

// The identity of a reduction or a maximum in `dtype`.
Scalar IdentityOf(Op op, DType dtype);
Scalar ZeroOf(DType dtype);  // the identity of sums

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_POINT_H_
