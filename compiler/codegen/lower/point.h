// Lowers the value of a graph node at a point to KIR, inlining every node that has no memory of its
// own.
//
//   PointLowering at(graph, has_memory, &emitter);
//   kir::Var v = at.At(node, {Expr::Symbol("i0"), Expr::Symbol("i1") + Expr::Symbol(kir::kLane)});
//
// This one recursion is the whole of element-wise fusion: views compose into index expressions,
// unary and binary ops become statements, reductions become loops. Kernel kinds (map, row,
// contract, ...) differ only in the loops they put around it.
//
// A coordinate may use loop variables, registers and "lane"; if it uses "lane", the value is a
// vector.
#ifndef ATHANOR_COMPILER_CODEGEN_LOWER_POINT_H_
#define ATHANOR_COMPILER_CODEGEN_LOWER_POINT_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/kir/emitter.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

using Coordinates = std::vector<Expr>;

class PointLowering {
 public:
  // `has_memory[n]`: node n is read from a buffer. Borrows all three.
  PointLowering(const Graph& graph, const std::vector<bool>& has_memory, kir::Emitter* emitter)
      : graph_(graph), has_memory_(has_memory), e_(*emitter) {}

  kir::Var At(NodeId node, const Coordinates& coordinates);

  // Returns the node's value where each `index` is below its `extent`, and zero, for which nothing
  // is read, elsewhere.
  struct Limit {
    Expr index, extent;
  };
  kir::Var OrZero(NodeId node, const Coordinates& coordinates, const std::vector<Limit>& limits);
  // Returns a bool that is true where 0 <= coordinate < extent; kNoVar if that is proved.
  kir::Var Inside(const Expr& coordinate, const Expr& extent);

  // Sets the lanes and the mask of the values computed next; restores the former on destruction.
  class Context {
   public:
    // `may_be_empty`: the count may be 0 or less, so that not even what all lanes share is there.
    Context(PointLowering* at, int lanes, std::optional<Expr> count, bool may_be_empty = false)
        : at_(at), lanes_(at->lanes_), mask_(at->mask_) {
      at->lanes_ = lanes;
      at->mask_.may_be_empty = may_be_empty && count.has_value();
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

  // From now on, hoists loop-invariant loads whose address is provably in bounds, and unrolls
  // reductions of few terms.
  void SetHoists() { hoists_ = true; }
  // Sets how many vectors of partial sums a reduction along vectors has.
  void SetUnroll(int unroll) { unroll_ = unroll; }
  // Sets the node that is being computed: it is not read from its own memory.
  void SetRoot(NodeId node) { root_ = node; }
  // Provides the value of `node`, for example of a tile's element inside its epilogue.
  using Provider = std::function<kir::Var(const Coordinates&)>;
  void Provide(NodeId node, Provider value) { provided_[node] = std::move(value); }
  // Sets up a kernel that works on one row at a time: the root's coordinates before the last, the
  // row's length, and the scratch of nodes (of the root's shape) whose values the first pass over
  // the row keeps for the later ones.
  void SetRow(Coordinates prefix, Expr length, std::map<NodeId, int> scratch_of);
  // Begins a pass over the row; lane 0 is element `r`.
  void BeginRowPass(const Expr& r) { row_.index = r; }
  void EndRowPass();

  // Returns the buffer of a node that this kernel reads or writes; creates it on first use.
  int BufferOf(NodeId node, bool written);
  // Makes a buffer of its own for a node, beside any other.
  int AddBuffer(NodeId node, bool written);
  // Returns the offset, in elements, in the node's memory: a state's by its layout, else row-major.
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

  // Combines `term(indices)` over the box `extents` with `op`, in dtype `accumulator`. Lanes run
  // along the last extent if the coordinates leave them free.
  kir::Var Combine(Op op, DType accumulator, const std::vector<Expr>& extents, bool free_lanes,
                   const std::function<kir::Var(const Coordinates& indices)>& term);
  // Does the same for few elements, whose number is known, without a loop, so that adjacent results
  // share what they read. `term` adds a term to a sum.
  kir::Var Unrolled(Op op, DType accumulator, const std::vector<Expr>& extents,
                    const std::function<kir::Var(const Coordinates& indices, kir::Var sum)>& term);
  // Reports whether the coordinates are inside the node, whatever the data or the lanes.
  bool IsInsideAlways(NodeId node, const Coordinates& coordinates) const;
  // Reports whether a node computed under a predicate is zero where the predicate is false.
  bool IsZeroOutside(NodeId node) const;
  // Reports whether neither `coordinates` nor the predicate differs by lane.
  bool LanesFree(const Coordinates& coordinates) const;
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

// Returns the identity of a reduction by `op` in `dtype`.
Scalar IdentityOf(Op op, DType dtype);
Scalar ZeroOf(DType dtype);  // the identity of sums

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_LOWER_POINT_H_
