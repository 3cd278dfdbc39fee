// The formats of checkpoints, and a bound of their sizes.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_FORMAT_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_FORMAT_H_

#include <cstdint>

namespace athanor::checkpoint {

enum class CheckpointFormat : uint8_t {
  kHf,    // config.json, *.safetensors, perhaps generation_config.json and tokenizer files
  kGguf,  // one file
};

// The most of an axis. Positions beyond are not exact in f32.
inline constexpr int64_t kMostSize = 1 << 24;

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_FORMAT_H_
