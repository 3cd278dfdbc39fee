// Tests stored plans with missing kernels: what serves meanwhile, and plans that are wrong.
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/restore/restore_testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Its kernels are deleted, and when compiled again they compute something else.
TEST_F(RestoreTest, AStoredPlanThatIsWrongIsQuarantined) {
  MakeSearched(2);
  ASSERT_TRUE(control_->cache()->Flush(std::chrono::seconds(60)).ok());
  End();
  ASSERT_TRUE(control_->cache()->ExecuteForTest("DELETE FROM kernels").ok());
  control_->SetVerdict(absl::DataLossError("y is off by 3"));
  control_->Search({});
  Create();
  auto version = Find("m");
  const Job job = AwaitEnd(*JobOf(*version));
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline");
  EXPECT_THAT(job.message(), HasSubstr("plan found-2 was verified again and is wrong"));
  EXPECT_THAT(Events(), Contains("verify found-2"));
  EXPECT_THAT(Quarantined(),
              Contains(AllOf(HasSubstr("plans found-2 of graph"), HasSubstr("y is off by 3"))));
  version.reset();
  // All its kernels are in the cache now, but the plan is neither served nor tried again.
  Restart();
  EXPECT_EQ(Find("m")->plan()->compiled->plan.kind(), "baseline");
  EXPECT_THAT(Events(), Not(Contains("verify found-2")));
  const auto other = StoreScale("other", 5);
  AwaitEnd(*Start(other));
  EXPECT_NE(ServedBy(*other), "found-2");
}

TEST_F(RestoreTest, APinnedPlanThatIsWrongIsNotTriedAgain) {
  MakeSearched(1);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  End();
  control_->RememberIn(FreshDirectory() + "/cache.db");
  control_->SetVerdict(absl::DataLossError("y is off by 3"));
  Create();
  EXPECT_THAT(AwaitEnd(*JobOf(*Find("m"))).message(), HasSubstr("y is off by 3"));
  EXPECT_EQ(Find("m")->plan()->compiled->plan.kind(), "baseline");
  EXPECT_EQ(Pins("found-1"), 0);
  Restart();
  const auto version = Find("m");
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline");
  EXPECT_EQ(version->pinned_plan(), "found-1") << "what was asked for is not forgotten";
  EXPECT_THAT(Events(), Not(Contains("verify found-1")));
}

TEST_F(RestoreTest, ACheckThatHadNoTimeSaysNothingOfThePlan) {
  MakeSearched(1);
  ASSERT_TRUE(control_->cache()->Flush(std::chrono::seconds(60)).ok());
  End();
  ASSERT_TRUE(control_->cache()->ExecuteForTest("DELETE FROM kernels").ok());
  control_->SetVerdict(absl::DeadlineExceededError("no answer in time"));
  control_->Search({});
  Create();
  AwaitEnd(*JobOf(*Find("m")));
  EXPECT_THAT(Events(), Contains("verify found-1"));
  EXPECT_THAT(Quarantined(), IsEmpty());
  // The recompiled kernels are byte for byte those that it was verified with.
  EXPECT_EQ(ServedBy(*Find("m")), "found-1");
}

