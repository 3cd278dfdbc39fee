// The machinery of sample/evaluate_at.h: walks a graph from its outputs to its inputs, collecting
// which elements of each node are wanted, then builds the part in the other direction.
//
// Each op's `sample` (its row, ops/<family>.cc) does one step of the walk: it pays for what it
// visits, pulls the elements of its operands that the wanted ones follow from, and leaves a recipe
// that computes the wanted elements from those:
//
//   if (absl::Status s = cutter.Spend(n, Count(cutter.Wanted(n))); !s.ok()) return s;
//   const Cutter::Handle x = cutter.Pull(node.inputs[0], {count}, cutter.Wanted(n));
//   cutter.RecipeOf(n) = [&cutter, x] { return cutter.Add(op, {cutter.Get(x)}); };
#ifndef ATHANOR_COMPILER_IR_OPS_CUTTER_H_
#define ATHANOR_COMPILER_IR_OPS_CUTTER_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/ops/reference_util.h"

namespace athanor {

using Positions = std::vector<int64_t>;

inline int64_t Count(const Positions& positions) { return static_cast<int64_t>(positions.size()); }

inline int64_t Dot(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Returns the row-major positions of all elements of a box with these strides.
inline Positions OffsetsOf(absl::Span<const int64_t> sizes, absl::Span<const int64_t> strides) {
  Positions offsets;
  offsets.reserve(Product(sizes));
  ForEachElement(
      sizes, [&](int64_t, const std::vector<int64_t>& at) { offsets.push_back(Dot(at, strides)); });
  return offsets;
}

// Returns [bases, offsets]: every offset added to every base.
inline Positions Sums(const Positions& bases, const Positions& offsets) {
  Positions sums;
  sums.reserve(bases.size() * offsets.size());
  for (int64_t base : bases) {
    for (int64_t offset : offsets) sums.push_back(base + offset);
  }
  return sums;
}

inline Positions UpTo(int64_t count, int64_t stride = 1) {
  Positions positions(count);
  for (int64_t i = 0; i < count; ++i) positions[i] = i * stride;
  return positions;
}

inline absl::Status OutsideAxis(int64_t index, int64_t axis, int64_t extent) {
  return absl::OutOfRangeError(absl::StrCat("index ", index, " is outside axis ", axis,
                                            " of the data, which has ", extent, " elements"));
}

struct PartialGraph {
  Graph graph;                 // no dims; the outputs of the whole, each a list of elements
  std::vector<Tensor> inputs;  // of `graph`, in order
  int64_t visited = 0;         // elements read or computed: the cost, to a constant factor
};

// Used once, by one thread.
class Cutter {
 public:
  using Handle = int;  // of elements that were pulled
  // Adds a node's counterpart to the part: a list of its wanted elements.
  using Recipe = std::function<absl::StatusOr<NodeId>()>;

  // `budget` is shared by the cuts that compute indices for one another.
  Cutter(const Graph& graph, const Expr::Env& dims, absl::Span<const absl::string_view> inputs,
         int64_t* budget);

  absl::StatusOr<PartialGraph> Cut(absl::Span<const Positions> positions);
  // Cuts out these elements of one node, as the only output.
  absl::StatusOr<PartialGraph> CutNode(NodeId node, const Positions& positions);

  // For the `sample` of ops, in both directions.
  const Graph& graph() const { return graph_; }
  const Expr::Env& dims() const { return dims_; }
  absl::Span<const int64_t> ShapeOf(NodeId node) const { return shapes_[node]; }
  // The elements of `node` that others need, sorted and distinct.
  const Positions& Wanted(NodeId node) const { return wanted_[node]; }
  Recipe& RecipeOf(NodeId node) { return recipes_[node]; }
  // RESOURCE_EXHAUSTED when a * b elements are more than the budget still has.
  absl::Status Spend(NodeId node, int64_t a, int64_t b = 1);
  // The values of an integer node's elements, as LoadIndex gives them.
  absl::StatusOr<Positions> IndexValues(NodeId node, const Positions& positions);

  // Towards the inputs: elements of `node` arranged in `shape`, as an operand of a recipe.
  Handle Pull(NodeId node, std::vector<int64_t> shape, Positions positions);
  // Returns what adds them; a position of -1 is `outside`, a scalar.
  Recipe PullOr(NodeId node, std::vector<int64_t> shape, Positions positions,
                const Tensor& outside);
  // Returns -1 where they are exact.
  Handle PullIfInexact(NodeId node, const Positions& positions);

  // Towards the outputs, from recipes.
  GraphBuilder& builder() { return builder_; }
  absl::StatusOr<NodeId> Get(Handle handle);
  absl::StatusOr<NodeId> Literal(Tensor tensor);
  absl::StatusOr<NodeId> IndexLiteral(std::vector<int64_t> shape, const Positions& values);
  absl::StatusOr<NodeId> Add(Op op, std::initializer_list<absl::StatusOr<NodeId>> operands,
                             Attrs attrs = {});
  // Lists all elements of `node`, which has `shape`.
  absl::StatusOr<NodeId> Flatten(absl::StatusOr<NodeId> node, std::vector<int64_t> shape);
  // Returns `node`, a list, as unknown as the inexact indices it was selected by.
  absl::StatusOr<NodeId> Guarded(absl::StatusOr<NodeId> node,
                                 std::initializer_list<Handle> indices);

 private:
  struct Pulled {
    NodeId node;
    std::vector<int64_t> shape;
    Positions positions;
  };

  absl::Status Start();
  absl::Status SetShapes();
  absl::Status Walk();
  absl::StatusOr<PartialGraph> Finish(absl::Span<const std::string> names,
                                      absl::Span<const Handle> handles);
  bool IsLeaf(NodeId node) const;
  Tensor Read(NodeId leaf, std::vector<int64_t> shape, const Positions& positions) const;

  const Graph& graph_;
  const Expr::Env& dims_;
  const absl::Span<const absl::string_view> bytes_;
  int64_t* const budget_;
  const int64_t budget_before_;

  std::vector<absl::string_view> leaf_bytes_;  // by node: of arguments and Constants
  std::vector<std::vector<int64_t>> shapes_;   // by node
  std::vector<bool> inexact_;                  // by node: its value may follow from a rounding
  std::vector<Positions> wanted_;              // by node; sorted and distinct from its `sample` on
  std::vector<Recipe> recipes_;                // by node
  std::vector<Pulled> pulled_;

  PartialGraph part_;
  GraphBuilder builder_;      // builds part_.graph
  std::vector<NodeId> made_;  // by node: its counterpart in the part
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_OPS_CUTTER_H_
