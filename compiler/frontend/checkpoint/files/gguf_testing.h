// Writes GGUF files for tests, right ones and wrong ones.
//
//   GgufWriter w;
//   w.Key("general.architecture", "llama");
//   w.Tensor("a", {2, 3}, /*type=*/0, bytes);
//   std::string file = w.File();
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_GGUF_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_GGUF_TESTING_H_

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace athanor::checkpoint {

class GgufWriter {
 public:
  uint32_t version = 3;
  int64_t alignment = 32;
  std::optional<uint64_t> tensor_count, key_count;  // instead of the right numbers

  template <typename T>
  static std::string Bytes(T number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof(T));
  }
  static std::string Text(std::string_view text) {
    return Bytes<uint64_t>(text.size()) + std::string(text);
  }

  // `bytes` is the value as it is in the file.
  void RawKey(std::string_view key, uint32_t type, std::string_view bytes) {
    keys_ += Text(key) + Bytes(type) + std::string(bytes);
    ++key_number_;
  }
  void Key(std::string_view key, std::string_view value) { RawKey(key, 8, Text(value)); }
  void Key(std::string_view key, uint32_t value) { RawKey(key, 4, Bytes(value)); }
  void Key(std::string_view key, float value) { RawKey(key, 6, Bytes(value)); }
  template <std::same_as<bool> T>  // a literal text is no bool
  void Key(std::string_view key, T value) {
    RawKey(key, 7, Bytes(value));
  }
  void Key(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = Bytes<uint32_t>(8) + Bytes<uint64_t>(values.size());
    for (const std::string& value : values) bytes += Text(value);
    RawKey(key, 9, bytes);
  }

  // `shape` is outermost first. The bytes are put behind those of the tensors before.
  void Tensor(std::string_view name, absl::Span<const int64_t> shape, uint32_t type,
              std::string_view bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    RawTensor(name, shape, type, data_.size());
    data_ += bytes;
  }
  void RawTensor(std::string_view name, absl::Span<const int64_t> shape, uint32_t type,
                 uint64_t offset) {
    tensors_ += Text(name) + Bytes(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) tensors_ += Bytes(shape[i]);
    tensors_ += Bytes(type) + Bytes(offset);
    ++tensor_number_;
  }

  std::string Head() const {
    return "GGUF" + Bytes(version) + Bytes(tensor_count.value_or(tensor_number_)) +
           Bytes(key_count.value_or(key_number_)) + keys_ + tensors_;
  }
  std::string File() const {
    std::string file = Head();
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

 private:
  std::string keys_, tensors_, data_;
  uint64_t key_number_ = 0, tensor_number_ = 0;
};

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_GGUF_TESTING_H_
