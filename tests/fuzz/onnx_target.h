// Fuzzes ONNX files as uploads bring them, under small limits.
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

// Size of the files beside each model, for external data; byte i of each is i % 251.
struct OnnxFile {
  std::string_view path;
  int64_t bytes = 0;
};
inline constexpr OnnxFile kOnnxFiles[] = {{"w.bin", 4096}, {"parts/v.bin", 64}};

// Takes `bytes` as a ModelProto through LiftPayloads, ParseOnnx and ImportOnnx in the server's
// order. Each dim gets bounds from 0 or 1 to 4. Inputs whose values would settle a refusal get
// some, and the model is imported again. A refusal must be INVALID_ARGUMENT, UNIMPLEMENTED or
// RESOURCE_EXHAUSTED with a text fit to be shown; reads of the files must stay inside them;
// parameters must have the bytes that their types need; the graph must pass FuzzGraph's checks and
// evaluate, but for rounding, to the same after Prepare.
std::string FuzzOnnx(const std::string& bytes, FuzzStats* stats);

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_ONNX_TARGET_H_
