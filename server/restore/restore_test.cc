// Tests servers that end and start again.
#include "server/restore/restore.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/restore/restore_testing.h"

namespace athanor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

TEST_F(RestoreTest, WhatServedServesAgainAndNothingIsCompiled) {
  MakeSearched(2);
  const v1::Model before = core_->registry().Describe(*Find("m"));
  Restart();
  const auto version = Find("m");
  EXPECT_EQ(ServedBy(*version), "found-2") << "it serves before the server listens";
  EXPECT_EQ(Run(*version, 2).value(), 6);
  EXPECT_THAT(Events(), IsEmpty());
  const v1::Model after = core_->registry().Describe(*version);
  EXPECT_EQ(PlanIds(after), PlanIds(before));
  ASSERT_EQ(after.plans_size(), before.plans_size());
  for (int i = 0; i < after.plans_size(); ++i) {
    EXPECT_EQ(after.plans(i).SerializeAsString(), before.plans(i).SerializeAsString());
  }
  const Job job = JobOf(*version)->state();
  EXPECT_EQ(job.phase(), Job::DONE);
  EXPECT_EQ(job.stop_reason(), Job::STOP_RESTORED);
  EXPECT_EQ(job.kernels_total(), 1);
  EXPECT_EQ(job.kernels_from_cache(), 1);
  EXPECT_EQ(version->plans().view().full().first()->plan.kind(), "baseline");
  EXPECT_EQ(version->plans().view().full().Find("found-2")->costs->size(), 1u);
  // A second restart works as well on the restored plans.
  Restart();
  EXPECT_EQ(ServedBy(*Find("m")), "found-2");
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(RestoreTest, ABaselineServesAgain) {
  options_.search_budget = "0";
  Begin(1);
  const auto version = StoreScale("m", 3);
  ASSERT_EQ(AwaitEnd(*Start(version)).stop_reason(), Job::STOP_BASELINE_ONLY);
  const std::string id = ServedBy(*version);
  Restart();
  EXPECT_EQ(ServedBy(*Find("m")), id);
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(RestoreTest, ASearchThatHadNotEndedGoesOnFromWhatServes) {
  control_->Search({.plans = 1, .endless = true});
  StartSearching(StoreScale("m", 3));
  Steps(2);
  ASSERT_EQ(ServedBy(*Find("m")), "found-1");
  Restart();
  const auto version = Find("m");
  EXPECT_EQ(ServedBy(*version), "found-1");
  control_->AwaitSearch();
  EXPECT_EQ(AwaitPhase(*JobOf(*version), Job::SEARCHING).phase(), Job::SEARCHING);
  EXPECT_THAT(Events(), ElementsAre("search from found-1"));
}

TEST_F(RestoreTest, OtherRulesOrBudgetsAskForAnotherSearch) {
  MakeSearched(1);
  control_->Search({});
  End();
  options_.search_budget = "2h";
  Create();
  const auto version = Find("m");
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_EQ(AwaitEnd(*JobOf(*version)).stop_reason(), Job::STOP_EXHAUSTED);
  EXPECT_THAT(Events(), ElementsAre("search from found-1", "step found-1"));
  Restart();
  EXPECT_EQ(JobOf(*Find("m"))->state().stop_reason(), Job::STOP_RESTORED);
}

TEST_F(RestoreTest, APinIsKept) {
  MakeSearched(2);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  Restart();
  auto version = Find("m");
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_TRUE(core_->registry().Describe(*version).pinned());
  EXPECT_EQ(JobOf(*version)->state().stop_reason(), Job::STOP_RESTORED);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "").ok());
  EXPECT_EQ(ServedBy(*version), "found-2") << "what would serve without the pin is known, too";
  EXPECT_THAT(Events(), IsEmpty());
  version.reset();
  Restart();
  EXPECT_EQ(ServedBy(*Find("m")), "found-2");
}

TEST_F(RestoreTest, APinnedPlanServesWithoutTheCache) {
  MakeSearched(2);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  End();
  control_->RememberIn(FreshDirectory() + "/cache.db");
  Create();
  const auto version = Find("m");
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_EQ(AwaitEnd(*JobOf(*version)).kernels_from_cache(), 0);
  EXPECT_THAT(Events(), ElementsAre("compile found-1", "verify found-1"));
  EXPECT_EQ(Pins("found-1"), 1);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "").ok());
  EXPECT_EQ(Pins("found-1"), 0);
}

TEST_F(RestoreTest, APinThatIsLostIsServedByTheBaselineAndSaysSo) {
  MakeSearched(1);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  End();
  control_->RememberIn(FreshDirectory() + "/cache.db");
  fs::resize_file(PinPath("found-1"), 50);
  Create();
  const auto version = Find("m");
  const Job job = AwaitEnd(*JobOf(*version));
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline");
  EXPECT_THAT(job.message(), HasSubstr("plan found-1 is not in the cache"));
  EXPECT_EQ(version->pinned_plan(), "found-1");
}

