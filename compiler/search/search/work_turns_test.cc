#include "compiler/search/search/work_turns.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Promises = std::array<double, kWorks>;

// Takes turns and counts one kernel for the first of each. Returns the kernels by Work.
std::array<int, kWorks> Spend(WorkTurns& turns, const Promises& promise, int kernels) {
  std::array<int, kWorks> spent{};
  for (int i = 0; i < kernels; ++i) {
    const Work first = turns.Order(promise)[0];
    turns.Begin(first);
    turns.CountKernel();
    ++spent[static_cast<size_t>(first)];
  }
  return spent;
}

TEST(WorkTurnsTest, KernelsAreSharedByPromise) {
  WorkTurns turns;
  const auto spent = Spend(turns, {0.2, 0.4, 0.4}, 1000);
  EXPECT_NEAR(spent[0], 200, 20);
  EXPECT_NEAR(spent[1], 400, 20);
  EXPECT_NEAR(spent[2], 400, 20);
}

TEST(WorkTurnsTest, WorkThatPromisesLittleHasItsShare) {
  WorkTurns turns;
  const auto spent = Spend(turns, {1, 1e-6, 0}, 1000);
  EXPECT_NEAR(spent[1], 1000 / 6, 20);  // 0.2 against 1
  EXPECT_EQ(spent[2], 0);
}

TEST(WorkTurnsTest, WorkThatPromisesNothingComesLast) {
  WorkTurns turns;
  EXPECT_EQ(turns.Order({0, 0, 0.1}),
            (std::array<Work, kWorks>{Work::kForms, Work::kSchedules, Work::kFlips}));
  // Equals are ordered by what they promise, then by their names.
  EXPECT_EQ(turns.Order({0.1, 0.2, 0.1}),
            (std::array<Work, kWorks>{Work::kFlips, Work::kSchedules, Work::kForms}));
}

}  // namespace
}  // namespace athanor
