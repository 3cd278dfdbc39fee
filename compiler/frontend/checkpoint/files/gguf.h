// Reads the head of a GGUF file: its keys, and where its tensors are. Versions 2 and 3, little
// endian. Source: the GGUF specification in ggml's documentation.
//
//   Gguf head = ReadGguf(bytes, /*file=*/0, file_bytes, limits).value();
//   const GgufValue* name = head.Find("general.architecture");
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_GGUF_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_GGUF_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/files/stored.h"

namespace athanor::checkpoint {

// A key's value. Integers of all widths are int64_t; a uint64 beyond it is refused.
using GgufValue = std::variant<bool, int64_t, double, std::string, std::vector<bool>,
                               std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;

struct GgufLimits {
  int64_t max_keys = 10'000;
  int64_t max_tensors = 100'000;
  int64_t max_elements = 8 << 20;  // of all arrays together
  int64_t max_head_bytes = 64 << 20;
};

struct Gguf {
  std::map<std::string, GgufValue, std::less<>> keys;
  std::vector<FileTensor> tensors;  // as listed
  int64_t head_bytes = 0;           // with its padding; tensors begin behind it

  const GgufValue* Find(std::string_view key) const {
    const auto it = keys.find(key);
    return it == keys.end() ? nullptr : &it->second;
  }
};

// Reads the head at the beginning of `bytes`, the first bytes of a file of `file_bytes`. Returns
// OUT_OF_RANGE if the head goes on behind `bytes`, so that more of a file that still arrives may
// help: a call takes time linear in `bytes`, so calling again each time they have doubled is linear
// in the head. INVALID_ARGUMENT names what is wrong with the file, UNIMPLEMENTED a version, byte
// order, type of tensor or of value that is not supported, RESOURCE_EXHAUSTED a limit. Checks every
// length, offset and count before it is used. Arrays of arrays are UNIMPLEMENTED.
absl::StatusOr<Gguf> ReadGguf(std::string_view bytes, int file, int64_t file_bytes,
                              const GgufLimits& limits = {});

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_GGUF_H_
