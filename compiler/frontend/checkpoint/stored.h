// Tensors of a checkpoint's files: where their bytes lie, and how those stand for numbers.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_STORED_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_STORED_H_

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::checkpoint {

// How bytes stand for numbers. Quantised forms are GGUF's blocks along the last axis.
enum class Stored : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

// A tensor in a file. A reader has checked that its bytes fit shape and form, lie inside the file
// and overlap no other tensor.
struct FileTensor {
  std::string name;
  Stored stored = Stored::kF32;
  std::vector<int64_t> shape;  // outermost axis first
  int file = 0;                // index among the upload's files
  int64_t offset = 0;          // from the file's beginning
  int64_t bytes = 0;
};

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_STORED_H_
