#include "runtime/cuda/queue.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr int64_t kMultiprocessors = 132, kResident = kMultiprocessors * 2048;

using Shape = std::pair<int64_t, int64_t>;

Shape Of(int64_t grid, int team, int64_t most_teams = kResident) {
  const CudaGeometry g = GeometryOf(grid, team, most_teams, kResident, kMultiprocessors);
  return {g.blocks, g.threads};
}

TEST(GeometryOf, SpreadsItemsOverMultiprocessors) {
  EXPECT_EQ(Of(1, 1), Shape(1, 32));
  EXPECT_EQ(Of(100 * 132, 1), Shape(104, 128));
  EXPECT_EQ(Of(int64_t{1} << 40, 1), Shape(kResident / 128, 128));
  // Few rows, each on a multiprocessor of its own; then several by block.
  EXPECT_EQ(Of(1, 32), Shape(1, 32));
  EXPECT_EQ(Of(132, 32), Shape(132, 32));
  EXPECT_EQ(Of(132 * 2 + 1, 32), Shape(89, 96));
  EXPECT_EQ(Of(5, 128), Shape(5, 128));
  EXPECT_EQ(Of(int64_t{1} << 40, 128), Shape(kResident / 128, 128));
  // Four teams of eight fill a wave.
  EXPECT_EQ(Of(3, 8), Shape(1, 32));
  EXPECT_EQ(Of(133, 8), Shape(34, 32));
}

TEST(GeometryOf, HasNoMoreTeamsThanHaveAWorkspace) {
  EXPECT_EQ(Of(1000, 1, 1), Shape(1, 1));
  EXPECT_EQ(Of(1000, 1, 5), Shape(1, 5));
  EXPECT_EQ(Of(1000, 32, 1), Shape(1, 32));
  EXPECT_EQ(Of(1000, 32, 3), Shape(3, 32));
  EXPECT_EQ(Of(1000, 128, 7), Shape(7, 128));
}

TEST(GeometryOf, LaunchesWholeTeams) {
  for (const int team : {1, 2, 4, 8, 16, 32, 128}) {
    for (const int64_t grid : {1, 2, 3, 31, 32, 33, 127, 1000, 100000}) {
      for (const int64_t most_teams : {1, 2, 7, 100, 3000, 1 << 20}) {
        for (const int64_t multiprocessors : {0, 1, 4, 132}) {
          const int64_t resident = 2048 * std::max<int64_t>(multiprocessors, 1);
          const CudaGeometry g = GeometryOf(grid, team, most_teams, resident, multiprocessors);
          EXPECT_GE(g.blocks, 1);
          EXPECT_GE(g.threads, team);
          EXPECT_EQ(g.threads % team, 0);
          EXPECT_LE(g.threads, kCudaBlockThreads);
          const int64_t teams = int64_t{g.blocks} * g.threads / team;
          EXPECT_LE(teams, most_teams) << team << " " << grid << " " << multiprocessors;
          EXPECT_LE(teams * team, resident);
        }
      }
    }
  }
}

}  // namespace
}  // namespace athanor
