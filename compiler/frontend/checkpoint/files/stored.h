// Tensors of a checkpoint's files: where their bytes lie, and how those stand for numbers.
//
//   const StoredRow& row = StoredInfo(Stored::kQ4_1);   // blocks of 32 elements in 20 bytes
//   TypeOfBytes(tensor)          // u8[49152, 18, 20] of a Q4_1 tensor [49152, 576]
//
// Sources: ggml's block structures and GGUF documentation, the safetensors format.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_STORED_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_STORED_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/op.h"

namespace athanor::checkpoint {

// Every form: name in files, dtype of a parameter that holds it, elements and bytes of a block, its
// number in GGUF. Blocks lie along the last axis; a form of numbers has blocks of one element.
#define ATHANOR_STORED(X)             \
  X(kF32, "F32", kF32, 1, 4, 0)       \
  X(kF16, "F16", kF16, 1, 2, 1)       \
  X(kBF16, "BF16", kBF16, 1, 2, 30)   \
  X(kQ4_0, "Q4_0", kU8, 32, 18, 2)    \
  X(kQ4_1, "Q4_1", kU8, 32, 20, 3)    \
  X(kQ5_0, "Q5_0", kU8, 32, 22, 6)    \
  X(kQ5_1, "Q5_1", kU8, 32, 24, 7)    \
  X(kQ8_0, "Q8_0", kU8, 32, 34, 8)    \
  X(kQ4_K, "Q4_K", kU8, 256, 144, 12) \
  X(kQ5_K, "Q5_K", kU8, 256, 176, 13) \
  X(kQ6_K, "Q6_K", kU8, 256, 210, 14) \
  X(kI64, "I64", kI64, 1, 8, 27)

enum class Stored : uint8_t {
#define ATHANOR_X(stored, name, dtype, elements, bytes, gguf) stored,
  ATHANOR_STORED(ATHANOR_X)
#undef ATHANOR_X
};

struct StoredRow {
  Stored stored;
  std::string_view name;
  DType dtype;
  int64_t elements, bytes;  // of a block
  uint32_t gguf;

  bool quantised() const { return elements > 1; }
};

inline constexpr StoredRow kStored[] = {
#define ATHANOR_X(stored, name, dtype, elements, bytes, gguf) \
  {Stored::stored, name, DType::dtype, elements, bytes, gguf},
    ATHANOR_STORED(ATHANOR_X)
#undef ATHANOR_X
};

constexpr const StoredRow& StoredInfo(Stored stored) { return kStored[static_cast<int>(stored)]; }
// Integers are in files as buffers that nothing reads, such as the numbers of positions.
constexpr bool HoldsWeights(Stored stored) { return stored != Stored::kI64; }

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

// Returns the bytes of a tensor. INVALID_ARGUMENT: an axis is negative, the last one is not whole
// blocks, or the elements or bytes are more than int64 can count, empty axes aside.
absl::StatusOr<int64_t> BytesOfShape(Stored stored, absl::Span<const int64_t> shape);

// Returns the type of a parameter that holds the tensor's bytes: numbers in the tensor's own shape,
// or u8 [rows.., blocks, bytes of a block], which Decode reads (decode.h).
TensorType TypeOfBytes(const FileTensor& tensor);

// Checks the tensors of one file, whose offsets are still those from the end of its head, behind
// which come `bytes`: names are UTF-8, not empty, of at most kMaxTensorName bytes and given once;
// tensors lie inside and overlap nowhere. INVALID_ARGUMENT names the tensor.
inline constexpr int64_t kMaxTensorName = 1024;
absl::Status CheckTensors(absl::Span<const FileTensor> tensors, int64_t bytes);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_STORED_H_
