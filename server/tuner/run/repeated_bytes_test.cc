#include "server/tuner/run/repeated_bytes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "gtest/gtest.h"

namespace athanor {
namespace {

// Returns a prime number of 4-byte elements, each with its own number.
std::string Drawn(int64_t elements = 65'521) {
  std::string bytes(elements * 4, '\0');
  for (int32_t i = 0; i < elements; ++i) std::memcpy(bytes.data() + 4 * i, &i, 4);
  return bytes;
}

int32_t At(const RepeatedBytes& repeated, int64_t element) {
  int32_t value;
  std::memcpy(&value, repeated.view().data() + 4 * element, 4);
  return value;
}

TEST(RepeatedBytesTest, WhatIsDrawnInFullIsNotRepeated) {
  for (int64_t elements : {1, 1000, 1024, 65'521}) {
    const auto repeated = RepeatedBytes::Create(elements * 4, {4}, Drawn(elements));
    ASSERT_TRUE(repeated.ok()) << repeated.status();
    EXPECT_EQ(repeated->view(), Drawn(elements));
  }
  EXPECT_EQ(RepeatedBytes::Create(0, {4}, "")->view().size(), 0u);
}

TEST(RepeatedBytesTest, ElementsFollowFromTheirIndex) {
  const int64_t elements = (int64_t{9} << 30) / 4 + 12'345;
  const auto repeated = RepeatedBytes::Create(elements * 4, {4, 4096}, Drawn());
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  const int64_t period = static_cast<int64_t>(repeated->period_bytes()) / 4;
  EXPECT_LT(period, int64_t{1} << 22);
  for (int64_t i = 0; i < elements; i += 10'000'019) {
    ASSERT_EQ(At(*repeated, i), i % period % 65'521) << i;
  }
  EXPECT_EQ(At(*repeated, elements - 1), (elements - 1) % period % 65'521);
}

// A wrong index reads a wrong value: rows off by one or two, and indices that wrapped.
TEST(RepeatedBytesTest, NeighboursAndWrappedIndicesDiffer) {
  for (int64_t row : {1, 64, 1024, 257 * 1024, 263 * 1024}) {
    const int64_t elements = int64_t{5} << 31;
    const auto repeated = RepeatedBytes::Create(elements * 4, {4, row * 4}, Drawn());
    ASSERT_TRUE(repeated.ok()) << repeated.status();
    int64_t equal = 0, looked = 0;
    for (int64_t i = (int64_t{1} << 33) + 7; i < elements; i += 100'000'007) {
      for (int64_t off : {row, 2 * row, int64_t{1} << 30, int64_t{1} << 31, int64_t{1} << 32}) {
        equal += At(*repeated, i) == At(*repeated, i - off);
        ++looked;
      }
    }
    EXPECT_GT(looked, 50);
    EXPECT_EQ(equal, 0) << "rows of " << row;
  }
}

TEST(RepeatedBytesTest, ATebibyteIsMapped) {
  const auto repeated = RepeatedBytes::Create(size_t{1} << 40, {4}, Drawn());
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(At(*repeated, 0), 0);
  EXPECT_LE(repeated->period_bytes(), size_t{48} << 20);
}

TEST(RepeatedBytesTest, TooMuchIsRefusedByItsSize) {
  const auto none = RepeatedBytes::Create(size_t{1} << 46, {4}, Drawn());
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted) << none.status();
  EXPECT_NE(std::string(none.status().message()).find("70368744177664"), std::string::npos);
}

using RepeatedBytesDeathTest = ::testing::Test;

TEST(RepeatedBytesDeathTest, ReadsBeyondAndWritesEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto repeated = RepeatedBytes::Create(10'000, {4}, Drawn());
  ASSERT_TRUE(repeated.ok());
  volatile char* data = const_cast<char*>(repeated->view().data());
  EXPECT_DEATH(data[10'000] = data[10'000] + 0, "");
  EXPECT_DEATH(data[0] = 1, "");
}

}  // namespace
}  // namespace athanor
