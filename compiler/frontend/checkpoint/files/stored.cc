#include "compiler/frontend/checkpoint/files/stored.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/value/message.h"

namespace athanor::checkpoint {
namespace {

absl::Status CheckNames(absl::Span<const FileTensor> tensors) {
  absl::flat_hash_set<std::string_view> names;
  for (const FileTensor& tensor : tensors) {
    if (tensor.name.empty()) return Invalid("a tensor has no name");
    if (tensor.name.size() > kMaxTensorName) {
      return Invalid("the name of tensor ", Quoted(tensor.name), " has ", tensor.name.size(),
                     " bytes; at most ", kMaxTensorName, " are supported");
    }
    if (!IsValidUtf8(tensor.name)) {
      return Invalid("the name of tensor ", Quoted(tensor.name), " is not UTF-8");
    }
    if (!names.insert(tensor.name).second) {
      return Invalid("tensor ", Quoted(tensor.name), " is there twice");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> BytesOfShape(Stored stored, absl::Span<const int64_t> shape) {
  const StoredRow& row = StoredInfo(stored);
  const int64_t columns = shape.empty() ? 1 : shape.back();
  if (columns % row.elements != 0) {
    return Invalid("its last axis has size ", columns, "; ", row.name, " needs a multiple of ",
                   row.elements);
  }
  // Bounds the product of all axes, in any order: later stages multiply them in theirs.
  int64_t bytes = row.bytes, elements = 1;
  bool empty = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) return Invalid("its axis ", i, " has size ", shape[i]);
    if (shape[i] == 0) {
      empty = true;
      continue;
    }
    const int64_t blocks = i + 1 == shape.size() ? shape[i] / row.elements : shape[i];
    if (__builtin_mul_overflow(elements, shape[i], &elements) ||
        __builtin_mul_overflow(bytes, blocks, &bytes)) {
      return Invalid("its axes are too large: their product leaves the range of int64");
    }
  }
  return empty ? 0 : bytes;
}

TensorType TypeOfBytes(const FileTensor& tensor) {
  const StoredRow& row = StoredInfo(tensor.stored);
  TensorType type{row.dtype, Shape(tensor.shape.begin(), tensor.shape.end())};
  if (row.quantised()) {
    type.shape.back() = tensor.shape.back() / row.elements;
    type.shape.emplace_back(row.bytes);
  }
  return type;
}

absl::Status CheckTensors(absl::Span<const FileTensor> tensors, int64_t bytes) {
  if (absl::Status names = CheckNames(tensors); !names.ok()) return names;
  std::vector<const FileTensor*> sorted;
  for (const FileTensor& tensor : tensors) {
    if (tensor.offset < 0 || tensor.offset > bytes || tensor.bytes > bytes - tensor.offset) {
      return Invalid("tensor ", Quoted(tensor.name), " has ", tensor.bytes, " bytes at offset ",
                     tensor.offset, ", but the file ends ", bytes, " bytes behind its head");
    }
    if (tensor.bytes > 0) sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const FileTensor* a, const FileTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const FileTensor &before = *sorted[i - 1], &after = *sorted[i];
    if (after.offset - before.offset < before.bytes) {
      return Invalid("tensors ", Quoted(before.name), " and ", Quoted(after.name),
                     " overlap: the first has ", before.bytes, " bytes at offset ", before.offset,
                     ", the second begins at ", after.offset);
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor::checkpoint
