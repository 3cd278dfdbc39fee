// Small random graphs to try rules on. The example of a row says what must stand there; which
// sizes, dtype and values it gets is the test's business.
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

// What an Input or Parameter may hold besides numbers.
enum class ExampleEdges : uint8_t { kAll, kNaN, kNone };

class ExampleBuilder {
 public:
  // `dtype` is what the example computes in, where its row takes any: a float.
  ExampleBuilder(uint64_t seed, DType dtype);
  ExampleBuilder(const ExampleBuilder&) = delete;
  ExampleBuilder& operator=(const ExampleBuilder&) = delete;

  DType dtype() const { return dtype_; }
  // A size: 0, 1, 2 or a prime up to 13, never below `min` (at most 13); a number, or a dim of the
  // graph that has it.
  Expr Size(int64_t min = 0);
  // Such a number, never a dim: for weights, and where an op wants one.
  int64_t ConstantSize(int64_t min = 0);
  // Uniform in [low, high].
  int64_t Pick(int64_t low, int64_t high);
  bool Coin() { return Pick(0, 1) == 1; }

  NodeId Input(Shape shape) { return Input(std::move(shape), dtype_); }
  NodeId Input(Shape shape, DType dtype);
  // Without infinities, or without NaN too: where ops leave open what comes of them.
  NodeId Input(Shape shape, ExampleEdges edges);
  NodeId FiniteInput(Shape shape) { return Input(std::move(shape), ExampleEdges::kNone); }
  // Integers in [0, size): valid indices of an axis of that size, which is at least 1.
  NodeId Indices(Shape shape, const Expr& size, DType dtype = DType::kI64);
  // A weight; the shape is constant.
  NodeId Parameter(Shape shape) { return Parameter(std::move(shape), dtype_); }
  NodeId Parameter(Shape shape, DType dtype);
  // One whose contents are known to be finite and at most 2^kMagnitude in size.
  static constexpr int kMagnitude = 20;
  NodeId BoundedParameter(Shape shape, DType dtype);
  // A literal of normal random values, rounded to integers where the dtype is one.
  NodeId Constant(std::vector<int64_t> shape) { return Constant(std::move(shape), dtype_); }
  NodeId Constant(std::vector<int64_t> shape, DType dtype);
  // A power of two as a literal of rank 0: products with it round nothing.
  NodeId PowerOfTwo();
  void Output(NodeId node);

  // Everything else, by the shorthands of decomposition rows.
  Expansion& x() { return x_; }

  // For the test.
  const Graph& graph() const { return graph_; }
  // OK, or the first node that could not be added: the example is wrong.
  const absl::Status& status() const { return x_.status(); }
  // The sizes of the dims.
  const Expr::Env& dims() const { return dims_; }
  // Beyond which the values of an Input must stay, if it holds indices.
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
  Graph graph_;  // with all its dims from the start, as the expansion wants it
  Expansion x_;
  std::map<NodeId, int64_t> index_limits_;
  std::map<NodeId, ExampleEdges> edges_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_RULE_EXAMPLE_H_