TEST_F(RestoreTest, PinFilesGoWithWhoNeedsThem) {
  MakeSearched(1);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  std::ofstream(options_.state_dir + "/plans/p-of-a-killed-server") << "left over";
  Restart();
  EXPECT_EQ(Pins("found-1"), 1);
  EXPECT_FALSE(fs::exists(options_.state_dir + "/plans/p-of-a-killed-server"));
  const auto version = Find("m");
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  EXPECT_EQ(Pins("found-1"), 1) << "pinned again it is pinned still";
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  core_->workers().CancelFor(*version);
  EXPECT_EQ(Pins("found-1"), 0);
}

TEST_F(RestoreTest, VersionsOfOneGraphArePinnedEachForItself) {
  MakeSearched(1);
  const auto other = StoreScale("other", 5);
  AwaitEnd(*Start(other));
  ASSERT_EQ(ServedBy(*other), "found-1");
  for (const char* name : {"m", "other"}) {
    ASSERT_TRUE(core_->workers().pins().Pin(name, "", "found-1").ok());
  }
  EXPECT_EQ(Pins("found-1"), 2);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "").ok());
  EXPECT_EQ(Pins("found-1"), 1);
  End();
  control_->RememberIn(FreshDirectory() + "/cache.db");
  control_->Search({});
  Create();
  const auto version = Find("other");
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(ServedBy(*version), "found-1") << "its file did not go with the other's";
}

TEST_F(RestoreTest, PinsOfServersBeforeAreTakenOver) {
  MakeSearched(1);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  End();
  fs::rename(PinPath("found-1"), options_.state_dir + "/plans/found-1");
  control_->RememberIn(FreshDirectory() + "/cache.db");
  Create();
  const auto version = Find("m");
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_FALSE(fs::exists(options_.state_dir + "/plans/found-1"));
}

