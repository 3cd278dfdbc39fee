// ONNX files as an upload brings them, under small limits.
//
//   std::string problem = FuzzOnnx(model.SerializeAsString(), &stats);
//   // "refused with a wrong code: INTERNAL: ..." or ""
#ifndef ATHANOR_TESTS_FUZZ_ONNX_TARGET_H_
#define ATHANOR_TESTS_FUZZ_ONNX_TARGET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/targets.h"

namespace athanor {

// The files beside each model, for external data: byte i of each is i % 251.
struct OnnxFile {
  std::string_view path;
  int64_t bytes = 0;
};
inline constexpr OnnxFile kOnnxFiles[] = {{"w.bin", 4096}, {"parts/v.bin", 64}};

// `bytes` as a ModelProto: LiftPayloads, ParseOnnx and ImportOnnx in the server's order. Each dim
// gets bounds from 0 or 1 to 4; inputs whose values would settle a refusal get some, and it is
// imported again. What is refused has INVALID_ARGUMENT, UNIMPLEMENTED or RESOURCE_EXHAUSTED and
// texts fit to be shown; what is read of the files is inside them; parameters have the bytes that
// their types need; the graph holds all that FuzzGraph checks, and evaluates to the same, but for
// rounding, after Prepare.
std::string FuzzOnnx(const std::string& bytes, FuzzStats* stats);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_ONNX_TARGET_H_
