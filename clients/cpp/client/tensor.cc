#include "clients/cpp/client/tensor.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

constexpr ClientDType kDTypes[] = {
    {"bool", "BOOL", "|b1", 1, NumberKind::kBool},
    {"i8", "INT8", "|i1", 1, NumberKind::kSigned},
    {"u8", "UINT8", "|u1", 1, NumberKind::kUnsigned},
    {"i16", "INT16", "<i2", 2, NumberKind::kSigned},
    {"u16", "UINT16", "<u2", 2, NumberKind::kUnsigned},
    {"i32", "INT32", "<i4", 4, NumberKind::kSigned},
    {"u32", "UINT32", "<u4", 4, NumberKind::kUnsigned},
    {"i64", "INT64", "<i8", 8, NumberKind::kSigned},
    {"u64", "UINT64", "<u8", 8, NumberKind::kUnsigned},
    {"f16", "FP16", "<f2", 2, NumberKind::kFloat},
    {"bf16", "BF16", "<V2", 2, NumberKind::kFloat},  // numpy has none: two plain bytes
    {"f32", "FP32", "<f4", 4, NumberKind::kFloat},
    {"f64", "FP64", "<f8", 8, NumberKind::kFloat},
};

// A binary float format narrower than double: exponent bits, stored mantissa bits.
struct Narrow {
  int exponent, mantissa;
};
constexpr Narrow kF16 = {5, 10};
constexpr Narrow kBF16 = {8, 7};

double Decode(uint16_t bits, Narrow format) {
  const int bias = (1 << (format.exponent - 1)) - 1;
  const int top = (1 << format.exponent) - 1;
  const int exponent = (bits >> format.mantissa) & top;
  const int fraction = bits & ((1 << format.mantissa) - 1);
  double value;
  if (exponent == top) {
    value = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                          : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - format.mantissa);
  } else {
    value = std::ldexp((1 << format.mantissa) + fraction, exponent - bias - format.mantissa);
  }
  return (bits >> 15) != 0 ? -value : value;
}

// Rounds once, to nearest even.
uint16_t Encode(double value, Narrow format) {
  const int bias = (1 << (format.exponent - 1)) - 1;
  const int top = (1 << format.exponent) - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = static_cast<uint16_t>(top << format.mantissa);
  if (std::isnan(value)) return sign | infinity | (1 << (format.mantissa - 1));
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // In units of the last place; the implied bit carries into the exponent field by itself.
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent));
  const int64_t code =
      (static_cast<int64_t>(exponent + bias - 1) << format.mantissa) + static_cast<int64_t>(units);
  return sign | (code >= infinity ? infinity : static_cast<uint16_t>(code));
}

template <typename T>
T Load(const Tensor& tensor, int64_t i) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Append(T value, Tensor* tensor) {
  tensor->bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
bool InRange(T low, T value, T high) {
  return low <= value && value <= high;
}

absl::Status BadElement(absl::string_view text, const Tensor& tensor, absl::string_view right) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not an element of ", tensor.dtype, "; it must be ", right));
}

absl::Status AppendInteger(absl::string_view text, const ClientDType& row, Tensor* tensor) {
  const int bits = row.bytes * 8;
  if (row.kind == NumberKind::kSigned) {
    int64_t value;
    const int64_t high =
        bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
    if (!absl::SimpleAtoi(text, &value) || !InRange(-high - 1, value, high)) {
      return BadElement(text, *tensor, absl::StrCat("an integer in [", -high - 1, ", ", high, "]"));
    }
    tensor->bytes.append(reinterpret_cast<const char*>(&value), row.bytes);
    return absl::OkStatus();
  }
  uint64_t value;
  const uint64_t high =
      bits == 64 ? std::numeric_limits<uint64_t>::max() : (uint64_t{1} << bits) - 1;
  if (!absl::SimpleAtoi(text, &value) || value > high) {
    return BadElement(text, *tensor, absl::StrCat("an integer in [0, ", high, "]"));
  }
  tensor->bytes.append(reinterpret_cast<const char*>(&value), row.bytes);
  return absl::OkStatus();
}

}  // namespace

