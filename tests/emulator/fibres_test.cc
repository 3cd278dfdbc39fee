// Fibres: turns, what a switch keeps, and runs that end early.
#include "tests/emulator/fibres.h"

#include <cfenv>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::emulator {
namespace {

using ::testing::ElementsAre;

using Body = std::function<void()>;

void Start(Fibre& fibre, Body& run) {
  fibre.Start([](void* run) { (*static_cast<Body*>(run))(); }, &run);
}

TEST(FibreTest, RunsTakeTurns) {
  std::vector<std::string> said;
  std::vector<Body> runs;
  std::vector<Fibre> fibres(3);
  for (int i = 0; i < 3; ++i) {
    runs.push_back([&, i] {
      for (int turn = 0; turn <= i; ++turn) {
        said.push_back(std::to_string(i) + std::to_string(turn));
        Fibre::Suspend();
      }
    });
  }
  for (int i = 0; i < 3; ++i) Start(fibres[i], runs[i]);
  EXPECT_THAT(said, ElementsAre());
  int alive = 3;
  std::vector<bool> goes_on(3, true);
  while (alive > 0) {
    for (int i = 0; i < 3; ++i) {
      if (!goes_on[i]) continue;
      goes_on[i] = fibres[i].Resume();
      if (!goes_on[i]) --alive;
    }
  }
  EXPECT_THAT(said, ElementsAre("00", "10", "20", "11", "21", "22"));
}

TEST(FibreTest, AStackServesManyRuns) {
  Fibre fibre;
  int64_t sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    Body run = [&] {
      volatile int64_t local = i;
      Fibre::Suspend();
      sum += local;
    };
    Start(fibre, run);
    EXPECT_TRUE(fibre.Resume());
    EXPECT_FALSE(fibre.Resume());
  }
  EXPECT_EQ(sum, int64_t{100'000} * 99'999 / 2);
}

// The registers that a call keeps hold what each side computed before the switch.
TEST(FibreTest, ASwitchKeepsNumbersOfBothSides) {
  const auto mix = [](uint64_t seed, const std::function<void()>& pause) {
    uint64_t a = seed, b = seed * 3, c = seed * 5, d = seed * 7, e = seed * 11, f = seed * 13;
    double x = seed * 0.5, y = seed * 0.25;
    for (int i = 0; i < 100; ++i) {
      a += b, b ^= c, c += d, d ^= e, e += f, f ^= a, x += y, y = x * 0.5 - y;
      pause();
    }
    return double(a ^ b ^ c ^ d ^ e ^ f) + x + y;
  };
  Fibre fibre;
  double inner = 0;
  Body run = [&] { inner = mix(12345, Fibre::Suspend); };
  Start(fibre, run);
  const double outer = mix(6789, [&] { fibre.Resume(); });
  EXPECT_FALSE(fibre.Resume());
  EXPECT_EQ(inner, mix(12345, [] {}));
  EXPECT_EQ(outer, mix(6789, [] {}));
}

TEST(FibreTest, EachHasItsOwnRounding) {
  Fibre fibre;
  std::vector<int> inside;
  Body run = [&] {
    inside.push_back(std::fegetround());  // as where it was started
    std::fesetround(FE_DOWNWARD);
    Fibre::Suspend();
    inside.push_back(std::fegetround());
    volatile double one = 1, three = 3;
    EXPECT_LT(one / three * 3, 1.0);
    std::fesetround(FE_TONEAREST);
  };
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  Start(fibre, run);
  ASSERT_EQ(std::fesetround(FE_TOWARDZERO), 0);
  fibre.Resume();
  EXPECT_EQ(std::fegetround(), FE_TOWARDZERO);
  fibre.Resume();
  EXPECT_EQ(std::fegetround(), FE_TOWARDZERO);
  std::fesetround(FE_TONEAREST);
  EXPECT_THAT(inside, ElementsAre(FE_UPWARD, FE_DOWNWARD));
}

TEST(FibreTest, RunsEndEarlyAndTheirStacksServeAgain) {
  Fibre fibre;
  for (int i = 0; i < 1000; ++i) {
    int reached = 0;
    Body run = [&] {
      char array[1000];  // the sanitizers mark what is around it
      for (volatile char& byte : array) byte = 1;
      ++reached;
      if (i % 3 == 0) Fibre::Leave();
      Fibre::Suspend();
      ++reached;
    };
    Start(fibre, run);
    if (i % 3 != 2) EXPECT_EQ(fibre.Resume(), i % 3 != 0);
    fibre.End();  // after its end, within, and before its first turn
    EXPECT_EQ(reached, i % 3 == 2 ? 0 : 1);
  }
}

TEST(FibreTest, ItMayBeGoneBeforeItsRunEnds) {
  Body run = [] { Fibre::Suspend(); };
  {
    Fibre fibre;
    Start(fibre, run);
    EXPECT_TRUE(fibre.Resume());
  }
  Fibre fibre;
  Start(fibre, run);
  EXPECT_TRUE(fibre.Resume());
  EXPECT_FALSE(fibre.Resume());
}

TEST(FibreTest, FibresOfFibresReturnToTheirResumer) {
  Fibre outer, inner;
  std::string said;
  Body in = [&] {
    said += 'b';
    Fibre::Suspend();
    said += 'e';
  };
  Body out = [&] {
    said += 'a';
    inner.Resume();
    said += 'c';
    Fibre::Suspend();
    inner.Resume();
    said += 'f';
  };
  Start(inner, in);
  Start(outer, out);
  outer.Resume();
  said += 'd';
  EXPECT_FALSE(outer.Resume());
  EXPECT_EQ(said, "abcdef");
}

TEST(FibreTest, ThreadsHaveTheirOwn) {
  std::vector<std::thread> threads;
  std::vector<int> sums(4);
  for (int& sum : sums) {
    threads.emplace_back([&sum] {
      Fibre fibre;
      Body run = [&sum] {
        for (int i = 0; i < 1000; ++i) {
          sum += i;
          Fibre::Suspend();
        }
      };
      Start(fibre, run);
      while (fibre.Resume()) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(sums, ::testing::Each(499'500));
}

int Deep(int depth) {
  volatile char frame[1000] = {};
  return depth == 0 ? frame[0] : Deep(depth - 1) + frame[depth % 1000];
}

// Sanitizers end the process in their own way.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
const auto kFaults = [](int status) { return !::testing::ExitedWithCode(0)(status); };
#else
const auto kFaults = ::testing::KilledBySignal(SIGSEGV);
#endif

TEST(FibreTest, AStackThatIsFullFaultsAndReachesNoOther) {
  EXPECT_EXIT(
      {
        Fibre fibre;
        Body run = [] { Deep(1'000'000); };
        Start(fibre, run);
        fibre.Resume();
      },
      kFaults, "");
  Fibre fibre;
  int result = -1;
  Body run = [&] { result = Deep(100); };
  Start(fibre, run);
  EXPECT_FALSE(fibre.Resume());
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace athanor::emulator
