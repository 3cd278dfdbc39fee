// The implementation of evaluate_at.h. It walks a graph from its outputs to its inputs and collects
// the wanted elements of each node (evaluate_at_rows.cc has one function per op), then builds the
// part in the other direction. Private to evaluate_at*.cc.
#ifndef ATHANOR_COMPILER_IR_SAMPLE_EVALUATE_AT_INTERNAL_H_
#define ATHANOR_COMPILER_IR_SAMPLE_EVALUATE_AT_INTERNAL_H_

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
#include "compiler/ir/sample/evaluate_at.h"

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

// Used once, by one thread.
class Cutter {
 public:
  // `budget` is shared with the cuts that compute indices for this one.
  Cutter(const Graph& graph, const Expr::Env& dims, absl::Span<const absl::string_view> inputs,
         int64_t* budget);

  absl::StatusOr<PartialGraph> Cut(absl::Span<const Positions> positions);
  // Cuts out these elements of one node, as the only output.
  absl::StatusOr<PartialGraph> CutNode(NodeId node, const Positions& positions);

 private:
  // An operand in the part: elements of `node` arranged in `shape`.
  struct Pulled {
    NodeId node;
    std::vector<int64_t> shape;
    Positions positions;
  };
  using Handle = int;  // index into pulled_
  // Adds a node's counterpart to the part: a list of the node's wanted elements.
  using Recipe = std::function<absl::StatusOr<NodeId>()>;

  absl::Status Start();
  absl::Status SetShapes();
  absl::Status Walk();
  absl::StatusOr<PartialGraph> Finish(absl::Span<const std::string> names,
                                      absl::Span<const Handle> handles);

  // Charges a * b elements to the budget; RESOURCE_EXHAUSTED if it has fewer left. Used in both
  // directions.
  absl::Status Spend(NodeId node, int64_t a, int64_t b = 1);
  bool IsLeaf(NodeId node) const;
  absl::Span<const int64_t> ShapeOf(NodeId node) const { return shapes_[node]; }
  Tensor Read(NodeId leaf, std::vector<int64_t> shape, const Positions& positions) const;
  // Returns the values of an integer node's elements, as LoadIndex reads them.
  absl::StatusOr<Positions> IndexValues(NodeId node, const Positions& positions);

  // --- Towards the inputs ---
  Handle Pull(NodeId node, std::vector<int64_t> shape, Positions positions);
  // Pulls an operand and returns the recipe that adds it; position -1 gives `outside`, a scalar.
  Recipe PullOr(NodeId node, std::vector<int64_t> shape, Positions positions,
                const Tensor& outside);
  Handle PullIfInexact(NodeId node, const Positions& positions);  // -1 if the node is exact
  absl::Status Depend(NodeId node);
  absl::Status DependIota(NodeId node);
  absl::Status DependRandomBits(NodeId node);
  absl::Status DependElementwise(NodeId node);
  absl::Status DependIndexMap(NodeId node);
  absl::Status DependGather(NodeId node);
  absl::Status DependScatter(NodeId node);
  absl::Status DependReduce(NodeId node);
  absl::Status DependConv(NodeId node);
  absl::Status DependPool(NodeId node);
  Recipe MeanRecipe(Recipe members, int64_t total, Positions bags, const std::vector<bool>& empty,
                    DType dtype);
  absl::Status DependContract(NodeId node);
  absl::Status DependRows(NodeId node, int64_t axis);
  absl::Status DependAttention(NodeId node);
  Recipe AttentionRecipe(NodeId node, Handle q, Handle k, Handle v, Handle mask, int64_t keys);
  absl::Status DependEmbeddingBag(NodeId node);
  absl::Status DependRotary(NodeId node);
  absl::Status DependDequantize(NodeId node);
  absl::Status DependScan(NodeId node);

  // --- Towards the outputs ---
  absl::StatusOr<NodeId> Get(Handle handle);
  absl::StatusOr<NodeId> Literal(Tensor tensor);
  absl::StatusOr<NodeId> IndexLiteral(std::vector<int64_t> shape, const Positions& values);
  absl::StatusOr<NodeId> Add(Op op, std::initializer_list<absl::StatusOr<NodeId>> operands,
                             Attrs attrs = {});
  // Returns `node`, of shape `shape`, as a list of all its elements.
  absl::StatusOr<NodeId> Flatten(absl::StatusOr<NodeId> node, std::vector<int64_t> shape);
  // Returns the list `node`, marked as inexact where one of the inexact indices that selected it
  // is.
  absl::StatusOr<NodeId> Guarded(absl::StatusOr<NodeId> node,
                                 std::initializer_list<Handle> indices);

  const Graph& graph_;
  const Expr::Env& dims_;
  const absl::Span<const absl::string_view> bytes_;
  int64_t* const budget_;
  const int64_t budget_before_;

  std::vector<absl::string_view> leaf_bytes_;  // by node: of Inputs, Parameters, Constants
  std::vector<std::vector<int64_t>> shapes_;   // by node
  std::vector<bool> inexact_;                  // by node: its value may depend on a rounding
  std::vector<Positions> wanted_;              // by node; sorted and distinct once its Depend runs
  std::vector<Recipe> recipes_;                // by node
  std::vector<Pulled> pulled_;

  PartialGraph part_;
  GraphBuilder builder_;      // builds part_.graph
  std::vector<NodeId> made_;  // by node: its counterpart in the part
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_SAMPLE_EVALUATE_AT_INTERNAL_H_
