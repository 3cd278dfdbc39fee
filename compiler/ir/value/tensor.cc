#include "compiler/ir/value/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace athanor {
namespace {

// A binary floating-point format of at most 16 bits with subnormals. `infinity` is the code of
// +infinity, or of the only NaN if the format has no infinity (f8e4m3).
struct SmallFloat {
  int mantissa_bits;
  int bias;
  uint64_t sign;
  uint64_t infinity;
  uint64_t nan;
};

constexpr SmallFloat kF16Format = {10, 15, 0x8000, 0x7c00, 0x7e00};
constexpr SmallFloat kBF16Format = {7, 127, 0x8000, 0x7f80, 0x7fc0};
constexpr SmallFloat kF8E4M3Format = {3, 7, 0x80, 0x7f, 0x7f};
constexpr SmallFloat kF8E5M2Format = {2, 15, 0x80, 0x7c, 0x7e};
constexpr uint64_t kF8E8M0Nan = 0xff;
constexpr int kF8E8M0Bias = 127;

double DecodeSmall(const SmallFloat& format, uint64_t bits) {
  const double sign = bits & format.sign ? -1 : 1;
  const uint64_t magnitude = bits & (format.sign - 1);
  if (magnitude >= format.infinity) {
    const bool infinite = magnitude == format.infinity && format.infinity != format.nan;
    return std::copysign(infinite ? std::numeric_limits<double>::infinity()
                                  : std::numeric_limits<double>::quiet_NaN(),
                         sign);
  }
  const uint64_t mantissa = magnitude & ((uint64_t{1} << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint64_t hidden = exponent == 0 ? 0 : uint64_t{1} << format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(hidden | mantissa),
                           std::max(exponent, 1) - format.bias - format.mantissa_bits);
}

// value >> shift, rounded to nearest, ties to even.
uint64_t ShiftRounded(uint64_t value, int shift) {
  if (shift > 62) return 0;
  const uint64_t half = uint64_t{1} << (shift - 1);
  const uint64_t rest = value & (2 * half - 1);
  const uint64_t result = value >> shift;
  return result + (rest > half || (rest == half && (result & 1)));
}

uint64_t EncodeSmall(const SmallFloat& format, double value) {
  const uint64_t sign = std::signbit(value) ? format.sign : 0;
  if (std::isnan(value)) return sign | format.nan;
  if (std::isinf(value)) return sign | format.infinity;
  if (value == 0) return sign;
  int exponent;
  // |value| = significand * 2^(exponent - 53), the significand below 2^53.
  const double fraction = std::frexp(std::fabs(value), &exponent);
  const auto significand = static_cast<uint64_t>(std::ldexp(fraction, 53));
  const int biased = std::max(exponent - 1 + format.bias, 1);
  const int quantum = biased - format.bias - format.mantissa_bits;
  const uint64_t rounded = ShiftRounded(significand, quantum - (exponent - 53));
  // A carry out of the mantissa raises the exponent by plain addition, from subnormals too.
  const uint64_t code = (static_cast<uint64_t>(biased - 1) << format.mantissa_bits) + rounded;
  return sign | std::min(code, format.infinity);
}

// Powers of two only: no sign, no zero, no infinity. Values below the smallest power, zero too,
// become the smallest. Ties go to the larger.
uint64_t EncodeF8E8M0(double value) {
  if (std::isnan(value) || std::isinf(value) || value < 0) return kF8E8M0Nan;
  if (value <= std::ldexp(1.0, -kF8E8M0Bias)) return 0;
  int exponent;
  const double fraction = std::frexp(value, &exponent);  // value = 2 * fraction * 2^(exponent - 1)
  const auto code = static_cast<uint64_t>(exponent - 1 + kF8E8M0Bias);
  return std::min(code + (fraction >= 0.75), kF8E8M0Nan);
}

template <typename T>
T Load(const Tensor& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

uint64_t LoadBits(const Tensor& tensor, int64_t index) {
  switch (DTypeBytes(tensor.dtype)) {
    case 1:
      return Load<uint8_t>(tensor, index);
    case 2:
      return Load<uint16_t>(tensor, index);
    case 4:
      return Load<uint32_t>(tensor, index);
    default:
      return Load<uint64_t>(tensor, index);
  }
}

int64_t SignExtend(uint64_t bits, int bytes) {
  const int unused = 64 - 8 * bytes;
  return static_cast<int64_t>(bits << unused) >> unused;
}

}  // namespace

double DecodeFloat(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kF64:
      return std::bit_cast<double>(bits);
    case DType::kF32:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case DType::kF16:
      return DecodeSmall(kF16Format, bits);
    case DType::kBF16:
      return DecodeSmall(kBF16Format, bits);
    case DType::kF8E4M3:
      return DecodeSmall(kF8E4M3Format, bits);
    case DType::kF8E5M2:
      return DecodeSmall(kF8E5M2Format, bits);
    case DType::kF8E8M0:
      return bits == kF8E8M0Nan ? std::numeric_limits<double>::quiet_NaN()
                                : std::ldexp(1.0, static_cast<int>(bits) - kF8E8M0Bias);
    default:
      return std::numeric_limits<double>::quiet_NaN();  // not a float format
  }
}

uint64_t EncodeFloat(DType dtype, double value) {
  switch (dtype) {
    case DType::kF64:
      return std::bit_cast<uint64_t>(value);
    case DType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::kF16:
      return EncodeSmall(kF16Format, value);
    case DType::kBF16:
      return EncodeSmall(kBF16Format, value);
    case DType::kF8E4M3:
      return EncodeSmall(kF8E4M3Format, value);
    case DType::kF8E5M2:
      return EncodeSmall(kF8E5M2Format, value);
    case DType::kF8E8M0:
      return EncodeF8E8M0(value);
    default:
      return 0;  // not a float format
  }
}

Scalar LoadScalarOfAny(const Tensor& tensor, int64_t index) {
  const uint64_t bits = LoadBits(tensor, index);
  switch (DTypeInfo(tensor.dtype).kind) {
    case DTypeKind::kFloat:
      return Scalar::Float(tensor.dtype, DecodeFloat(tensor.dtype, bits));
    case DTypeKind::kSigned:
      return Scalar::Signed(tensor.dtype, SignExtend(bits, DTypeBytes(tensor.dtype)));
    case DTypeKind::kBool:
      return Scalar::Unsigned(tensor.dtype, bits != 0);
    case DTypeKind::kUnsigned:
      break;
  }
  return Scalar::Unsigned(tensor.dtype, bits);
}

void StoreScalarOfAny(Tensor& tensor, int64_t index, const Scalar& value) {
  // Signed values too: the low bytes of two's complement are the wrapped value.
  uint64_t bits = value.u;
  switch (DTypeInfo(tensor.dtype).kind) {
    case DTypeKind::kFloat:
      bits = EncodeFloat(tensor.dtype, value.f);
      break;
    case DTypeKind::kBool:
      bits = value.u != 0;
      break;
    default:
      break;
  }
  const size_t bytes = DTypeBytes(tensor.dtype);
  std::memcpy(tensor.bytes.data() + index * bytes, &bits, bytes);  // little-endian
}

Scalar LowestScalar(DType dtype) {
  if (IsFloat(dtype)) return Scalar::Float(dtype, -std::numeric_limits<double>::infinity());
  if (!IsSigned(dtype)) return Scalar::Unsigned(dtype, 0);
  return Scalar::Signed(dtype, std::numeric_limits<int64_t>::min() >> (64 - 8 * DTypeBytes(dtype)));
}

}  // namespace athanor