absl::Span<const ClientDType> ClientDTypes() { return kDTypes; }

const ClientDType* FindDType(absl::string_view name) {
  for (const ClientDType& row : kDTypes) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const ClientDType* FindDatatype(absl::string_view datatype) {
  for (const ClientDType& row : kDTypes) {
    if (row.datatype == datatype) return &row;
  }
  return nullptr;
}

absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape [", absl::StrJoin(shape, ", "),
                       "] is negative or has more elements than a 64-bit number can count"));
    }
  }
  return count;
}

absl::Status CheckTensor(const Tensor& tensor) {
  const ClientDType* row = FindDType(tensor.dtype);
  if (row == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", tensor.dtype, "\" is not a dtype that can be sent"));
  }
  ASSIGN_OR_RETURN(int64_t count, ElementCount(tensor.shape));
  int64_t bytes;
  if (__builtin_mul_overflow(count, int64_t{row->bytes}, &bytes) ||
      bytes != static_cast<int64_t>(tensor.bytes.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(TensorTypeText(tensor.dtype, tensor.shape), " needs ", count, " elements of ",
                     row->bytes, " bytes, but ", tensor.bytes.size(), " bytes were given"));
  }
  return absl::OkStatus();
}

std::string TensorTypeText(absl::string_view dtype, absl::Span<const int64_t> shape) {
  return absl::StrCat(dtype, "[", absl::StrJoin(shape, ", "), "]");
}

std::string ElementText(const Tensor& tensor, int64_t i) {
  const absl::string_view name = tensor.dtype;
  if (name == "bool") return Load<uint8_t>(tensor, i) != 0 ? "true" : "false";
  if (name == "i8") return absl::StrCat(Load<int8_t>(tensor, i));
  if (name == "u8") return absl::StrCat(Load<uint8_t>(tensor, i));
  if (name == "i16") return absl::StrCat(Load<int16_t>(tensor, i));
  if (name == "u16") return absl::StrCat(Load<uint16_t>(tensor, i));
  if (name == "i32") return absl::StrCat(Load<int32_t>(tensor, i));
  if (name == "u32") return absl::StrCat(Load<uint32_t>(tensor, i));
  if (name == "i64") return absl::StrCat(Load<int64_t>(tensor, i));
  if (name == "u64") return absl::StrCat(Load<uint64_t>(tensor, i));
  // As many digits as tell every two values apart.
  if (name == "f16") return absl::StrFormat("%.5g", Decode(Load<uint16_t>(tensor, i), kF16));
  if (name == "bf16") return absl::StrFormat("%.4g", Decode(Load<uint16_t>(tensor, i), kBF16));
  if (name == "f32") return absl::StrFormat("%.9g", Load<float>(tensor, i));
  return absl::StrFormat("%.17g", Load<double>(tensor, i));
}

absl::Status AppendElement(absl::string_view text, Tensor* tensor) {
  const ClientDType* row = FindDType(tensor->dtype);
  if (row == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", tensor->dtype, "\" is not a dtype that can be sent"));
  }
  if (row->kind == NumberKind::kBool) {
    const bool yes = text == "true" || text == "1";
    if (!yes && text != "false" && text != "0") return BadElement(text, *tensor, "true or false");
    tensor->bytes.push_back(yes ? 1 : 0);
    return absl::OkStatus();
  }
  if (row->kind != NumberKind::kFloat) return AppendInteger(text, *row, tensor);
  double value;
  if (!absl::SimpleAtod(text, &value)) return BadElement(text, *tensor, "a number, inf or nan");
  float narrow;
  if (row->name == "f64") {
    Append(value, tensor);
  } else if (row->name == "f32" && absl::SimpleAtof(text, &narrow)) {
    Append(narrow, tensor);
  } else {
    Append(Encode(value, row->name == "f16" ? kF16 : kBF16), tensor);
  }
  return absl::OkStatus();
}

}  // namespace athanor::client
