#include "server/child/measuring_turns.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Kind = MeasuringTurns::Kind;

bool Never() { return false; }

// Whether it is its turn at once, or after a look at `stop` or two.
bool Soon(MeasuringTurns& turns, Kind kind) {
  int asked = 0;
  return turns.Take(kind, [&] { return ++asked > 2; }) != nullptr;
}

TEST(MeasuringTurnsTest, ManyWorkAtOnce) {
  MeasuringTurns turns;
  const MeasuringTurns::Turn one = turns.Take(Kind::kWorks, Never);
  const MeasuringTurns::Turn other = turns.Take(Kind::kWorks, Never);
  EXPECT_TRUE(one != nullptr && other != nullptr);
  EXPECT_FALSE(Soon(turns, Kind::kMeasures));
  EXPECT_TRUE(Soon(turns, Kind::kWorks));  // who gave up keeps nobody waiting
}

TEST(MeasuringTurnsTest, NobodyIsBesideOneThatMeasures) {
  MeasuringTurns turns;
  {
    const MeasuringTurns::Turn measures = turns.Take(Kind::kMeasures, Never);
    ASSERT_NE(measures, nullptr);
    EXPECT_FALSE(Soon(turns, Kind::kWorks));
    EXPECT_FALSE(Soon(turns, Kind::kMeasures));
  }
  EXPECT_TRUE(Soon(turns, Kind::kMeasures));
  EXPECT_TRUE(Soon(turns, Kind::kWorks));
}

TEST(MeasuringTurnsTest, WorkThatComesLaterWaitsBehindAMeasurement) {
  MeasuringTurns turns;
  MeasuringTurns::Turn work = turns.Take(Kind::kWorks, Never);
  std::atomic<bool> waits = false, measured = false;
  std::thread measures([&] {
    const MeasuringTurns::Turn turn = turns.Take(Kind::kMeasures, [&] {
      waits = true;
      return false;
    });
    measured = true;
  });
  while (!waits) std::this_thread::yield();
  EXPECT_FALSE(Soon(turns, Kind::kWorks));
  EXPECT_FALSE(measured);
  work.reset();
  measures.join();
  EXPECT_TRUE(Soon(turns, Kind::kWorks));
}

TEST(MeasuringTurnsTest, ThreadsOfBothKinds) {
  MeasuringTurns turns;
  std::atomic<int> working = 0, measuring = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const Kind kind = (t + i) % 3 == 0 ? Kind::kMeasures : Kind::kWorks;
        const MeasuringTurns::Turn turn = turns.Take(kind, Never);
        std::atomic<int>& of = kind == Kind::kMeasures ? measuring : working;
        ++of;
        if (measuring > 0 && measuring + working > 1) ++wrong;
        --of;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace athanor
