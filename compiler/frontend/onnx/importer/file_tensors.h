// Makes values of the tensors that a file stores: small ones are known, the others parameters.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_FILE_TENSORS_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_FILE_TENSORS_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/frontend/onnx/build/build.h"
#include "compiler/frontend/onnx/importer/import_budget.h"
#include "compiler/frontend/onnx/model/model.h"
#include "compiler/frontend/onnx/model/payload.h"

namespace athanor::onnx {

class FileTensors {
 public:
  // All outlive it. `b` builds `graph`, whose names have at most `max_name_bytes`.
  FileTensors(const OnnxModel& model, const PayloadReader& reader, int64_t max_name_bytes,
              Graph* graph, OpBuilder* b, ImportBudget* budget)
      : model_(model),
        reader_(reader),
        max_name_bytes_(max_name_bytes),
        graph_(*graph),
        b_(*b),
        budget_(*budget) {}

  // Returns a tensor of the file: a known value if it is small, else a parameter with a similar
  // name.
  absl::StatusOr<Value> ValueOf(const ::onnx::TensorProto& tensor, std::string_view name);
  // Adds an Input or a Parameter.
  NodeId AddDeclared(Op op, std::string name, TensorType type);
  // Keeps a name for the graph's interface.
  void Reserve(const std::string& name) { names_.emplace(name, 0); }
  // Returns a name of our own: printable, unique, and as near to the file's as that allows.
  std::string UniqueName(std::string_view name);

  // Tensors behind the Parameters, by node.
  std::vector<std::pair<NodeId, StoredTensor>>& parameters() { return parameters_; }
  // Returns an error if two tensors' ranges of an external file overlap.
  absl::Status CheckExternal() const;

 private:
  absl::StatusOr<Value> MakeValue(const ::onnx::TensorProto& tensor, std::string_view name);
  absl::StatusOr<Value> MakeParameter(StoredTensor stored, std::string_view name);
  Value Unpacked(const Value& bytes, Elem elem, const Shape& shape);

  const OnnxModel& model_;
  const PayloadReader& reader_;
  const int64_t max_name_bytes_;
  Graph& graph_;
  OpBuilder& b_;
  ImportBudget& budget_;
  std::vector<std::pair<NodeId, StoredTensor>> parameters_;
  std::vector<StoredTensor> external_;  // external ranges, which must not overlap
  // Names of our nodes, with the number of requests for each.
  std::map<std::string, int64_t, std::less<>> names_;
  std::map<const ::onnx::TensorProto*, Value> tensors_;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_FILE_TENSORS_H_
