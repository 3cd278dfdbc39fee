// Reads the head of a safetensors file: where its tensors are. The file is 8 bytes with the size of
// the head, the head in JSON, then the tensors' bytes without holes. Source: the documentation of
// the safetensors format.
//
//   std::vector<FileTensor> tensors = ReadSafetensors(bytes, /*file=*/0, file_bytes).value();
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_SAFETENSORS_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_SAFETENSORS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/files/stored.h"

namespace athanor::checkpoint {

struct SafetensorsLimits {
  int64_t max_tensors = 100'000;
  int64_t max_head_bytes = 64 << 20;
};

// Reads the head at the beginning of `bytes`, the first bytes of a file of `file_bytes`. Returns
// OUT_OF_RANGE if the head goes on behind `bytes`, before it reads any of it: calling again with
// more bytes, however often, costs nothing. INVALID_ARGUMENT names what is wrong with the file,
// UNIMPLEMENTED a dtype other than F32, F16, BF16 and its tensor, RESOURCE_EXHAUSTED a limit.
absl::StatusOr<std::vector<FileTensor>> ReadSafetensors(std::string_view bytes, int file,
                                                        int64_t file_bytes,
                                                        const SafetensorsLimits& limits = {});

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_SAFETENSORS_H_
