#include "server/tuner/run/scratch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/memory/prepared_pool.h"

namespace athanor {
namespace {

constexpr size_t kLeast = Scratch::kLeast;

// Makes an unnamed file of `bytes` bytes.
int File(int64_t bytes) {
  const char* folder = std::getenv("TEST_TMPDIR");
  std::string path = std::string(folder == nullptr ? "/tmp" : folder) + "/scratch-XXXXXX";
  const int fd = mkstemp(path.data());
  EXPECT_GE(fd, 0);
  unlink(path.c_str());
  EXPECT_EQ(ftruncate(fd, bytes), 0);
  return fd;
}

int64_t BytesOnDisk(int fd) {
  struct stat info{};
  fstat(fd, &info);
  return int64_t{512} * info.st_blocks;
}

bool AllAre(const char* data, size_t bytes, char value) {
  return std::all_of(data, data + bytes, [&](char c) { return c == value; });
}

TEST(ScratchTest, NothingWithoutAFile) {
  Scratch none;
  EXPECT_FALSE(none.Take(kLeast).has_value());
  none.Clear();
  EXPECT_FALSE(Scratch::Open(-1).Take(kLeast).has_value());
  EXPECT_TRUE(AllAre(TakeOrCreate({.scratch = &none}, kLeast).value().data(), kLeast, 0));
  EXPECT_TRUE(AllAre(TakeOrCreate({}, 1).value().data(), 1, 0));
}

TEST(ScratchTest, PagesOfTheFileUntilItIsFull) {
  const int fd = File(4 * kLeast);
  Scratch scratch = Scratch::Open(fd);
  EXPECT_FALSE(scratch.Take(kLeast - 1).has_value());  // too small to be worth it
  std::optional<SharedMemory> first = scratch.Take(kLeast + 1), second = scratch.Take(kLeast);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_TRUE(AllAre(first->data(), first->bytes(), 0));
  std::memset(first->data(), 1, first->bytes());
  std::memset(second->data(), 2, second->bytes());
  EXPECT_TRUE(AllAre(first->data(), kLeast + 1, 1));
  char at_end = 0;
  EXPECT_EQ(pread(fd, &at_end, 1, kLeast), 1);
  EXPECT_EQ(at_end, 1);
  EXPECT_FALSE(scratch.Take(2 * kLeast).has_value());
  EXPECT_TRUE(TakeOrCreate({.scratch = &scratch}, 2 * kLeast).ok());  // falls back to memory
}

TEST(ScratchTest, ClearGivesEverythingBackAndBeginsAnew) {
  const int fd = File(2 * kLeast);
  Scratch scratch = Scratch::Open(fd);
  for (int round = 0; round < 3; ++round) {
    std::optional<SharedMemory> memory = scratch.Take(2 * kLeast);
    ASSERT_TRUE(memory.has_value()) << round;
    EXPECT_TRUE(AllAre(memory->data(), memory->bytes(), 0)) << round;
    std::memset(memory->data(), 3, memory->bytes());
    memory.reset();
    scratch.Clear();
    EXPECT_LT(BytesOnDisk(fd), static_cast<int64_t>(kLeast)) << round;
  }
}

TEST(ScratchTest, GuardedBytesLieThereToo) {
  const int fd = File(4 * kLeast);
  Scratch scratch = Scratch::Open(fd);
  const GuardedBytes bytes = TakeOrCreateGuarded({.scratch = &scratch}, kLeast).value();
  EXPECT_EQ(bytes.bytes(), kLeast);
  std::memset(bytes.data(), 4, bytes.bytes());
  EXPECT_TRUE(bytes.MarginIntact());
  EXPECT_GE(BytesOnDisk(fd), static_cast<int64_t>(kLeast));
}

class ScratchDeviceTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBytes = int64_t{1} << 20;

  bool InWindow(const DeviceMemory& memory) const {
    const char* data = static_cast<const char*>(memory.data());
    return data >= window_.data() && data < window_.data() + window_.bytes();
  }

  const std::unique_ptr<FunctionDevice> device_ = FunctionDevice::Make(1);
  SharedMemory window_ = SharedMemory::Create(2 * kBytes).value();
  ScratchDevice large_{device_.get(), window_.data(), window_.bytes()};
};

TEST_F(ScratchDeviceTest, PreparedWeightsLieInTheWindowWhileThereIsRoom) {
  const auto one = large_.Allocate(MemoryKind::kPrepared, kBytes).value();
  const auto two = large_.Allocate(MemoryKind::kPrepared, kBytes).value();
  const auto more = large_.Allocate(MemoryKind::kPrepared, 1).value();
  const auto arena = large_.Allocate(MemoryKind::kArena, 1).value();
  EXPECT_TRUE(InWindow(*one) && InWindow(*two));
  EXPECT_NE(one->data(), two->data());
  EXPECT_FALSE(InWindow(*more));
  EXPECT_FALSE(InWindow(*arena));
}

TEST_F(ScratchDeviceTest, IsUsedAgainWhenNothingLivesAndReadsAsZero) {
  auto one = large_.Allocate(MemoryKind::kPrepared, kBytes).value();
  auto two = large_.Allocate(MemoryKind::kPrepared, 5).value();
  std::memset(one->data(), 1, kBytes);
  std::memset(two->data(), 2, 5);
  one.reset();
  // The second range is still in use.
  EXPECT_FALSE(InWindow(*large_.Allocate(MemoryKind::kPrepared, 2 * kBytes).value()));
  EXPECT_EQ(*static_cast<char*>(two->data()), 2);
  two.reset();
  const auto again = large_.Allocate(MemoryKind::kPrepared, 2 * kBytes).value();
  EXPECT_TRUE(InWindow(*again));
  EXPECT_TRUE(AllAre(static_cast<char*>(again->data()), 2 * kBytes, 0));
}

TEST(LargePreparedBytesTest, CountsWhatIsLargeOncePerKey) {
  v1::Plan plan = RowPlan();
  EXPECT_EQ(LargePreparedBytes(plan, {}), 0);
  const int64_t large = PreparedPool::kLargeBlock;
  plan.mutable_buffers(3)->mutable_bytes()->mutable_terms(0)->set_coefficient(large);
  EXPECT_EQ(LargePreparedBytes(plan, {}), large);
  plan.set_format(99);
  EXPECT_EQ(LargePreparedBytes(plan, {}), 0);
}

}  // namespace
}  // namespace athanor
