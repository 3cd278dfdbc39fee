// Takes the bytes of tensors out of a serialised ModelProto before it is parsed, and records their
// positions. So weights are never copied, and protobuf limits neither their size nor the file's.
//
//   Lifted lifted = LiftPayloads(mapped_file, /*limits=*/{}).value();
//   ::onnx::ModelProto model;  ParseMessage(lifted.message, &model);
//   // model.graph().initializer(0).external_data(0): {"athanor.payload", "0"}
//   // lifted.payloads[0]: the position of its bytes in the file
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_WIRE_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace athanor::onnx {

// A range of one of an upload's files; file 0 is the model.
struct PayloadRef {
  int file = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  // TensorProto field that held it: raw_data (9), or packed float_data (4), int32_data (5),
  // int64_data (7), double_data (10), uint64_data (11).
  uint32_t field = 9;
  bool operator==(const PayloadRef&) const = default;
};

struct LiftLimits {
  int64_t max_message_bytes = 32 << 20;  // bytes of the message without payloads
  int64_t max_payloads = 200'000;
  int max_nesting = 100;        // nesting depth of messages
  int64_t inline_bytes = 1024;  // tensors of at most this many bytes stay in the message
};

inline constexpr std::string_view kPayloadKey = "athanor.payload";

struct Lifted {
  std::string message;  // a ModelProto
  std::vector<PayloadRef> payloads;
};

// INVALID_ARGUMENT names the field whose bytes are cut off or malformed
// ("graph.initializer[3].raw_data: 4096 bytes stated, 100 left"), or an external_data key that is
// reserved for this server. RESOURCE_EXHAUSTED names a limit. Takes time linear in the number of
// fields, not in their bytes; not recursive. Thread-safe.
absl::StatusOr<Lifted> LiftPayloads(std::string_view model, const LiftLimits& limits);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_WIRE_H_
