#include "compiler/frontend/contents.h"

#include <array>
#include <limits>
#include <string>

#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

struct FieldCount {
  std::string_view name;
  int count;
};

std::array<FieldCount, 8> FieldCounts(const inference::InferTensorContents& c) {
  return {{{"bool_contents", c.bool_contents_size()},
           {"int_contents", c.int_contents_size()},
           {"int64_contents", c.int64_contents_size()},
           {"uint_contents", c.uint_contents_size()},
           {"uint64_contents", c.uint64_contents_size()},
           {"fp32_contents", c.fp32_contents_size()},
           {"fp64_contents", c.fp64_contents_size()},
           {"bytes_contents", c.bytes_contents_size()}}};
}

template <typename Field>
std::string_view ViewOf(const Field& field) {
  if (field.empty()) return {};
  return {reinterpret_cast<const char*>(field.data()), field.size() * sizeof(*field.data())};
}

template <typename Narrow, typename Field>
absl::StatusOr<std::string_view> NarrowTo(const Field& field, std::string_view datatype,
                                          std::vector<std::unique_ptr<char[]>>* owned) {
  auto buffer = std::make_unique<char[]>(field.size() * sizeof(Narrow));
  auto* out = reinterpret_cast<Narrow*>(buffer.get());
  for (int i = 0; i < field.size(); ++i) {
    const auto narrow = static_cast<Narrow>(field[i]);
    if (static_cast<int64_t>(narrow) != static_cast<int64_t>(field[i])) {
      return Invalid("element ", i, " is ", field[i], ", which ", datatype,
                     " cannot hold; it must "
                     "be in [",
                     +std::numeric_limits<Narrow>::min(), ", ", +std::numeric_limits<Narrow>::max(),
                     "]");
    }
    out[i] = narrow;
  }
  owned->push_back(std::move(buffer));
  return std::string_view(owned->back().get(), field.size() * sizeof(Narrow));
}

}  // namespace

bool HasContents(const inference::InferTensorContents& contents) {
  for (const FieldCount& field : FieldCounts(contents)) {
    if (field.count > 0) return true;
  }
  return false;
}

absl::StatusOr<std::string_view> ContentsBytes(const inference::InferTensorContents& contents,
                                               const DatatypeRow& datatype, int64_t elements,
                                               std::vector<std::unique_ptr<char[]>>* owned) {
  const std::string_view wanted = ContentsField(datatype.contents);
  int count = 0;
  for (const FieldCount& field : FieldCounts(contents)) {
    if (field.name == wanted) {
      count = field.count;
    } else if (field.count > 0) {
      return Invalid("contents are in ", field.name, "; ", datatype.name, " is sent in ", wanted);
    }
  }
  if (count != elements) {
    return Invalid(wanted, " has ", count, " elements; the shape needs ", elements);
  }
  switch (datatype.dtype) {
    case DType::kBool:
      return ViewOf(contents.bool_contents());
    case DType::kI8:
      return NarrowTo<int8_t>(contents.int_contents(), datatype.name, owned);
    case DType::kI16:
      return NarrowTo<int16_t>(contents.int_contents(), datatype.name, owned);
    case DType::kI32:
      return ViewOf(contents.int_contents());
    case DType::kI64:
      return ViewOf(contents.int64_contents());
    case DType::kU8:
      return NarrowTo<uint8_t>(contents.uint_contents(), datatype.name, owned);
    case DType::kU16:
      return NarrowTo<uint16_t>(contents.uint_contents(), datatype.name, owned);
    case DType::kU32:
      return ViewOf(contents.uint_contents());
    case DType::kU64:
      return ViewOf(contents.uint64_contents());
    case DType::kF32:
      return ViewOf(contents.fp32_contents());
    case DType::kF64:
      return ViewOf(contents.fp64_contents());
    default:
      return std::string_view();  // raw only, and `elements` is 0
  }
}

}  // namespace athanor