TEST_F(RestoreTest, KeptPlansCanBePinnedAfterARestart) {
  auto messages = UploadMessages("m", ScaleModel({3}));
  messages[0].mutable_header()->set_deterministic(true);
  control_->Search({.plans = 1});
  {
    const auto version = Store(messages);
    AwaitEnd(*Start(version));
    auto job = core_->workers().Start(version, WithBudget("exhaust", v1::SearchOptions::KEEP));
    ASSERT_EQ(AwaitEnd(**job).stop_reason(), Job::STOP_EXHAUSTED);
    ASSERT_EQ(version->plan()->compiled->plan.kind(), "baseline");
  }
  Restart();
  const auto version = Find("m");
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline");
  EXPECT_EQ(PlanIds(core_->registry().Describe(*version)).front(), "found-1");
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(RestoreTest, AnotherMachineMakesItsOwnPlanAndSaysWhy) {
  MakeSearched(1);
  End();
  control_->RememberIn(cache_path_, "other cpu");
  control_->Search({});
  Create();
  const auto version = Find("m");
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline");
  EXPECT_THAT(Events(), Contains("lower " + ServedBy(*version)));
  Restart();  // the state of this search is stored too
  EXPECT_EQ(Find("m")->plan()->compiled->plan.kind(), "baseline");
}

TEST_F(RestoreTest, TheReasonIsInTheJobsMessage) {
  options_.search_budget = "0";
  Begin(1);
  AwaitEnd(*Start(StoreScale("m", 3)));
  End();
  control_->RememberIn(cache_path_, "other cpu");
  Create();
  const Job job = AwaitEnd(*JobOf(*Find("m")));
  EXPECT_EQ(job.stop_reason(), Job::STOP_BASELINE_ONLY);
  EXPECT_THAT(job.message(), HasSubstr("cpu \"test cpu\" is not \"other cpu\""));
}

// A pin's row keeps what is needed to find its plan, even over a start that could not serve it.
TEST_F(RestoreTest, APinOutlivesAStartThatCouldNotServeIt) {
  control_->Search({.plans = 1});
  auto messages = UploadMessages("m", ScaleModel({3}));
  messages[0].mutable_header()->set_approximate(true);
  AwaitEnd(*Start(Store(messages)));
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-1").ok());
  End();
  control_->RememberIn(cache_path_, "other cpu");
  Create();
  ASSERT_TRUE(Await(*Find("m")).ok());
  ASSERT_EQ(Find("m")->plan()->compiled->plan.kind(), "baseline");
  // The ids of the serving plans were written with the version's rows.
  End();
  control_->RememberIn(FreshDirectory() + "/cache.db");
  Create();
  const auto version = Find("m");
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_TRUE(version->plan()->compiled->how.approximate());
}

TEST_F(RestoreTest, VersionsThatServeNobodyAreMadeLast) {
  options_.search_budget = "0";
  Begin(1);
  // "m" serves; a newer version of "m" and two of "n" were stored and not built.
  AwaitEnd(*Start(Store("m", ScaleModel({1}))));
  const std::string newer = "lower " + LoweredId(Store("m", ScaleModel({1, 2})));
  const std::string older = "lower " + LoweredId(Store("n", ScaleModel({1, 2, 3})));
  const std::string newest = "lower " + LoweredId(Store("n", ScaleModel({1, 2, 3, 4})));
  Restart();
  for (const char* name : {"m", "n"}) {
    for (const auto& version : core_->registry().List(name)) ASSERT_TRUE(Await(*version).ok());
  }
  std::vector<std::string> lowered;
  for (const std::string& event : Events()) {
    if (absl::StartsWith(event, "lower ")) lowered.push_back(event);
  }
  EXPECT_THAT(lowered, ElementsAre(newest, newer, older))
      << "first what callers of a name wait for, then the rest";
}

TEST_F(RestoreTest, AMachineThatIsNotKnownYetIsAskedFor) {
  MakeSearched(2);
  End();
  control_->ForgetMachine();
  Create();
  const auto version = Find("m");
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(ServedBy(*version), "found-2");
  EXPECT_EQ(AwaitEnd(*JobOf(*version)).stop_reason(), Job::STOP_RESTORED);
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_EQ(PlanIds(core_->registry().Describe(*version)).size(), 3u);
}

TEST_F(RestoreTest, VersionsThatServeNobodyComeBackTheSameWay) {
  MakeSearched(1);
  AwaitEnd(*Start(StoreScale("m", 4)));
  Restart();
  const auto old = core_->registry().Find("m", "1").value();
  ASSERT_TRUE(Await(*old).ok());
  EXPECT_EQ(ServedBy(*old), "found-1");
  EXPECT_EQ(Run(*old, 2).value(), 6);
  for (const std::string& event : Events()) {
    EXPECT_FALSE(absl::StartsWith(event, "lower")) << event;
  }
}

TEST_F(RestoreTest, AnUploadOfAKnownGraphIsServedFromTheCache) {
  MakeSearched(2);
  seen_ = control_->events().size();
  // Stores the same graph with other weights.
  const auto other = StoreScale("other", 5);
  const Job job = AwaitEnd(*Start(other));
  EXPECT_EQ(ServedBy(*other), "found-2");
  EXPECT_EQ(Run(*other, 2).value(), 10);
  EXPECT_EQ(job.stop_reason(), Job::STOP_RESTORED) << "its search has ended for another version";
  EXPECT_EQ(other->plans().view().full().first()->plan.kind(), "baseline");
  EXPECT_THAT(Events(), IsEmpty());
  // A job that asks for the baseline gets it.
  const auto still = StoreScale("still", 6);
  auto started = core_->workers().Start(still, WithBudget("0"));
  EXPECT_EQ(AwaitEnd(**started).stop_reason(), Job::STOP_BASELINE_ONLY);
  EXPECT_EQ(still->plan()->compiled->plan.kind(), "baseline");
  EXPECT_THAT(Events(), IsEmpty());
  // An explicitly requested search runs.
  started = core_->workers().Start(other, WithBudget("1h"));
  AwaitEnd(**started);
  EXPECT_THAT(Events(), Contains("search from found-2"));
}

TEST_F(RestoreTest, ABaselineGivesWayToWhatWasFoundForItsGraph) {
  MakeSearched(2);
  const auto still = StoreScale("still", 6);
  AwaitEnd(**core_->workers().Start(still, WithBudget("0")));
  ASSERT_EQ(still->plan()->compiled->plan.kind(), "baseline");
  Restart();
  const auto version = Find("still");
  AwaitEnd(*JobOf(*version));
  EXPECT_EQ(ServedBy(*version), "found-2");
  EXPECT_EQ(Run(*version, 2).value(), 12);
  EXPECT_THAT(Events(), IsEmpty()) << "nothing is searched for or compiled";
  Restart();
  EXPECT_EQ(ServedBy(*Find("still")), "found-2");
}

TEST_F(RestoreTest, WhatDoesNotLoadIsMadeAnew) {
  MakeSearched(1);
  End();
  // Replaces the object of the plan's kernel, so that the runtime refuses to load it.
  v1::Kernel kernel;
  kernel.set_source("found-1");
  control_->cache()->PutKernel(KernelKeyOf(kernel, control_->machine()), "object of another");
  control_->Search({});
  Create();
  const auto version = Find("m");
  const Job job = AwaitEnd(*JobOf(*version));
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline");
  EXPECT_THAT(job.message(), HasSubstr("was given the object of another"));
}

TEST_F(RestoreTest, ManyVersionsByManyLoaders) {
  options_.search_budget = "0";
  options_.threads = 4;
  Begin(2);
  for (int i = 1; i <= 12; ++i) {
    AwaitEnd(*Start(StoreScale("m" + std::to_string(i), static_cast<float>(i))));
  }
  Restart();
  EXPECT_THAT(Events(), IsEmpty());
  for (int i = 1; i <= 12; ++i) {
    EXPECT_EQ(Run(*Find("m" + std::to_string(i)), 2).value(), 2 * i);
  }
}

}  // namespace
}  // namespace athanor
