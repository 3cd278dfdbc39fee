#include "compiler/ir/value/text_values.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

uint64_t BitsOf(const Tensor& tensor, int64_t index) {
  const size_t bytes = DTypeBytes(tensor.dtype);
  uint64_t bits = 0;
  std::memcpy(&bits, tensor.bytes.data() + index * bytes, bytes);  // little-endian
  return bits;
}

// Parses all of `text` as a T; with base 16 as hexadecimal.
template <typename T, typename... Base>
std::optional<T> ParseNumber(std::string_view text, Base... base) {
  T value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool FitsBytes(uint64_t bits, int bytes) { return bytes == 8 || bits >> (8 * bytes) == 0; }

// Parses text such as "nan(0x7fc00001)".
std::optional<uint64_t> ParseNan(DType dtype, std::string_view text) {
  constexpr std::string_view kOpen = "nan(0x";
  if (text.size() <= kOpen.size() || !text.starts_with(kOpen) || text.back() != ')') {
    return std::nullopt;
  }
  text.remove_prefix(kOpen.size());
  text.remove_suffix(1);
  const std::optional<uint64_t> bits = ParseNumber<uint64_t>(text, 16);
  if (!bits || !FitsBytes(*bits, DTypeBytes(dtype)) || !std::isnan(DecodeFloat(dtype, *bits))) {
    return std::nullopt;
  }
  return bits;
}

}  // namespace

std::string FloatText(DType dtype, uint64_t bits) {
  const double value = DecodeFloat(dtype, bits);
  if (std::isnan(value)) return absl::StrFormat("nan(0x%x)", bits);
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Every float dtype but f64 is a subset of float.
  std::string text = dtype == DType::kF64 ? Cat(value) : Cat(static_cast<float>(value));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::optional<uint64_t> ParseFloat(DType dtype, std::string_view text) {
  if (text.starts_with("nan")) return ParseNan(dtype, text);
  std::optional<double> value;
  if (dtype == DType::kF64) {
    value = ParseNumber<double>(text);
  } else {
    value = ParseNumber<float>(text);
  }
  if (!value || std::isnan(*value)) return std::nullopt;
  const uint64_t bits = EncodeFloat(dtype, *value);
  const double read = DecodeFloat(dtype, bits);
  if (std::isnan(read) || std::isinf(read) != std::isinf(*value)) return std::nullopt;
  return bits;
}

std::string ElementText(const Tensor& tensor, int64_t index) {
  const Scalar value = LoadScalar(tensor, index);
  switch (DTypeInfo(tensor.dtype).kind) {
    case DTypeKind::kFloat:
      return FloatText(tensor.dtype, BitsOf(tensor, index));
    case DTypeKind::kSigned:
      return Cat(value.i);
    case DTypeKind::kBool:
      return value.u ? "true" : "false";
    case DTypeKind::kUnsigned:
      break;
  }
  return Cat(value.u);
}

bool AppendElement(DType dtype, std::string_view text, std::string* bytes) {
  const int width = DTypeBytes(dtype);
  std::optional<uint64_t> bits;
  switch (DTypeInfo(dtype).kind) {
    case DTypeKind::kFloat:
      bits = ParseFloat(dtype, text);
      break;
    case DTypeKind::kBool:
      if (text == "true" || text == "false") bits = text == "true";
      break;
    case DTypeKind::kUnsigned:
      bits = ParseNumber<uint64_t>(text);
      if (bits && !FitsBytes(*bits, width)) return false;
      break;
    case DTypeKind::kSigned:
      const std::optional<int64_t> value = ParseNumber<int64_t>(text);
      const int64_t most = INT64_MAX >> (64 - 8 * width);
      if (value && *value <= most && *value >= -most - 1) bits = static_cast<uint64_t>(*value);
      break;
  }
  if (!bits) return false;
  bytes->append(reinterpret_cast<const char*>(&*bits), width);  // little-endian
  return true;
}

}  // namespace athanor
