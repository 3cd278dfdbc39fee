#include "compiler/ir/graph/magnitude.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

// The first bound is wide enough for the weights of any trained model, and narrow enough that a
// product of two and its sum over an axis stay far below the largest f32. The second leaves room
// for products only.
constexpr int kBounds[] = {20, 60};
// Exponents in a graph are in [-kMost, kMost], which covers every f64.
constexpr int kMost = 1100;

struct Format {
  int digits = 0;  // number of bits in the fraction
  int bias = 0;    // exponent bias, which is also the largest exponent
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {10, 15};
    case DType::kBF16:
      return {7, 127};
    case DType::kF32:
      return {23, 127};
    case DType::kF64:
      return {52, 1023};
    default:
      return {};
  }
}

// Returns the largest bit pattern without the sign. Patterns order as the absolute values do, with
// infinity above all numbers and NaN above infinity. Works on whole vectors explicitly, because the
// compiler does not vectorise a loop of unknown length. Patterns are signed, because they are never
// negative and baseline x86-64 compares only signed lanes.
template <typename Bits>
uint64_t LargestPattern(std::string_view contents) {
  using Block [[gnu::vector_size(32)]] = Bits;
  constexpr size_t kUnrolled = 4;
  constexpr Bits kNoSign = static_cast<Bits>(~(uint64_t{1} << (8 * sizeof(Bits) - 1)));
  Block largest[kUnrolled] = {};
  size_t at = 0;
  for (; at + sizeof(largest) <= contents.size(); at += sizeof(largest)) {
    for (size_t i = 0; i < kUnrolled; ++i) {
      Block block;
      std::memcpy(&block, contents.data() + at + i * sizeof(block), sizeof(block));
      block &= kNoSign;
      largest[i] = block > largest[i] ? block : largest[i];
    }
  }
  Bits most = 0;
  for (const Block& lanes : largest) {
    for (size_t i = 0; i < sizeof(Block) / sizeof(Bits); ++i) most = std::max<Bits>(most, lanes[i]);
  }
  for (; at + sizeof(Bits) <= contents.size(); at += sizeof(Bits)) {
    Bits one;
    std::memcpy(&one, contents.data() + at, sizeof(one));
    most = std::max<Bits>(most, one & kNoSign);
  }
  return static_cast<uint64_t>(most);
}

uint64_t LargestPattern(DType dtype, std::string_view contents) {
  switch (DTypeBytes(dtype)) {
    case 2:
      return LargestPattern<int16_t>(contents);
    case 4:
      return LargestPattern<int32_t>(contents);
    default:
      return LargestPattern<int64_t>(contents);
  }
}

}  // namespace

bool HasMagnitude(DType dtype) { return IsFloat(dtype) && Computes(dtype); }

int LargestExponent(DType dtype) {
  if (dtype == DType::kBool) return 0;
  if (!IsFloat(dtype)) return 8 * DTypeBytes(dtype) - (IsSigned(dtype) ? 1 : 0);
  return FormatOf(dtype).bias;
}

std::optional<int> MagnitudeOf(DType dtype, std::string_view contents) {
  MagnitudeFinder finder(dtype);
  finder.Update(contents);
  return finder.Found();
}

void MagnitudeFinder::Update(std::string_view piece) {
  if (!HasMagnitude(dtype_)) return;
  const auto bytes = static_cast<size_t>(DTypeBytes(dtype_));
  if (!rest_.empty()) {
    const size_t missing = std::min(bytes - rest_.size(), piece.size());
    rest_.append(piece.substr(0, missing));
    piece.remove_prefix(missing);
    if (rest_.size() < bytes) return;
    most_ = std::max(most_, LargestPattern(dtype_, rest_));
    rest_.clear();
  }
  const size_t whole = piece.size() / bytes * bytes;
  most_ = std::max(most_, LargestPattern(dtype_, piece.substr(0, whole)));
  rest_ = piece.substr(whole);
}

std::optional<int> MagnitudeFinder::Found() const {
  if (!HasMagnitude(dtype_)) return std::nullopt;
  const Format format = FormatOf(dtype_);
  const auto pattern = [&](int exponent) {
    return static_cast<uint64_t>(exponent + format.bias) << format.digits;
  };
  const int beyond = LargestExponent(dtype_) + 1;  // exponent of an infinity
  if (most_ >= pattern(beyond)) return std::nullopt;
  for (const int bound : kBounds) {
    if (bound >= beyond || most_ <= pattern(bound)) return bound;
  }
  return beyond;
}

std::optional<int> MagnitudeOf(const Node& parameter) {
  if (!IsParameter(parameter.op)) return std::nullopt;
  const auto it = parameter.attrs.find(kMagnitude);
  if (it == parameter.attrs.end()) return std::nullopt;
  return static_cast<int>(std::get<int64_t>(it->second));
}

void SetMagnitude(std::optional<int> magnitude, Node* parameter) {
  if (magnitude) {
    parameter->attrs.insert_or_assign(std::string(kMagnitude), int64_t{*magnitude});
  } else if (const auto it = parameter->attrs.find(kMagnitude); it != parameter->attrs.end()) {
    parameter->attrs.erase(it);
  }
}

absl::Status CheckMagnitude(const TensorType& type, const Attrs& attrs) {
  const auto it = attrs.find(kMagnitude);
  if (it == attrs.end()) return absl::OkStatus();
  if (!HasMagnitude(type.dtype)) {
    return Invalid("attribute ", kMagnitude, ": elements of dtype ", DTypeName(type.dtype),
                   " have none; f16, bf16, f32 and f64 have");
  }
  const auto value = std::get<int64_t>(it->second);
  if (value >= -kMost && value <= kMost) return absl::OkStatus();
  return Invalid("attribute ", kMagnitude, ": is ", value, "; it must be in [", -kMost, ", ", kMost,
                 "]");
}

}  // namespace athanor
