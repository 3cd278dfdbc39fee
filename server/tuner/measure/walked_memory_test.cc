#include "server/tuner/measure/walked_memory.h"

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/memory/prepared_pool.h"

namespace athanor {
namespace {

// Returns this process's proportional share of shared memory in bytes: a page mapped several times
// counts once.
int64_t SharedBytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string row; file >> row;) {
    int64_t kilobytes = 0;
    if (row == "Pss_Shmem:" && file >> kilobytes) return kilobytes * 1024;
  }
  return -1;
}

std::unique_ptr<WalkedMemory> Memory(absl::string_view contents = "abc") {
  return WalkedMemory::Create(contents).value();
}

TEST(WalkedMemoryTest, RangesHoldTheContentsAgainAndAgain) {
  const auto memory = Memory();
  const char* one = memory->Map(5 << 20).value();
  EXPECT_EQ(absl::string_view(one, 7), "abcabca");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(one) % (2 << 20), 0u);
}

TEST(WalkedMemoryTest, EachRangeBeginsWhereTheOneBeforeEnds) {
  const auto memory = Memory();
  char* first = memory->Map(4 << 20).value();
  char* second = memory->Map(4 << 20).value();
  second[0] = 'x';
  EXPECT_NE(first[0], 'x');  // other pages
  // Maps all pages after these, then the first ones again.
  char* rest = memory->Map(WalkedMemory::kBytes - (8 << 20)).value();
  char* again = memory->Map(1).value();
  rest[0] = 'r';
  first[0] = 'f';
  EXPECT_EQ(again[0], 'f');
  EXPECT_EQ(second[0], 'x');
}

TEST(WalkedMemoryTest, ManyTimesTheMemoryCostsItOnce) {
  const int64_t before = SharedBytes();
  ASSERT_GE(before, 0);
  const auto memory = Memory();
  constexpr size_t kRange = 3 * WalkedMemory::kBytes + 12345;
  char* range = memory->Map(kRange).value();
  std::memset(range, 7, kRange);
  EXPECT_EQ(range[kRange - 1], 7);
  EXPECT_LE(SharedBytes() - before, static_cast<int64_t>(WalkedMemory::kBytes) + (1 << 20));
  EXPECT_GE(SharedBytes() - before, static_cast<int64_t>(WalkedMemory::kBytes) - (1 << 20));
}

TEST(WalkedMemoryTest, IsGoneWithItsObject) {
  const int64_t before = SharedBytes();
  Memory().reset();
  EXPECT_LE(SharedBytes() - before, 1 << 20);
}

TEST(WalkedMemoryTest, OnlyLargePreparedWeightsLieThere) {
  const auto memory = Memory();
  const auto device = FunctionDevice::Make(1);
  WalkedDevice large(device.get(), memory.get());
  PreparedPool pool(device.get(), nullptr, &large);
  const int64_t bytes = PreparedPool::kLargeBlock;
  auto blocks = pool.Allocate({bytes, 100, bytes, bytes - 64, 7}).value();
  ASSERT_EQ(blocks.size(), 5u);
  for (int i : {0, 2}) EXPECT_NE(static_cast<char*>(blocks[i].data())[1], 0) << i;
  for (int i : {1, 3, 4}) EXPECT_EQ(static_cast<char*>(blocks[i].data())[1], 0) << i;
  EXPECT_EQ(pool.bytes(), 3 * bytes - 64 + 128 + 64);
  // Blocks that are not large are adjacent.
  EXPECT_EQ(static_cast<char*>(blocks[3].data()) - static_cast<char*>(blocks[1].data()), 128);
  blocks.clear();
  EXPECT_EQ(pool.bytes(), 0);
  // An arena has memory of its own.
  const auto arena = large.Allocate(MemoryKind::kArena, bytes).value();
  EXPECT_EQ(static_cast<char*>(arena->data())[1], 0);
}

v1::Plan PlanWith(int buffer, const char* dtype, int64_t bytes) {
  v1::Plan plan = RowPlan();
  v1::Buffer& weight = *plan.mutable_buffers(buffer);
  weight.set_dtype(dtype);
  weight.mutable_bytes()->mutable_terms(0)->set_coefficient(bytes);
  return plan;
}

constexpr int kConstant = 2, kPrepared = 3;

TEST(WalkedDTypeTest, IsThatOfAllLargeWeights) {
  const v1::Plan small = PlanWith(kPrepared, "i64", 1 << 20);
  const v1::Plan f32 = PlanWith(kPrepared, "f32", 32 << 20);
  const v1::Plan bf16 = PlanWith(kPrepared, "bf16", PreparedPool::kLargeBlock);
  EXPECT_EQ(WalkedDType({&small}), "");
  EXPECT_EQ(WalkedDType({&small, &f32, &f32}), "f32");
  EXPECT_EQ(WalkedDType({&bf16, &small}), "bf16");
  EXPECT_EQ(WalkedDType({&f32, &bf16}), std::nullopt);
}

TEST(WalkedDTypeTest, IsNoneWhereAnyElementWillNotDo) {
  for (const char* dtype : {"i8", "u8", "i32", "i64", "bool", "f8e8m0"}) {
    const v1::Plan plan = PlanWith(kPrepared, dtype, 32 << 20);
    EXPECT_EQ(WalkedDType({&plan}), std::nullopt) << dtype;
  }
  v1::Plan table = PlanWith(kConstant, "i64", PreparedPool::kLargeBlock);
  table.mutable_buffers(kConstant)->set_literal(std::string(PreparedPool::kLargeBlock, 0));
  EXPECT_EQ(WalkedDType({&table}), std::nullopt);
  v1::Plan broken = RowPlan();
  broken.set_format(99);
  EXPECT_EQ(WalkedDType({&broken}), std::nullopt);
}

}  // namespace
}  // namespace athanor
