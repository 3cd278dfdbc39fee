#include "compiler/frontend/checkpoint/files/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::checkpoint {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr int64_t kMaxKeyBytes = 65535;
constexpr uint32_t kMaxAxes = 4;
constexpr int64_t kMaxAlignment = 1 << 20;

// Types of values, by their numbers.
enum ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
  kValueTypes
};

// Types of tensors that no StoredRow has.
struct OtherType {
  uint32_t number;
  std::string_view name;
};
constexpr OtherType kOtherTypes[] = {
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {24, "I8"},      {25, "I16"},   {26, "I32"},    {28, "F64"},   {29, "IQ1_M"},   {34, "TQ1_0"},
    {35, "TQ2_0"},   {39, "MXFP4"}, {40, "NVFP4"},  {41, "Q1_0"},
};

std::optional<Stored> StoredOfType(uint32_t type) {
  for (const StoredRow& row : kStored) {
    if (row.gguf == type) return row.stored;
  }
  return std::nullopt;
}

std::string TypeName(uint32_t type) {
  for (const OtherType& other : kOtherTypes) {
    if (other.number == type) return std::string(other.name);
  }
  return Cat("number ", type);
}

class HeadReader {
 public:
  HeadReader(std::string_view bytes, int file, int64_t file_bytes, const GgufLimits& limits)
      : bytes_(bytes), file_(file), file_bytes_(file_bytes), limits_(limits) {}

  absl::StatusOr<Gguf> Read();

 private:
  // Returns the next `size` bytes.
  absl::StatusOr<std::string_view> Take(uint64_t size);
  // Refuses `count` things of at least `each` bytes that the file cannot hold.
  absl::Status CheckCount(std::string_view of, uint64_t count, uint64_t each, int64_t limit) const;
  template <typename T>
  absl::StatusOr<T> Number();
  absl::StatusOr<std::string_view> String();
  template <typename Element, typename Kept>
  absl::StatusOr<std::vector<Kept>> Numbers(uint64_t count);

  absl::Status ReadStart();
  absl::Status ReadKey();
  absl::StatusOr<GgufValue> ReadValue(uint32_t type);
  absl::StatusOr<GgufValue> ReadArray();
  absl::StatusOr<int64_t> Alignment() const;
  absl::StatusOr<FileTensor> ReadTensor(int64_t alignment);

  const std::string_view bytes_;
  const int file_;
  const int64_t file_bytes_;
  const GgufLimits limits_;
  uint64_t at_ = 0;
  int64_t elements_ = 0;
  uint64_t tensors_ = 0, keys_ = 0;
  Gguf head_;
};

absl::StatusOr<std::string_view> HeadReader::Take(uint64_t size) {
  if (size > static_cast<uint64_t>(file_bytes_) - at_) {
    return Invalid("the file ends inside its head: ", size, " bytes are to come at offset ", at_,
                   ", and the file has ", file_bytes_);
  }
  if (at_ + size > static_cast<uint64_t>(limits_.max_head_bytes)) {
    return absl::ResourceExhaustedError(
        Cat("the head has more than ", limits_.max_head_bytes, " bytes"));
  }
  if (size > bytes_.size() - at_) {
    return absl::OutOfRangeError(
        Cat("the head goes on behind the ", bytes_.size(), " bytes that are there"));
  }
  const std::string_view taken = bytes_.substr(at_, size);
  at_ += size;
  return taken;
}

absl::Status HeadReader::CheckCount(std::string_view of, uint64_t count, uint64_t each,
                                    int64_t limit) const {
  if (count > (static_cast<uint64_t>(file_bytes_) - at_) / each) {
    return Invalid("the file states ", count, " ", of, " at offset ", at_, ", but has only ",
                   file_bytes_, " bytes");
  }
  if (count > static_cast<uint64_t>(limit)) {
    return absl::ResourceExhaustedError(
        Cat("the file states ", count, " ", of, "; at most ", limit, " are supported"));
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<T> HeadReader::Number() {
  ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T)));
  T number;
  std::memcpy(&number, bytes.data(), sizeof(T));
  return number;
}

absl::StatusOr<std::string_view> HeadReader::String() {
  ASSIGN_OR_RETURN(const uint64_t size, Number<uint64_t>());
  return Take(size);
}

