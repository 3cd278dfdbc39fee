#include "runtime/memory/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

// Returns how many pages of [data, data + bytes) are in memory.
int64_t ResidentPages(char* data, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  EXPECT_EQ(mincore(data, bytes, resident.data()), 0);
  int64_t count = 0;
  for (unsigned char r : resident) count += r & 1;
  return count;
}

TEST(ArenaTest, CommitsOnUse) {
  const int64_t bytes = int64_t{4} << 20;
  Arena arena = Arena::Reserve(bytes).value();
  EXPECT_EQ(arena.bytes(), bytes);
  EXPECT_EQ(ResidentPages(arena.data(), bytes), 0);
  arena.data()[bytes - 1] = 1;
  arena.data()[0] = 1;
  EXPECT_EQ(ResidentPages(arena.data(), bytes), 2);
  arena.Decommit();
  EXPECT_EQ(ResidentPages(arena.data(), bytes), 0);
  EXPECT_EQ(arena.data()[0], 0);
}

TEST(ArenaTest, DecommitsWholePagesOfARange) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  Arena arena = Arena::Reserve(8 * page + 100).value();
  std::memset(arena.data(), 1, arena.bytes());
  arena.Decommit(page / 2, 2 * page);  // one whole page
  EXPECT_EQ(ResidentPages(arena.data(), arena.bytes()), 8);
  arena.Decommit(4 * page + 1, page - 1);  // none
  EXPECT_EQ(ResidentPages(arena.data(), arena.bytes()), 8);
  arena.Decommit(8 * page, 100);  // the last page, whose rest holds nothing
  EXPECT_EQ(ResidentPages(arena.data(), arena.bytes()), 7);
  for (const int64_t i : {page - 1, 2 * page, 8 * page - 1}) EXPECT_EQ(arena.data()[i], 1);
  EXPECT_EQ(arena.data()[page], 0);
}

TEST(ArenaTest, IsAlignedToItsPages) {
  for (int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{5000}, int64_t{8} << 20, (int64_t{64} << 20) + 1}) {
    Arena arena = Arena::Reserve(bytes).value();
    EXPECT_NE(arena.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % arena.granularity(), 0);
    EXPECT_EQ(arena.granularity() % 64, 0);
    std::memset(arena.data(), 1, bytes);
  }
}

TEST(ArenaTest, ReservesFarMoreThanThereIs) {
  const int64_t bytes = int64_t{1} << 42;
  Arena arena = Arena::Reserve(bytes).value();
  arena.data()[bytes - 1] = 3;
  EXPECT_EQ(arena.data()[bytes - 1], 3);
}

TEST(ArenaTest, RefusesWhatNoAddressSpaceHolds) {
  for (int64_t bytes : {int64_t{1} << 60, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(Arena::Reserve(bytes).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

TEST(ArenaTest, Moves) {
  Arena a = Arena::Reserve(100).value();
  a.data()[7] = 9;
  Arena b = std::move(a);
  EXPECT_EQ(b.data()[7], 9);
  b = Arena::Reserve(200).value();
  EXPECT_EQ(b.data()[7], 0);
  EXPECT_EQ(b.bytes(), 200);
}

}  // namespace
}  // namespace athanor
