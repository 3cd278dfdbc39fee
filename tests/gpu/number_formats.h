// The bits of 16-bit floats, for operands that a test makes.
#ifndef ATHANOR_TESTS_GPU_NUMBER_FORMATS_H_
#define ATHANOR_TESTS_GPU_NUMBER_FORMATS_H_

#include <bit>
#include <cstdint>

namespace athanor {

// Rounds towards zero. REQUIRES: 2^-14 <= |value| < 65536, or zero
constexpr uint16_t F16Bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) == 0) return static_cast<uint16_t>(bits >> 16);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - (112u << 23)) >> 13);
}
constexpr float F16Value(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  if ((bits & 0x7fff) == 0) return std::bit_cast<float>(sign);
  return std::bit_cast<float>(sign | ((uint32_t{bits & 0x7fffu} << 13) + (112u << 23)));
}

// Rounds towards zero.
constexpr uint16_t Bf16Bits(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}
constexpr float Bf16Value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_NUMBER_FORMATS_H_
