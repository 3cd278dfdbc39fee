// Models of one node, for the tests of handlers.
//
//   const auto y = OneNode("Relu", 14).In(Elem::kFloat, {2}, {-1, 2}).Out(Elem::kFloat).Values();
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_TESTING_NODE_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_TESTING_NODE_TESTING_H_

#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/frontend/onnx/testing/testing.h"
#include "compiler/ir/ops/reference_testing.h"
#include "gtest/gtest.h"

namespace athanor::onnx {

using Numbers = std::vector<double>;

class OneNode {
 public:
  OneNode(std::string_view op, int64_t opset, std::string_view domain = "")
      : op_(op), domain_(domain), model_(opset) {}

  // Adds a graph input; for types that cannot be sent, the values are codes.
  OneNode& In(Elem elem, std::vector<int64_t> shape, const Numbers& values) {
    return AddInput(elem, Of(WireOf(elem), std::move(shape), values), {});
  }
  // Adds an input whose first axis is a dim in [0, 64].
  OneNode& InDynamic(Elem elem, std::vector<int64_t> shape, const Numbers& values) {
    std::vector<TestSize> sizes(shape.begin(), shape.end());
    sizes[0] = std::string("n");
    return Least(0).AddInput(elem, Of(WireOf(elem), std::move(shape), values), std::move(sizes));
  }
  // Adds an input; named `sizes` are dims from Least, or 1, to 64.
  OneNode& In(const Tensor& x, std::vector<TestSize> sizes = {}) {
    return AddInput(ElemOf(x.dtype), x, std::move(sizes));
  }
  OneNode& Least(int64_t least) {  // lower bound of the dims that follow
    least_ = least;
    return *this;
  }
  // Adds an initialiser, which is known at import.
  OneNode& Fixed(Elem elem, std::vector<int64_t> shape, const Numbers& values) {
    return Fixed(Of(CarrierOf(elem), std::move(shape), values));
  }
  OneNode& Fixed(const Tensor& x) {
    model_.Initializer(Name(), x);
    return *this;
  }
  // Adds the shape of operand 0, computed in the graph.
  OneNode& ShapeOfFirst() {
    const std::string name = Name();
    model_.Node("Shape", {operands_[0]}, {name});
    return *this;
  }
  OneNode& Omit() {
    operands_.push_back("");
    return *this;
  }
  OneNode& Attr(const std::string& name, TestAttr value) {
    attrs_.insert_or_assign(name, std::move(value));
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

  // Without Out, the model has one result, of the first input's type.
  absl::StatusOr<std::vector<Tensor>> Run() {
    if (results_.empty()) Out(inputs_.empty() ? Elem::kFloat : first_);
    TestModel model = model_;
    model.Node(op_, operands_, results_, attrs_, domain_);
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!results_[i].empty()) model.Output(results_[i], types_[i]);
    }
    for (const auto& [name, dim] : dims_) options_.dims.push_back(dim);
    return RunModel(model, inputs_, options_);
  }
  std::vector<Tensor> Results() {
    absl::StatusOr<std::vector<Tensor>> results = Run();
    EXPECT_TRUE(results.ok()) << op_ << ": " << results.status();
    return results.ok() ? *std::move(results) : std::vector<Tensor>(types_.size());
  }
  Tensor Result() { return Results()[0]; }
  Tensor Result(Elem elem) { return Out(elem).Result(); }
  Numbers Values() { return ValuesOf(Result()); }
  std::string Error() {
    const absl::Status status = Run().status();
    EXPECT_FALSE(status.ok()) << op_;
    return std::string(status.message());
  }

 private:
  std::string Name() {
    operands_.push_back("x" + std::to_string(operands_.size()));
    return operands_.back();
  }
  OneNode& AddInput(Elem elem, Tensor x, std::vector<TestSize> sizes) {
    if (sizes.empty()) sizes.assign(x.shape.begin(), x.shape.end());
    model_.Input(Name(), elem, sizes);
    for (const TestSize& size : sizes) {
      const auto* name = std::get_if<std::string>(&size);
      if (name != nullptr) dims_[*name] = {.name = *name, .min = least_, .max = 64};
    }
    if (inputs_.empty()) first_ = elem;
    inputs_.push_back(std::move(x));
    return *this;
  }

  const std::string op_, domain_;
  TestModel model_;
  ImportOptions options_;
  std::vector<Tensor> inputs_;
  Elem first_ = Elem::kFloat;  // element type of the first input
  std::map<std::string, DimGiven> dims_;
  int64_t least_ = 1;
  std::vector<std::string> operands_, results_;
  std::vector<Elem> types_;
  std::map<std::string, TestAttr> attrs_;
};

inline Tensor Ints(const Numbers& values) {
  return Of(DType::kI64, {static_cast<int64_t>(values.size())}, values);
}

// Elements are equal if they are within `relative` of the larger, both NaN, or the same infinity.
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

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_TESTING_NODE_TESTING_H_
