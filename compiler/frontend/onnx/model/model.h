// A parsed ONNX model with the checks that need no op: versions, functions, names, order.
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
inline constexpr int64_t kOldestOpset = 6;  // and ops of 1 to 5 that 6 did not change
inline constexpr int64_t kNewestIr = 14;
inline constexpr int64_t kOldestIr = 3;

// "" and "ai.onnx" are one domain.
std::string_view CanonicalDomain(std::string_view domain);

// Immutable once parsed; not copied (the message may be tens of MB).
struct OnnxModel {
  ::onnx::ModelProto proto;
  std::vector<PayloadRef> lifted;
  FileTable files;
  std::map<std::string, int64_t, std::less<>> opsets;  // by canonical domain
  // By (domain, name, overload); into `proto`.
  std::map<std::tuple<std::string, std::string, std::string>, const ::onnx::FunctionProto*>
      functions;

  int64_t VersionOf(std::string_view domain) const;  // 0: not imported
  const ::onnx::FunctionProto* FindFunction(std::string_view domain, std::string_view name,
                                            std::string_view overload) const;
};

// INVALID_ARGUMENT: not a model, no graph, an IR or opset version outside what is read ("opset 29
// is newer than this server reads, 28"), two versions of one domain, a function twice or recursive,
// names that are too long or no UTF-8.
absl::StatusOr<OnnxModel> ParseOnnx(Lifted lifted, FileTable files, const GraphLimits& limits = {});

// Positions of a graph's nodes, operands first; an order that is valid already is kept. `outer`
// says of a name whether an enclosing graph defines it. INVALID_ARGUMENT: a cycle, a name that is
// made twice or hides one of an enclosing graph, an operand that nothing makes.
absl::StatusOr<std::vector<int>> OrderOf(const ::onnx::GraphProto& graph,
                                         absl::FunctionRef<bool(std::string_view)> outer);

// How messages name a node: its name, else that of its first result.
std::string NodeName(const ::onnx::NodeProto& node);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_MODEL_H_