// Converts a number to the type that a value keeps.
template <typename Kept, typename Element>
absl::StatusOr<Kept> Keep(Element number) {
  if constexpr (std::is_same_v<Element, uint64_t>) {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Invalid("its value ", number, " is beyond int64");
    }
  }
  if constexpr (std::is_same_v<Kept, bool>) {
    if (number > 1) return Invalid("a bool has the byte ", number, "; only 0 and 1 are bools");
  }
  return static_cast<Kept>(number);
}

template <typename Element, typename Kept>
absl::StatusOr<std::vector<Kept>> HeadReader::Numbers(uint64_t count) {
  ASSIGN_OR_RETURN(const std::string_view bytes, Take(count * sizeof(Element)));
  std::vector<Kept> numbers;
  numbers.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    Element number;
    std::memcpy(&number, bytes.data() + i * sizeof(Element), sizeof(Element));
    ASSIGN_OR_RETURN(const Kept kept, (Keep<Kept, Element>(number)));
    numbers.push_back(kept);
  }
  return numbers;
}

// Calls `use` with an element of the type's representation and one of the type that is kept.
template <typename Use>
absl::StatusOr<GgufValue> OfType(uint32_t type, const Use& use) {
  switch (type) {
    case kUint8:
      return use(uint8_t{}, int64_t{});
    case kInt8:
      return use(int8_t{}, int64_t{});
    case kUint16:
      return use(uint16_t{}, int64_t{});
    case kInt16:
      return use(int16_t{}, int64_t{});
    case kUint32:
      return use(uint32_t{}, int64_t{});
    case kInt32:
      return use(int32_t{}, int64_t{});
    case kUint64:
      return use(uint64_t{}, int64_t{});
    case kInt64:
      return use(int64_t{}, int64_t{});
    case kFloat32:
      return use(float{}, double{});
    case kFloat64:
      return use(double{}, double{});
    case kBool:
      return use(uint8_t{}, bool{});
    default:
      return Unimplemented("a value has type ", type, "; types 0 to ", kValueTypes - 1,
                           " are supported");
  }
}

absl::StatusOr<GgufValue> HeadReader::ReadArray() {
  ASSIGN_OR_RETURN(const uint32_t type, Number<uint32_t>());
  ASSIGN_OR_RETURN(const uint64_t count, Number<uint64_t>());
  if (type == kArray) return Unimplemented("it is an array of arrays, which is not supported");
  RETURN_IF_ERROR(CheckCount("elements of an array", count, type == kString ? sizeof(uint64_t) : 1,
                             limits_.max_elements - elements_));
  elements_ += static_cast<int64_t>(count);
  if (type != kString) {
    return OfType(type, [&](auto element, auto kept) -> absl::StatusOr<GgufValue> {
      return Numbers<decltype(element), decltype(kept)>(count);
    });
  }
  std::vector<std::string> strings;
  strings.reserve(std::min<uint64_t>(count, (bytes_.size() - at_) / sizeof(uint64_t)));
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const std::string_view string, String());
    strings.emplace_back(string);
  }
  return strings;
}

absl::StatusOr<GgufValue> HeadReader::ReadValue(uint32_t type) {
  if (type == kArray) return ReadArray();
  if (type == kString) {
    ASSIGN_OR_RETURN(const std::string_view string, String());
    return std::string(string);
  }
  return OfType(type, [&](auto element, auto kept) -> absl::StatusOr<GgufValue> {
    ASSIGN_OR_RETURN(const auto number, Number<decltype(element)>());
    return Keep<decltype(kept)>(number);
  });
}

absl::Status HeadReader::ReadStart() {
  ASSIGN_OR_RETURN(const std::string_view magic, Take(kMagic.size()));
  if (magic != kMagic) return Invalid("the file does not begin with \"GGUF\"");
  ASSIGN_OR_RETURN(const uint32_t version, Number<uint32_t>());
  if (version != 0 && (version & 0xffff) == 0) {
    return Unimplemented("the file is big endian; only little endian files are supported");
  }
  if (version != 2 && version != 3) {
    return Unimplemented("the file has GGUF version ", version, "; 2 and 3 are supported");
  }
  ASSIGN_OR_RETURN(tensors_, Number<uint64_t>());
  ASSIGN_OR_RETURN(keys_, Number<uint64_t>());
  constexpr uint64_t kLeastKey = 8 + 1 + 4 + 1, kLeastTensor = 8 + 1 + 4 + 4 + 8;
  RETURN_IF_ERROR(CheckCount("tensors", tensors_, kLeastTensor, limits_.max_tensors));
  return CheckCount("keys", keys_, kLeastKey, limits_.max_keys);
}

