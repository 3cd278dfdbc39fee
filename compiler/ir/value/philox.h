// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): four random words of a counter and a key, the same on every machine, in any order.
//
//   const uint32_t first = Philox(index, seed)[0];
#ifndef ATHANOR_COMPILER_IR_VALUE_PHILOX_H_
#define ATHANOR_COMPILER_IR_VALUE_PHILOX_H_

#include <array>
#include <cstdint>

namespace athanor {

using PhiloxBlock = std::array<uint32_t, 4>;

// A round: two 32x32 multiplications, their halves crossed and mixed with the key.
inline PhiloxBlock PhiloxRound(const PhiloxBlock& counter, uint32_t key0, uint32_t key1) {
  const uint64_t product0 = uint64_t{0xd2511f53} * counter[0];
  const uint64_t product1 = uint64_t{0xcd9e8d57} * counter[2];
  return {
      static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
      static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
}

inline PhiloxBlock Philox(uint64_t index, uint64_t seed) {
  PhiloxBlock block = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0};
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    block = PhiloxRound(block, key0, key1);
    key0 += 0x9e3779b9;  // the golden ratio
    key1 += 0xbb67ae85;  // sqrt(3) - 1
  }
  return block;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_VALUE_PHILOX_H_
