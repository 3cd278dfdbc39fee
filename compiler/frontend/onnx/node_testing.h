// Models of one node, for the tests of handlers.
//
//   const auto y = OneNode("Relu", 14).In(Elem::kFloat, {2}, {-1, 2}).Out(Elem::kFloat).Values();
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_NODE_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_NODE_TESTING_H_

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/testing.h"
#include "compiler/ir/reference_testing.h"
#include "gtest/gtest.h"

namespace athanor::onnx {

using Numbers = std::vector<double>;

class OneNode {
 public:
  OneNode(std::string op, int64_t opset, std::string domain = "")
      : op_(std::move(op)), domain_(std::move(domain)), model_(opset) {}

  // An input of the graph; of types that cannot travel the values are codes.
  OneNode& In(Elem elem, std::vector<int64_t> shape, const Numbers& values) {
    const std::string name = Name();
    model_.Input(name, elem, std::vector<TestSize>(shape.begin(), shape.end()));
    inputs_.push_back(Of(WireOf(elem), std::move(shape), values));
    operands_.push_back(name);
    return *this;
  }
  // One whose first axis is a dim, from 0 to 64.
  OneNode& InDynamic(Elem elem, std::vector<int64_t> shape, const Numbers& values) {
    const std::string name = Name();
    std::vector<TestSize> sizes(shape.begin(), shape.end());
    sizes[0] = std::string("n");
    model_.Input(name, elem, sizes);
    inputs_.push_back(Of(WireOf(elem), std::move(shape), values));
    operands_.push_back(name);
    options_.dims = {{.name = "n", .min = 0, .max = 64}};
    return *this;
  }
  // An initialiser: known at import.
  OneNode& Fixed(Elem elem, std::vector<int64_t> shape, const Numbers& values) {
    const std::string name = Name();
    model_.Initializer(name, Of(CarrierOf(elem), std::move(shape), values));
    operands_.push_back(name);
    return *this;
  }
  OneNode& Omit() {
    operands_.push_back("");
    return *this;
  }
  OneNode& Attr(const std::string& name, TestAttr value) {
    attrs_[name] = std::move(value);
    return *this;
  }
  OneNode& Out(Elem elem) {
    results_.push_back("y" + std::to_string(results_.size()));
    types_.push_back(elem);
    return *this;
  }
  OneNode& Unwanted() {
    results_.push_back("");
    types_.push_back(Elem::kFloat);
    return *this;
  }
  OneNode& Seed(uint64_t seed) {
    options_.random_seed = seed;
    return *this;
  }

  absl::StatusOr<std::vector<Tensor>> Run() {
    model_.Node(op_, operands_, results_, attrs_, domain_);
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!results_[i].empty()) model_.Output(results_[i], types_[i]);
    }
    return RunModel(model_, inputs_, options_);
  }
  std::vector<Tensor> Results() {
    absl::StatusOr<std::vector<Tensor>> results = Run();
    EXPECT_TRUE(results.ok()) << op_ << ": " << results.status();
    return results.ok() ? *std::move(results) : std::vector<Tensor>(types_.size());
  }
  Tensor Result() { return Results()[0]; }
  Numbers Values() { return ValuesOf(Result()); }
  std::string Error() {
    const absl::Status status = Run().status();
    EXPECT_FALSE(status.ok()) << op_;
    return std::string(status.message());
  }

 private:
  std::string Name() const { return "x" + std::to_string(operands_.size()); }

  const std::string op_, domain_;
  TestModel model_;
  ImportOptions options_;
  std::vector<Tensor> inputs_;
  std::vector<std::string> operands_, results_;
  std::vector<Elem> types_;
  std::map<std::string, TestAttr> attrs_;
};

// Alike within `relative` of the larger, or both NaN, or the same infinity.
inline void ExpectNear(const Numbers& got, const Numbers& want, double relative = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i << ": " << got[i];
    } else if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << i;
    } else {
      EXPECT_NEAR(got[i], want[i], relative * std::max(1.0, std::abs(want[i]))) << i;
    }
  }
}

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_NODE_TESTING_H_
