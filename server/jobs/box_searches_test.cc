// Tests searches of boxes after that of the full range: where they begin, what they leave serving,
// and what a restart finds.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/search_parts.h"
#include "server/testing/box_testing.h"

namespace athanor {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class BoxSearchesTest : public BoxTest {};

TEST_F(BoxSearchesTest, EachIsSearchedForAfterTheFullRange) {
  control_->Search({.first = 1, .plans = 1});
  const auto version = StoreBoxes();
  const Job end = AwaitEnd(*Start(version));
  EXPECT_EQ(end.stop_reason(), Job::STOP_EXHAUSTED);
  EXPECT_EQ(end.buckets_searched(), 2);
  EXPECT_EQ(end.search_bucket(), "");
  EXPECT_EQ(end.search().plans_taken(), 1) << "of the full range's search";
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_EQ(ServedAt(*version, 1), "found-2");
  EXPECT_EQ(ServedAt(*version, 2), "found-3");
  // Searches of boxes begin at the plan found for the full range.
  EXPECT_THAT(Searches(), ElementsAre(HasSubstr("p-"), "found-1", "found-1"));
  const v1::Model model = version->ToProto(true);
  EXPECT_EQ(model.buckets(0).plan_id(), "found-2");
  EXPECT_EQ(model.buckets(0).reason(), "");
  EXPECT_THAT(PlanIds(model), Contains("found-3"));
}

TEST_F(BoxSearchesTest, TheJobSaysWhichItSearchesFor) {
  control_->Search({.endless = true});
  const auto version = StoreBoxes();
  control_->HoldSearches();
  const auto job = StartWith(version, "30c");
  control_->AwaitSearch();
  Steps(1);
  EXPECT_EQ(job->state().search_bucket(), "");
  EXPECT_EQ(control_->search_options().max_candidates, 10);
  core_->workers().Cancel(job, Job::STOP_CANCELLED);
  EXPECT_EQ(AwaitEnd(*job).stop_reason(), Job::STOP_CANCELLED);
  EXPECT_EQ(job->state().buckets_searched(), 0);
  // A version whose full range has nothing to search for.
  control_->Search({});
  const auto next = StartWith(version, "30c");
  control_->AwaitSearch();
  control_->Search({.endless = true});
  Steps(2);
  EXPECT_EQ(next->state().search_bucket(), "b=1..1");
  EXPECT_THAT(next->state().message(), HasSubstr("bucket b=1..1: 1 candidates"));
  EXPECT_EQ(control_->search_options().max_candidates, 14) << "29 are left for two";
  core_->workers().Cancel(next, Job::STOP_CANCELLED);
  EXPECT_EQ(AwaitEnd(*next).stop_reason(), Job::STOP_CANCELLED);
}

TEST_F(BoxSearchesTest, WhatABudgetLeavesIsForTheOthers) {
  const auto version = StoreBoxes();
  const auto all = [](const Graph&) { return true; };
  SearchPolicy policy = WithBudget("300ms");
  SearchParts timed(*version, policy, all);
  EXPECT_EQ(timed.total(), 3);
  EXPECT_TRUE(timed.full_range());
  EXPECT_EQ(timed.share().time.count(), 100);
  timed.End(std::chrono::milliseconds(20), 5);
  EXPECT_EQ(timed.Text(), "b=1..1");
  EXPECT_EQ(timed.graph().dims[0].max, 1);
  EXPECT_EQ(timed.share().time.count(), 140);
  timed.End(std::chrono::seconds(20), 5);
  EXPECT_EQ(timed.share().time.count(), 1) << "no limit it is not";
  EXPECT_EQ(timed.graph().dims[0].min, 2);
  timed.End({}, 0);
  EXPECT_TRUE(timed.empty());
  SearchParts counted(*version, WithBudget("9c"), all);
  EXPECT_EQ(counted.share().candidates, 3);
  counted.End(std::chrono::seconds(20), 5);
  EXPECT_EQ(counted.share().candidates, 2);
  EXPECT_EQ(counted.share().time.count(), 0);
  SearchParts compared(*version, WithBudget("9c", v1::SearchOptions::COMPARE), all);
  EXPECT_EQ(compared.total(), 1);
  SearchParts some(*version, policy, [](const Graph& graph) { return graph.dims[0].min == 2; });
  EXPECT_EQ(some.total(), 1);
  EXPECT_EQ(some.Text(), "b=2..64");
}

// The search found a plan for the full range and none for the boxes.
TEST_F(BoxSearchesTest, ABoxIsServedByTheFasterOfItsBaselineAndTheFullRangesPlan) {
  for (const double full_by_own : {0.5, 2.0}) {
    control_->Search({.plans = 1});
    const auto version = StoreBoxes();
    control_->HoldSearches();
    const auto job = Start(version);
    control_->AwaitSearch();
    const std::string own = ServedAt(*version, 1), full = ServedBy(*version);
    ASSERT_NE(own, full);
    Steps(1);
    const std::string found = ServedBy(*version);
    EXPECT_EQ(ServedAt(*version, 1), found) << "not known yet";
    control_->Search({.first = 1, .compared = full_by_own});
    control_->ReleaseSearches();
    AwaitEnd(*job);
    const v1::Model model = version->ToProto(true);
    EXPECT_EQ(ServedBy(*version), found);
    if (full_by_own < 1) {
      EXPECT_EQ(ServedAt(*version, 1), found);
      EXPECT_EQ(model.buckets(0).plan_id(), "");
      EXPECT_EQ(model.buckets(0).reason(),
                "the full range's plan takes 50.0 % of the time of its own");
    } else {
      EXPECT_EQ(ServedAt(*version, 1), own);
      EXPECT_EQ(model.buckets(0).plan_id(), own);
      EXPECT_THAT(Searches(), Contains(own)) << "begun again from the faster";
    }
    // The result is known after a restart.
    const std::string large = ServedAt(*version, 64);
    Restart();
    const auto restored = Find();
    AwaitEnd(*JobOf(*restored));
    EXPECT_EQ(ServedAt(*restored, 1), full_by_own < 1 ? found : own);
    EXPECT_EQ(ServedAt(*restored, 64), large);
    EXPECT_THAT(EventsSinceRestart(), IsEmpty());
    core_.reset();
    control_->RememberIn(FreshDirectory() + "/cache.db");
    Begin(1);
  }
}

TEST_F(BoxSearchesTest, WhatWasFoundForBoxesServesAfterARestart) {
  control_->Search({.first = 1, .plans = 1});
  const auto version = StoreBoxes();
  AwaitEnd(*Start(version));
  ASSERT_EQ(ServedAt(*version, 1), "found-2");
  Restart();
  const auto restored = Find();
  const Job end = AwaitEnd(*JobOf(*restored));
  EXPECT_EQ(end.stop_reason(), Job::STOP_RESTORED);
  EXPECT_EQ(end.kernels_from_cache(), end.kernels_total());
  EXPECT_EQ(ServedBy(*restored), "found-1");
  EXPECT_EQ(ServedAt(*restored, 1), "found-2");
  for (const int64_t b : {2, 64}) EXPECT_EQ(ServedAt(*restored, b), "found-3") << b;
  EXPECT_THAT(EventsSinceRestart(), IsEmpty());
}

TEST_F(BoxSearchesTest, OnlyThoseThatHadNotEndedGoOnAfterARestart) {
  control_->Search({.plans = 1});
  const auto version = StoreBoxes();
  StartSearching(version);
  Steps(2);  // steps of the full range
  Steps(2);  // steps of the first box
  EXPECT_EQ(ServedAt(*version, 1), "found-2");
  Restart();
  control_->ReleaseSearches();
  const auto restored = Find();
  const Job end = AwaitEnd(*JobOf(*restored));
  EXPECT_EQ(end.stop_reason(), Job::STOP_EXHAUSTED);
  EXPECT_EQ(end.search_bucket(), "b=2..64");
  EXPECT_EQ(ServedAt(*restored, 1), "found-2");
  EXPECT_EQ(ServedAt(*restored, 64), "found-3");
  EXPECT_THAT(EventsSinceRestart(),
              ElementsAre("search from found-1", "step found-1", "compile found-3", "taken found-3",
                          "step found-1"));
}

TEST_F(BoxSearchesTest, WhatIsFoundToBeKeptLeavesWhatServes) {
  control_->Search({.plans = 1});
  const auto version = StoreBoxes(/*deterministic=*/true);
  AwaitEnd(*Start(version));
  const std::string full = ServedBy(*version), one = ServedAt(*version, 1);
  AwaitEnd(*StartWith(version, "1h", v1::SearchOptions::KEEP));
  EXPECT_EQ(ServedBy(*version), full);
  EXPECT_EQ(ServedAt(*version, 1), one);
  const v1::Model model = version->ToProto(true);
  for (const char* found : {"found-1", "found-2", "found-3"}) {
    EXPECT_THAT(PlanIds(model), Contains(found));
  }
  // A search that only compares searches only the full range.
  const size_t before = Searches().size();
  AwaitEnd(*StartWith(version, "1h", v1::SearchOptions::COMPARE));
  EXPECT_EQ(Searches().size(), before + 1);
}

TEST_F(BoxSearchesTest, OneThatFailsCostsTheOthersNothing) {
  control_->Search({.plans = 1});
  const auto version = StoreBoxes();
  const auto job = StartSearching(version);
  Steps(1);
  control_->Search({.error = absl::InternalError("the tuner has no answer")});
  Steps(1);  // ends the full range's search, and the first box's begins
  control_->Search({.plans = 1});
  control_->ReleaseSearches();
  const Job end = AwaitEnd(*job);
  EXPECT_EQ(end.phase(), Job::DONE);
  EXPECT_EQ(end.stop_reason(), Job::STOP_EXHAUSTED);
  EXPECT_EQ(end.buckets_searched(), 2);
  EXPECT_EQ(ServedAt(*version, 1), "found-1");
  EXPECT_EQ(ServedAt(*version, 2), "found-2");
}

TEST_F(BoxSearchesTest, WithoutGapsToCompareInItEndsWithItsTime) {
  control_->Search({.plans = 1});
  const auto version = StoreBoxes();
  control_->HoldSearches();
  const auto job = StartWith(version, "300ms");
  control_->AwaitSearch();
  control_->Search({.first = 1, .crowded = 1 << 30});  // searches of the boxes
  control_->ReleaseSearches();
  const Job end = AwaitEnd(*job);
  EXPECT_EQ(end.phase(), Job::DONE);
  EXPECT_EQ(end.buckets_searched(), 2);
  EXPECT_EQ(ServedAt(*version, 1), "found-1");
}

TEST_F(BoxSearchesTest, PinnedOrDeletedMeanwhileNothingIsSearchedForAnyMore) {
  control_->Search({.plans = 1});
  const auto version = StoreBoxes();
  const auto job = StartSearching(version);
  Steps(1);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  control_->ReleaseSearches();
  EXPECT_EQ(AwaitEnd(*job).buckets_searched(), 0);
  EXPECT_EQ(ServedAt(*version, 1), "found-1");
  EXPECT_THAT(control_->events(), Not(Contains("taken found-2")));
}

// The full range's plan serves its sizes, and is faster than a plain plan.
TEST_F(BoxSearchesTest, ABoxWhoseKernelIsWrongIsNotMadePlain) {
  const auto alone = Store(UploadMessages("alone", ReluModel()));
  EXPECT_EQ(AwaitEnd(*StartWith(alone, "0")).phase(), Job::DONE);
  control_->FailCompiles(absl::DataLossError("kernel Relu: y is 1, 0 is right"));
  const auto version = StoreBoxes();
  EXPECT_EQ(AwaitEnd(*StartWith(version, "0")).phase(), Job::DONE);
  EXPECT_EQ(ServedAt(*version, 1), ServedBy(*alone));
  EXPECT_THAT(version->ToProto(true).buckets(0).reason(), HasSubstr("y is 1"));
  EXPECT_THAT(control_->events(), Each(Not(StartsWith("lower plain"))));
}

}  // namespace
}  // namespace athanor
