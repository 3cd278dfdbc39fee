// Small random graphs on which rules are tested. A row's example determines the structure; the test
// chooses sizes, dtype and values.
//
//   void Example(ExampleBuilder& e) {
//     const Expr rows = e.Size(), cols = e.Size();
//     const NodeId a = e.Input({rows, cols}), s = e.PowerOfTwo();
//     e.Output(e.x().Add(Op::kMul, {a, e.x().Map(s, {rows, cols}, {})}));
//   }
//   ExampleBuilder e(/*seed=*/7, DType::kF32);
//   Example(e);
//   Evaluate(e.graph(), values, &e.dims());
//
// The same seed and dtype give the same graph.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_RULE_EXAMPLE_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_RULE_EXAMPLE_H_

#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "compiler/ir/graph/graph.h"
#include "compiler/rules/decompose/decompose.h"

namespace athanor {

// Special values that an Input or Parameter may hold besides numbers.
enum class ExampleEdges : uint8_t { kAll, kNaN, kNone };

class ExampleBuilder {
 public:
  // `dtype` is a float in which the example computes, if its row accepts any dtype.
  ExampleBuilder(uint64_t seed, DType dtype);
  ExampleBuilder(const ExampleBuilder&) = delete;
  ExampleBuilder& operator=(const ExampleBuilder&) = delete;

  DType dtype() const { return dtype_; }
  // Returns a size: 0, 1, 2 or a prime up to 13, at least `min` (at most 13). It is a number, or a
  // dim of the graph with that size.
  Expr Size(int64_t min = 0);
  // Same, but never a dim: for weights, and for ops that need a number.
  int64_t ConstantSize(int64_t min = 0);
  // Returns an integer, uniform in [low, high].
  int64_t Pick(int64_t low, int64_t high);
  bool Coin() { return Pick(0, 1) == 1; }

  NodeId Input(Shape shape) { return Input(std::move(shape), dtype_); }
  NodeId Input(Shape shape, DType dtype);
  // Adds an Input without infinities, or also without NaN, for ops whose results for these are
  // unspecified.
  NodeId Input(Shape shape, ExampleEdges edges);
  NodeId FiniteInput(Shape shape) { return Input(std::move(shape), ExampleEdges::kNone); }
  // Adds integers in [0, size): valid indices of an axis of that size. REQUIRES: size >= 1.
  NodeId Indices(Shape shape, const Expr& size, DType dtype = DType::kI64);
  // Adds a weight. REQUIRES: the shape is constant.
  NodeId Parameter(Shape shape) { return Parameter(std::move(shape), dtype_); }
  NodeId Parameter(Shape shape, DType dtype);
  // Adds a weight whose contents are known to be finite, with absolute values of at most
  // 2^kMagnitude.
  static constexpr int kMagnitude = 20;
  NodeId BoundedParameter(Shape shape, DType dtype);
  // Adds a literal of normal random values, rounded to integers for integer dtypes.
  NodeId Constant(std::vector<int64_t> shape) { return Constant(std::move(shape), dtype_); }
  NodeId Constant(std::vector<int64_t> shape, DType dtype);
  // Adds a power of two as a scalar literal: products with it are exact.
  NodeId PowerOfTwo();
  void Output(NodeId node);

  // Adds all other nodes, by the shorthands of decomposition rows.
  Expansion& x() { return x_; }

  // --- for the test
  const Graph& graph() const { return graph_; }
  // OK, or the error of the first node that could not be added: the example is wrong.
  const absl::Status& status() const { return x_.status(); }
  // Returns the sizes of the dims.
  const Expr::Env& dims() const { return dims_; }
  // Returns exclusive upper bounds for the values of Inputs that hold indices.
  const std::map<NodeId, int64_t>& index_limits() const { return index_limits_; }
  ExampleEdges edges(NodeId input) const {
    const auto it = edges_.find(input);
    return it == edges_.end() ? ExampleEdges::kAll : it->second;
  }
  bool IsFinite(NodeId input) const { return edges(input) == ExampleEdges::kNone; }

 private:
  static Graph WithDims(std::mt19937_64& random, Expr::Env* sizes);
  NodeId Declare(Op op, const char* prefix, Shape shape, DType dtype);
  Scalar RandomScalar(DType dtype);

  std::mt19937_64 random_;
  const DType dtype_;
  Expr::Env dims_;
  Graph graph_;  // has all its dims from the start, which the expansion needs
  Expansion x_;
  std::map<NodeId, int64_t> index_limits_;
  std::map<NodeId, ExampleEdges> edges_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_RULE_EXAMPLE_H_
