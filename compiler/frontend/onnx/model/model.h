// A parsed ONNX model, with the checks that do not depend on ops: versions, functions, names,
// order.
//
//   OnnxModel model = ParseOnnx(lifted, files).value();
//   model.VersionOf("") == 17;  model.FindFunction("my.domain", "Block", "")
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_MODEL_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/onnx/model/payload.h"
#include "compiler/frontend/onnx/model/wire.h"
#include "compiler/ir/graph/graph.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

inline constexpr int64_t kNewestOpset = 28;
// Also reads ops of opsets 1 to 5 that opset 6 did not change.
inline constexpr int64_t kOldestOpset = 6;
inline constexpr int64_t kNewestIr = 14;
inline constexpr int64_t kOldestIr = 3;

// Maps "ai.onnx" to "", since both name one domain.
std::string_view CanonicalDomain(std::string_view domain);

// Immutable once parsed; not copied (the message may be tens of MB).
struct OnnxModel {
  ::onnx::ModelProto proto;
  std::vector<PayloadRef> lifted;
  FileTable files;
  std::map<std::string, int64_t, std::less<>> opsets;  // by canonical domain
  // By (domain, name, overload); the pointers are into `proto`.
  std::map<std::tuple<std::string, std::string, std::string>, const ::onnx::FunctionProto*>
      functions;

  int64_t VersionOf(std::string_view domain) const;  // 0: not imported
  const ::onnx::FunctionProto* FindFunction(std::string_view domain, std::string_view name,
                                            std::string_view overload) const;
};

// Returns INVALID_ARGUMENT for bytes that are no model, a missing graph, an IR or opset version
// that is not supported ("opset 29 is newer than this server reads, 28"), two versions of one
// domain, a function that occurs twice or is recursive, or names that are too long or not UTF-8.
absl::StatusOr<OnnxModel> ParseOnnx(Lifted lifted, FileTable files, const GraphLimits& limits = {});

// Returns the indices of a graph's nodes, operands first; a valid order is kept. `outer` tells
// whether an enclosing graph defines a name. INVALID_ARGUMENT: a cycle, a name that is defined
// twice or hides one of an enclosing graph, an undefined operand.
absl::StatusOr<std::vector<int>> OrderOf(const ::onnx::GraphProto& graph,
                                         absl::FunctionRef<bool(std::string_view)> outer);

// Returns the node's name for messages; without one, the name of its first result.
std::string NodeName(const ::onnx::NodeProto& node);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_MODEL_H_