TEST_F(RestoreTest, TheBaselineServesUntilAFoundPlanIsWhole) {
  MakeSearched(1);
  ASSERT_TRUE(control_->cache()->Flush(std::chrono::seconds(60)).ok());
  End();
  ForgetKernelOf("found-1");
  control_->HoldCompiles();
  Create();
  auto version = Find("m");
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline") << "its first call does not wait";
  EXPECT_EQ(Run(*version, 2).value(), 6);
  control_->ReleaseCompiles();
  const Job job = AwaitEnd(*JobOf(*version));
  EXPECT_EQ(job.stop_reason(), Job::STOP_RESTORED);
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_EQ(Run(*version, 2).value(), 6);
  EXPECT_EQ(PlanIds(core_->registry().Describe(*version)).front(), "found-1");
  EXPECT_THAT(Events(), ElementsAre("compile found-1", "verify found-1"));
  version.reset();
  Restart();
  EXPECT_EQ(ServedBy(*Find("m")), "found-1");
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(RestoreTest, AnUploadOfAKnownGraphIsServedByTheBaselineAtOnce) {
  MakeSearched(1);
  ASSERT_TRUE(control_->cache()->Flush(std::chrono::seconds(60)).ok());
  ForgetKernelOf("found-1");
  const auto one = StoreScale("one", 5), two = StoreScale("two", 7);
  const auto [first, second] = StartBoth(one, two);
  ASSERT_TRUE(Await(*one).ok());
  ASSERT_TRUE(Await(*two).ok()) << "baselines come first";
  EXPECT_EQ(one->plan()->compiled->plan.kind(), "baseline");
  EXPECT_EQ(Run(*two, 2).value(), 14);
  control_->ReleaseCompiles();
  AwaitEnd(*first);
  AwaitEnd(*second);
  EXPECT_EQ(ServedBy(*one), "found-1");
  EXPECT_EQ(ServedBy(*two), "found-1");
  EXPECT_EQ(Run(*one, 2).value(), 10);
  EXPECT_EQ(one->plans().view().full().first()->plan.kind(), "baseline");
}

TEST_F(RestoreTest, WhatWaitsForItsSecondPlanCanBeCancelled) {
  MakeSearched(1);
  ASSERT_TRUE(control_->cache()->Flush(std::chrono::seconds(60)).ok());
  ForgetKernelOf("found-1");
  const auto one = StoreScale("one", 5), two = StoreScale("two", 7);
  const auto [first, second] = StartBoth(one, two);
  ASSERT_TRUE(Await(*two).ok());
  core_->workers().Cancel(second, Job::STOP_CANCELLED);
  EXPECT_EQ(AwaitEnd(*second).stop_reason(), Job::STOP_CANCELLED);
  EXPECT_EQ(two->plan()->compiled->plan.kind(), "baseline");
  core_->workers().Cancel(first, Job::STOP_CANCELLED);
  EXPECT_EQ(AwaitEnd(*first).stop_reason(), Job::STOP_CANCELLED);
  EXPECT_EQ(Run(*one, 2).value(), 10) << "what serves goes on";
  control_->ReleaseCompiles();
  // The version can have another job.
  EXPECT_EQ(AwaitEnd(*Start(one)).phase(), Job::DONE);
}

TEST_F(RestoreTest, APlanThatIsWrongLeavesTheBaselineServing) {
  MakeSearched(1);
  ASSERT_TRUE(control_->cache()->Flush(std::chrono::seconds(60)).ok());
  End();
  ForgetKernelOf("found-1");
  control_->SetVerdict(absl::DataLossError("y is off by 3"));
  control_->Search({});
  Create();
  const auto version = Find("m");
  const Job job = AwaitEnd(*JobOf(*version));
  EXPECT_EQ(job.stop_reason(), Job::STOP_EXHAUSTED) << "it is searched for another";
  EXPECT_THAT(job.message(), HasSubstr("y is off by 3"));
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline");
  EXPECT_EQ(Quarantined().size(), 1u);
}

TEST_F(RestoreTest, OnlyMissingKernelsAreCompiled) {
  MakeSearched(2);
  ASSERT_TRUE(control_->cache()->Flush(std::chrono::seconds(60)).ok());
  End();
  ASSERT_TRUE(control_->cache()->ExecuteForTest("DELETE FROM kernels").ok());
  Create();
  const auto version = Find("m");
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(ServedBy(*version), "found-2");
  EXPECT_THAT(Events(), ElementsAre("compile found-2", "verify found-2"));
  EXPECT_EQ(AwaitEnd(*JobOf(*version)).stop_reason(), Job::STOP_RESTORED);
}

}  // namespace
}  // namespace athanor
