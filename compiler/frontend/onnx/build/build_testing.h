// Runs values built with an OpBuilder, by the reference evaluator.
//
//   Built t;
//   const Value x = t.Input(Elem::kFloat, {3});
//   const Tensor y = t.Run(Add(t.b(), x, x), {Of(DType::kF32, {3}, {1, 2, 3})});
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_TESTING_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build.h"
#include "compiler/ir/ops/reference_testing.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gtest/gtest.h"

namespace athanor::onnx {

class Built {
 public:
  explicit Built(std::vector<Dim> dims = {}) {
    graph_.dims = std::move(dims);
    b_ = std::make_unique<OpBuilder>(&graph_, GraphLimits{});
  }
  OpBuilder& b() { return *b_; }
  const Graph& graph() const { return graph_; }

  Value Input(Elem elem, Shape shape) {
    GraphBuilder inputs(&graph_);
    const std::string name = "x" + std::to_string(graph_.InputIds().size());
    return b_->At(inputs.Input(name, {CarrierOf(elem), std::move(shape)}).value(), elem);
  }
  // Returns the value's elements for these inputs, or the first failure of building or running.
  // `sizes` gives all dims, if the inputs do not determine them.
  absl::StatusOr<Tensor> Try(const Value& value, const std::vector<Tensor>& inputs = {},
                             const Expr::Env* sizes = nullptr) {
    const NodeId node = b_->Node(value);
    if (!b_->status().ok()) return b_->status();
    Graph graph = graph_;
    graph.outputs = {{"y", node}};
    RETURN_IF_ERROR(Verify(graph));
    ASSIGN_OR_RETURN(std::vector<Tensor> results, Evaluate(graph, inputs, sizes));
    return std::move(results.front());
  }
  // Same as Try, but a failure fails the test.
  Tensor Run(const Value& value, const std::vector<Tensor>& inputs = {}) {
    absl::StatusOr<Tensor> result = Try(value, inputs);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : Tensor();
  }
  int Count(Op op) const {
    int count = 0;
    for (const Node& node : graph_.nodes) count += node.op == op;
    return count;
  }
  // Returns the number of index maps that give a fill outside of their operand.
  int Filled() const {
    int filled = 0;
    for (const Node& node : graph_.nodes)
      filled += IsIndexMap(node.op) && node.attrs.contains("fill");
    return filled;
  }

 private:
  Graph graph_;
  std::unique_ptr<OpBuilder> b_;
};

// Returns a tensor of 0, 1, 2, ... in row-major order.
inline Tensor Count(DType dtype, std::vector<int64_t> shape) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  std::vector<double> values(t.elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return Of(dtype, std::move(t.shape), values);
}

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_TESTING_H_
