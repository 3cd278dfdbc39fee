// One op of ONNX with its operands, imported and evaluated; for tests of handlers.
//
//   const Tensor y = OpTrial(13, "Squeeze").In(x).Const(Of(DType::kI64, {1}, {0})).Run();
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_HANDLERS_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_HANDLERS_TESTING_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build_testing.h"
#include "compiler/frontend/onnx/testing.h"

namespace athanor::onnx {

class OpTrial {
 public:
  OpTrial(int64_t opset, std::string_view op, std::string_view domain = "")
      : model_(opset), op_(op), domain_(domain) {}

  // A graph input; `shape` where it has dims, each from 1 to 64.
  OpTrial& In(const Tensor& x, std::vector<TestSize> shape = {}) {
    if (shape.empty()) shape.assign(x.shape.begin(), x.shape.end());
    model_.Input(Next(), ElemOf(x.dtype), shape);
    for (const TestSize& size : shape) {
      const auto* name = std::get_if<std::string>(&size);
      if (name != nullptr) dims_[*name] = {.name = *name, .min = least_, .max = 64};
    }
    inputs_.push_back(x);
    return *this;
  }
  OpTrial& Const(const Tensor& x) {
    model_.Initializer(Next(), x);
    return *this;
  }
  OpTrial& Without() {  // an operand that is left out
    operands_.emplace_back();
    return *this;
  }
  // The shape of operand 0, as a graph computes it.
  OpTrial& ShapeOfFirst() {
    const std::string name = Next();
    model_.Node("Shape", {operands_[0]}, {name});
    return *this;
  }
  OpTrial& Attr(const std::string& name, TestAttr value) {
    attrs_.insert_or_assign(name, std::move(value));
    return *this;
  }
  OpTrial& Least(int64_t least) {  // of the dims that follow
    least_ = least;
    return *this;
  }

  absl::StatusOr<std::vector<Tensor>> TryAll(int results, Elem elem) {
    std::vector<std::string> names;
    for (int i = 0; i < results; ++i) names.push_back("y" + std::to_string(i));
    TestModel model = model_;
    model.Node(op_, operands_, names, attrs_, domain_);
    for (const std::string& name : names) model.Output(name, elem);
    ImportOptions options;
    for (const auto& [name, dim] : dims_) options.dims.push_back(dim);
    return RunModel(model, inputs_, options);
  }
  absl::StatusOr<Tensor> Try(Elem elem) {
    absl::StatusOr<std::vector<Tensor>> all = TryAll(1, elem);
    if (!all.ok()) return all.status();
    return std::move(all->front());
  }
  // The only result, of operand 0's type unless said; a failure fails the test.
  Tensor Run() { return Run(inputs_.empty() ? Elem::kFloat : ElemOf(inputs_[0].dtype)); }
  Tensor Run(Elem elem) {
    absl::StatusOr<Tensor> y = Try(elem);
    EXPECT_TRUE(y.ok()) << op_ << ": " << y.status();
    return y.ok() ? *std::move(y) : Tensor();
  }
  std::string Refused() {
    const absl::Status status =
        Try(inputs_.empty() ? Elem::kFloat : ElemOf(inputs_[0].dtype)).status();
    EXPECT_FALSE(status.ok()) << op_;
    return std::string(absl::string_view(status.message()));
  }

 private:
  std::string Next() {
    operands_.push_back("x" + std::to_string(operands_.size()));
    return operands_.back();
  }

  TestModel model_;
  const std::string op_, domain_;
  std::vector<std::string> operands_;
  std::map<std::string, TestAttr> attrs_;
  std::map<std::string, DimGiven> dims_;
  std::vector<Tensor> inputs_;
  int64_t least_ = 1;
};

inline Tensor Ints(const std::vector<double>& values) {
  return Of(DType::kI64, {static_cast<int64_t>(values.size())}, values);
}

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_HANDLERS_TESTING_H_
