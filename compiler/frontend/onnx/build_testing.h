// Runs what an OpBuilder made, by the reference evaluator.
//
//   Built t;
//   const Value x = t.Input(Elem::kFloat, {3});
//   const Tensor y = t.Run(t.b().Add(x, x), {Of(DType::kF32, {3}, {1, 2, 3})});
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_TESTING_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build.h"
#include "compiler/ir/reference_testing.h"
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
  // The value's elements, with these inputs; a failure of the builder fails the test.
  Tensor Run(const Value& value, const std::vector<Tensor>& inputs = {}) {
    const NodeId node = b_->Node(value);
    EXPECT_TRUE(b_->status().ok()) << b_->status();
    if (!b_->status().ok()) return {};
    Graph graph = graph_;
    graph.outputs = {{"y", node}};
    const absl::Status verified = Verify(graph);
    EXPECT_TRUE(verified.ok()) << verified;
    absl::StatusOr<std::vector<Tensor>> results = Evaluate(graph, inputs);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? results->front() : Tensor();
  }

 private:
  Graph graph_;
  std::unique_ptr<OpBuilder> b_;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_TESTING_H_
