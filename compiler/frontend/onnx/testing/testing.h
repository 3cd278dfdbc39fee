// Small models for tests, imported and evaluated.
//
//   TestModel m(/*opset=*/21);
//   m.Input("x", Elem::kFloat, {"b", 3}).Node("Relu", {"x"}, {"y"}).Output("y", Elem::kFloat);
//   ImportOptions options;
//   options.dims = {{.name = "b", .min = 1, .max = 8}};
//   std::vector<Tensor> y = RunModel(m, {x}, options).value();
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_TESTING_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_TESTING_TESTING_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/importer/import.h"
#include "compiler/ir/value/tensor.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

// Reads files in memory; file 0 is the model.
class BytesReader : public PayloadReader {
 public:
  explicit BytesReader(std::vector<std::string> files) : files_(std::move(files)) {}
  absl::StatusOr<std::string_view> Bytes(const PayloadRef& ref) const override {
    return std::string_view(files_[ref.file]).substr(ref.offset, ref.bytes);
  }

 private:
  const std::vector<std::string> files_;
};

// A size, or a dim's name; "" for a size that is not stated.
using TestSize = std::variant<int64_t, std::string>;
using TestAttr = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                              std::vector<std::string>, Tensor, ::onnx::GraphProto>;

// Writes the values of types that are carried as themselves, and the bits of the others.
::onnx::TensorProto ToProto(std::string_view name, const Tensor& tensor, Elem elem);
inline ::onnx::TensorProto ToProto(std::string_view name, const Tensor& tensor) {
  return ToProto(name, tensor, ElemOf(tensor.dtype));
}
// Returns a tensor of the carrier's dtype.
absl::StatusOr<Tensor> FromProto(const ::onnx::TensorProto& proto);

// Writes a GraphProto, of a model or a sub-graph.
class TestGraph {
 public:
  TestGraph& Input(std::string_view name, Elem elem, const std::vector<TestSize>& shape);
  TestGraph& Initializer(std::string_view name, const Tensor& value);
  TestGraph& Node(std::string_view op, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs,
                  const std::map<std::string, TestAttr>& attrs = {}, std::string_view domain = "");
  TestGraph& Output(std::string_view name, Elem elem);
  TestGraph& Output(std::string_view name, Elem elem, const std::vector<TestSize>& shape);

  ::onnx::GraphProto proto;
};

class TestModel : public TestGraph {
 public:
  explicit TestModel(int64_t opset) : opset_(opset) {}
  // Imports opset com.microsoft 1 too.
  ::onnx::ModelProto Model() const;
  std::string Bytes() const { return Model().SerializeAsString(); }

 private:
  const int64_t opset_;
};

// Result of importing a serialised model, with its refusals.
struct TestImport {
  absl::Status status;
  OnnxImported imported;  // if ok
  std::vector<ImportRefusal> refusals;
  std::vector<Tensor> parameters;  // in order
};
TestImport ImportBytes(const std::string& model, const ImportOptions& options = {});

// Runs the reference evaluator. `inputs` are as requests carry them: u8 for codes and bits.
absl::StatusOr<std::vector<Tensor>> Evaluate(const TestImport& import,
                                             absl::Span<const Tensor> inputs);
absl::StatusOr<std::vector<Tensor>> RunModel(const TestModel& model,
                                             absl::Span<const Tensor> inputs,
                                             const ImportOptions& options = {});

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_TESTING_TESTING_H_
