#include "server/child/trial_states.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Outcome = internal::TryOutcome;

// Two kernels of two sizes: the first lacks one of its two objects, the second none.
internal::TryRequest Request(bool passed = false) {
  internal::TryRequest request;
  for (int i = 0; i < 2; ++i) {
    internal::TriedKernel* tried = request.add_kernels();
    tried->add_objects("packs");
    tried->add_objects(i == 0 ? "" : "computes");
    tried->set_passed(passed);
    for (int size = 0; size < 2; ++size) tried->mutable_kernel()->add_sizes();
  }
  return request;
}

Outcome Part(uint32_t kernel) {
  Outcome part;
  part.set_kernel(kernel);
  return part;
}

Outcome Objects() {
  Outcome part = Part(0);
  part.add_objects("");
  part.add_objects("computes");
  return part;
}

Outcome Times(uint32_t kernel) {
  Outcome part = Part(kernel);
  for (int size = 0; size < 2; ++size) {
    internal::SizeTimes* times = part.add_times();
    times->set_seconds(1e-3);
    times->set_low(0.9e-3);
    times->set_high(1.1e-3);
  }
  return part;
}

Outcome Right(uint32_t kernel) {
  Outcome part = Times(kernel);
  part.set_checked(true);
  part.set_worst_error(0.5);
  return part;
}

Outcome End(Outcome part) {
  part.set_ended(true);
  return part;
}

Outcome Failed(uint32_t kernel, Outcome::Stage stage, absl::StatusCode code) {
  Outcome part = End(Part(kernel));
  part.set_code(static_cast<int>(code));
  part.set_failed_at(stage);
  return part;
}

TEST(TrialStatesTest, FollowsEachStage) {
  const internal::TryRequest request = Request();
  TrialStates states(request);
  EXPECT_EQ(states.AtWork(), TrialState::kCompiling);
  ASSERT_TRUE(states.Take(Objects()));
  EXPECT_EQ(states.AtWork(), TrialState::kMeasuring);
  ASSERT_TRUE(states.Take(Times(0)));
  EXPECT_EQ(states.AtWork(), TrialState::kChecking);
  ASSERT_TRUE(states.Take(Right(0)));
  EXPECT_EQ(states.AtWork(), TrialState::kMeasuringAgain);
  ASSERT_TRUE(states.Take(End(Right(0))));
  EXPECT_EQ(states.AtWork(), TrialState::kMeasuring);
  ASSERT_TRUE(states.Take(End(Times(1)))) << "slower than the best, and not checked";
  EXPECT_EQ(states.AtWork(), TrialState::kEnded);
}

TEST(TrialStatesTest, EachStageCanFailAndTimeCanBeUpAtEach) {
  const std::vector<std::vector<Outcome>> before = {
      {}, {Objects()}, {Objects(), Times(0)}, {Objects(), Times(0), Right(0)}};
  const Outcome::Stage fails[] = {Outcome::COMPILE, Outcome::MEASURE, Outcome::CHECK,
                                  Outcome::MEASURE};
  for (size_t stage = 0; stage < before.size(); ++stage) {
    for (const Outcome& end : {Failed(0, fails[stage], absl::StatusCode::kInternal),
                               Failed(0, Outcome::NONE, absl::StatusCode::kAborted)}) {
      const internal::TryRequest request = Request();
      TrialStates states(request);
      for (const Outcome& part : before[stage]) ASSERT_TRUE(states.Take(part)) << stage;
      EXPECT_TRUE(states.Take(end)) << stage;
      EXPECT_FALSE(states.Take(end)) << "it has ended";
    }
  }
}

// A kernel that serves has been checked, by this child or before.
TEST(TrialStatesTest, OnlyACheckMakesAKernelRight) {
  for (const bool passed : {false, true}) {
    const internal::TryRequest request = Request(passed);
    EXPECT_EQ(TrialStates(request).Take(End(Right(1))), passed);
    TrialStates measured(request);
    ASSERT_TRUE(measured.Take(Times(1)));
    EXPECT_FALSE(measured.Take(End(Right(1)))) << "the check that was begun said nothing";
    EXPECT_TRUE(measured.Take(Right(1)));
    Outcome failed = Failed(1, Outcome::CHECK, absl::StatusCode::kDataLoss);
    EXPECT_FALSE(measured.Take(failed)) << "it was right";
  }
}

TEST(TrialStatesTest, WhatDoesNotFitIsNotTaken) {
  const auto with = [](Outcome part, const std::function<void(Outcome*)>& change) {
    change(&part);
    return part;
  };
  const auto spent = [](const char* on, double seconds, int calls = 1) {
    Outcome part = End(Times(1));
    v1::SearchTime* time = part.add_spent();
    time->set_on(on);
    time->set_seconds(seconds);
    time->set_calls(calls);
    return part;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    const char* what;
    Outcome part;
  } rows[] = {
      {"no such kernel", End(Times(2))},
      {"times before it was compiled", Times(0)},
      {"an end before it was compiled", End(Times(0))},
      {"an object that was given",
       with(Objects(), [](Outcome* part) { part->set_objects(0, "packs"); })},
      {"an object is lacking", with(Objects(), [](Outcome* part) { part->set_objects(1, ""); })},
      {"too few objects",
       with(Objects(), [](Outcome* part) { part->mutable_objects()->RemoveLast(); })},
      {"objects of a kernel that has them", with(Objects(), [](Outcome* p) { p->set_kernel(1); })},
      {"too few times", with(Times(1), [](Outcome* part) { part->mutable_times()->RemoveLast(); })},
      {"no time", with(Times(1), [](Outcome* part) { part->mutable_times(1)->set_seconds(0); })},
      {"a time that is no number",
       with(Times(1), [&](Outcome* part) { part->mutable_times(1)->set_seconds(kNan); })},
      {"right before its times", Right(1)},
      {"no such code", Failed(1, Outcome::MEASURE, static_cast<absl::StatusCode>(99))},
      {"failed without a stage", Failed(1, Outcome::NONE, absl::StatusCode::kInternal)},
      {"a stage without a failure", Failed(1, Outcome::MEASURE, absl::StatusCode::kOk)},
      {"a compile that failed after the objects",
       Failed(1, Outcome::COMPILE, absl::StatusCode::kInternal)},
      {"a check that failed before the times",
       Failed(1, Outcome::CHECK, absl::StatusCode::kDataLoss)},
      {"a kernel of the plan that is none",
       with(Failed(0, Outcome::COMPILE, absl::StatusCode::kInternal),
            [](Outcome* part) { part->set_failed_kernel(2); })},
      {"time on something else", spent("plans", 1)},
      {"time below zero", spent("check", -1)},
      {"time that is no number", spent("check", kNan)},
      {"time of many calls", spent("check", 1, 7)},
  };
  for (const auto& row : rows) {
    const internal::TryRequest request = Request();
    TrialStates states(request);
    EXPECT_FALSE(states.Take(row.part)) << row.what;
    EXPECT_TRUE(states.Take(spent("measure", 1))) << row.what << " changed something";
  }
  const internal::TryRequest request = Request();
  for (const double worst : {1.5, kNan}) {
    TrialStates states(request);
    ASSERT_TRUE(states.Take(Times(1)));
    Outcome part = Right(1);
    part.set_worst_error(worst);
    EXPECT_FALSE(states.Take(part)) << worst;
  }
}

}  // namespace
}  // namespace athanor
