// Not run under a sanitizer, which brings its own allocator.
#include <vector>

#include "gtest/gtest.h"
#include "server/memory/memory_return.h"

namespace athanor {
namespace {

// Allocates blocks of all sizes below those that the allocator maps separately, and keeps one of
// each batch, as graphs and messages of other models would be kept: without a trim no page goes
// back.
TEST(TrimHeapTest, GivesPagesBack) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  std::vector<std::vector<char>> kept, freed;
  for (int64_t bytes = 0; bytes < kBytes;) {
    for (const size_t size : {700, 9000, 40'000, 100'000}) {
      freed.emplace_back(size, 'x');
      bytes += static_cast<int64_t>(size);
    }
    kept.emplace_back(64, 'x');
  }
  freed.clear();
  freed.shrink_to_fit();
  const int64_t before = ResidentBytes();
  TrimHeap();
  EXPECT_LT(ResidentBytes(), before - kBytes / 2);
  EXPECT_FALSE(kept.empty());
}

}  // namespace
}  // namespace athanor