absl::Status HeadReader::ReadKey() {
  ASSIGN_OR_RETURN(const std::string_view key, String());
  if (key.empty() || key.size() > kMaxKeyBytes || !IsValidUtf8(key)) {
    return Invalid("key ", Quoted(key), " is not 1 to ", kMaxKeyBytes, " bytes of UTF-8");
  }
  ASSIGN_OR_RETURN(const uint32_t type, Number<uint32_t>());
  absl::StatusOr<GgufValue> value = ReadValue(type);
  if (!value.ok()) return Prefixed(Cat("key ", Quoted(key), ": "), value.status());
  if (!head_.keys.emplace(key, *std::move(value)).second) {
    return Invalid("key ", Quoted(key), " is there twice");
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> HeadReader::Alignment() const {
  const GgufValue* value = head_.Find("general.alignment");
  if (value == nullptr) return 32;
  const auto* alignment = std::get_if<int64_t>(value);
  if (alignment == nullptr || *alignment < 1 || *alignment > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return Invalid("key \"general.alignment\" must be a power of 2 up to ", kMaxAlignment);
  }
  return *alignment;
}

// Leaves the tensor's offset as the file states it: from the end of the head.
absl::StatusOr<FileTensor> HeadReader::ReadTensor(int64_t alignment) {
  FileTensor tensor;
  tensor.file = file_;
  ASSIGN_OR_RETURN(tensor.name, String());
  ASSIGN_OR_RETURN(const uint32_t axes, Number<uint32_t>());
  const std::string of_name = Cat("tensor ", Quoted(tensor.name), ": ");
  if (axes > kMaxAxes) return Invalid(of_name, "it has ", axes, " axes; a file has at most 4");
  for (uint32_t i = 0; i < axes; ++i) {
    ASSIGN_OR_RETURN(const int64_t size, Number<int64_t>());
    tensor.shape.insert(tensor.shape.begin(), size);
  }
  ASSIGN_OR_RETURN(const uint32_t type, Number<uint32_t>());
  ASSIGN_OR_RETURN(tensor.offset, Number<int64_t>());
  const std::optional<Stored> stored = StoredOfType(type);
  if (!stored.has_value()) {
    return Unimplemented(of_name, "its type ", TypeName(type), " is not supported");
  }
  tensor.stored = *stored;
  absl::StatusOr<int64_t> bytes = BytesOfShape(tensor.stored, tensor.shape);
  if (!bytes.ok()) return Prefixed(of_name, bytes.status());
  tensor.bytes = *bytes;
  if (tensor.offset < 0 || tensor.offset % alignment != 0) {
    return Invalid(of_name, "its offset ", tensor.offset, " is not a multiple of ", alignment,
                   ", the file's alignment");
  }
  return tensor;
}

absl::StatusOr<Gguf> HeadReader::Read() {
  RETURN_IF_ERROR(ReadStart());
  for (uint64_t i = 0; i < keys_; ++i) RETURN_IF_ERROR(ReadKey());
  ASSIGN_OR_RETURN(const int64_t alignment, Alignment());
  for (uint64_t i = 0; i < tensors_; ++i) {
    ASSIGN_OR_RETURN(FileTensor tensor, ReadTensor(alignment));
    head_.tensors.push_back(std::move(tensor));
  }
  const int64_t begin = (static_cast<int64_t>(at_) + alignment - 1) / alignment * alignment;
  RETURN_IF_ERROR(CheckTensors(head_.tensors, std::max<int64_t>(file_bytes_ - begin, 0)));
  for (FileTensor& tensor : head_.tensors) tensor.offset += begin;
  head_.head_bytes = std::min(begin, file_bytes_);  // an empty file may lack the padding
  return std::move(head_);
}

}  // namespace

absl::StatusOr<Gguf> ReadGguf(std::string_view bytes, int file, int64_t file_bytes,
                              const GgufLimits& limits) {
  if (file_bytes < static_cast<int64_t>(bytes.size())) {
    return Invalid("the file is said to have ", file_bytes, " bytes, but ", bytes.size(),
                   " are there");
  }
  return HeadReader(bytes, file, file_bytes, limits).Read();
}

}  // namespace athanor::checkpoint
