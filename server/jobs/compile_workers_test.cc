// Tests compile jobs: which plan serves, which plans are kept, and many jobs at once.
#include "server/jobs/compile_workers.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/search_testing.h"

namespace athanor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(SearchTest, APinnedVersionHasNone) {
  control_->Search({.plans = 1});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  auto first = core_->workers().Start(version, WithBudget("0"));
  ASSERT_TRUE(first.ok()) << first.status();
  AwaitEnd(**first);
  const std::string baseline = ServedBy(*version);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", baseline).ok());
  EXPECT_EQ(AwaitEnd(*Start(version)).stop_reason(), Job::STOP_BASELINE_ONLY);
  EXPECT_EQ(ServedBy(*version), baseline);
}

TEST_F(SearchTest, WhatIsFoundAfterPinningDoesNotServe) {
  control_->Search({.plans = 1});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::shared_ptr<CompileJob> job = StartSearching(version);
  const std::string baseline = ServedBy(*version);
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", baseline).ok());
  control_->ReleaseSearches();
  EXPECT_EQ(AwaitEnd(*job).search().plans_taken(), 0);
  EXPECT_THAT(control_->events(), Contains("refused found-1"));
  EXPECT_EQ(ServedBy(*version), baseline);
}

TEST_F(SearchTest, ARememberedJobKeepsNoDeletedVersion) {
  control_->Search({.plans = 1});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::shared_ptr<CompileJob> job = Start(version);
  AwaitEnd(*job);
  EXPECT_EQ(job->version(), version);
  const std::weak_ptr<ModelVersion> deleted = version;
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  version.reset();
  // Its worker releases the version a little after its end is visible; if this never ends, the test
  // fails by its time limit.
  while (!deleted.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(job->version(), nullptr);
  EXPECT_EQ(job->slot(), nullptr);
  EXPECT_THAT(core_->workers().List("m"), Contains(job));
  EXPECT_EQ(job->state().model(), "m");
}

TEST_F(SearchTest, APreviousPlanServesWhilePinned) {
  control_->Search({.plans = 3});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::shared_ptr<CompileJob> job = StartSearching(version);
  const std::string baseline = ServedBy(*version);
  control_->ReleaseSearches();
  AwaitEnd(*job);
  ASSERT_EQ(ServedBy(*version), "found-3");
  const std::vector<std::string> all = {"found-3", "found-2", "found-1", baseline};
  EXPECT_EQ(PlanIds(version->ToProto(true)), all);
  const std::weak_ptr<const ServedPlan> third = version->plan();
  for (const std::string& id : {std::string("found-1"), baseline}) {
    ASSERT_TRUE(core_->workers().pins().Pin("m", "", id).ok());
    EXPECT_EQ(ServedBy(*version), id);
    // A plan that does not serve holds no prepared weights, once the search has released it.
    while (!third.expired()) std::this_thread::yield();
    EXPECT_TRUE(version->ToProto(true).pinned());
    EXPECT_EQ(PlanIds(version->ToProto(true)), all);
    EXPECT_EQ(Run(*version, 5).value(), 10);
    const size_t events = control_->events().size();
    EXPECT_EQ(AwaitEnd(*Start(version)).stop_reason(), Job::STOP_BASELINE_ONLY);
    EXPECT_EQ(control_->events().size(), events);
    EXPECT_EQ(ServedBy(*version), id);
  }
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "").ok());
  EXPECT_EQ(ServedBy(*version), "found-3");
  EXPECT_FALSE(version->ToProto(true).pinned());
  const absl::Status unknown = core_->workers().pins().Pin("m", "", "found-9").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("has no plan \"found-9\"; it has \"found-3\", \"found-2\""));
  EXPECT_EQ(ServedBy(*version), "found-3");
}

TEST_F(SearchTest, KeepsTheFirstPlanAndTheLatest) {
  control_->Search({.plans = 20});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::shared_ptr<CompileJob> job = StartSearching(version);
  const std::string baseline = ServedBy(*version);
  control_->ReleaseSearches();
  AwaitEnd(*job);
  EXPECT_THAT(PlanIds(version->ToProto(true)),
              ElementsAre("found-20", "found-19", "found-18", "found-17", "found-16", "found-15",
                          "found-14", baseline));
  EXPECT_EQ(core_->workers().pins().Pin("m", "", "found-13").status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  EXPECT_THAT(PlanIds(version->ToProto(false)), ElementsAre());
}

TEST_F(SearchTest, AReadyVersionHasItsPlanAmongThoseKept) {
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::vector<std::string> kept;
  version->serving().WhenReady(
      [&](const absl::Status&) { kept = PlanIds(version->ToProto(true)); });
  AwaitEnd(*Start(version));
  EXPECT_THAT(kept, ElementsAre(ServedBy(*version)));
}

// Pins and unpins during calls and a search that swaps endlessly.
TEST_F(SearchTest, PinsBesideSwaps) {
  control_->Search({.plans = 1'000'000'000});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::shared_ptr<CompileJob> job = Start(version);
  ASSERT_TRUE(Await(*version).ok());
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) ASSERT_EQ(Run(*version, 4).value(), 8);
    });
  }
  const std::string baseline = PlanIds(version->ToProto(true)).back();
  for (int i = 0; i < 20; ++i) {
    const std::vector<std::string> ids = PlanIds(version->ToProto(true));
    const std::string wanted = ids[ids.size() / 2];
    const absl::Status pinned = core_->workers().pins().Pin("m", "", wanted).status();
    // Swaps may have removed the plan meanwhile.
    if (!absl::IsNotFound(pinned)) {
      ASSERT_TRUE(pinned.ok()) << pinned;
      EXPECT_EQ(ServedBy(*version), wanted);
      ASSERT_TRUE(core_->workers().pins().Pin("m", "", "").ok());
    }
    ASSERT_TRUE(core_->workers().pins().Pin("m", "", baseline).ok());
    EXPECT_EQ(ServedBy(*version), baseline);
    ASSERT_TRUE(core_->workers().pins().Pin("m", "", "").ok());
  }
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", baseline).ok());
  core_->workers().Cancel(job, Job::STOP_CANCELLED);
  AwaitEnd(*job);
  EXPECT_EQ(ServedBy(*version), baseline);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// Returns the messages of an upload with `deterministic`.
std::vector<v1::UploadModelRequest> Deterministic(const std::string& name) {
  std::vector<v1::UploadModelRequest> messages = UploadMessages(name, ScaleModel({2}));
  for (v1::UploadModelRequest& message : messages) {
    if (message.has_header()) message.mutable_header()->set_deterministic(true);
  }
  return messages;
}

TEST_F(SearchTest, ADeterministicVersionKeepsItsPlan) {
  control_->Search({.plans = 2});
  std::shared_ptr<ModelVersion> version = Store(Deterministic("m"));
  EXPECT_EQ(AwaitEnd(*Start(version)).stop_reason(), Job::STOP_BASELINE_ONLY);
  const std::string baseline = ServedBy(*version);
  EXPECT_TRUE(version->ToProto(true).deterministic());
  // It searches on request, and the serving plan stays.
  const SearchPolicy policy = core_->workers().policies().Of(*version);
  EXPECT_EQ(policy.use, v1::SearchOptions::KEEP);
  const std::shared_ptr<const ServedPlan> serving = version->plan();
  auto job = core_->workers().Start(version, policy);
  ASSERT_TRUE(job.ok()) << job.status();
  const Job end = AwaitEnd(**job);
  EXPECT_EQ(end.stop_reason(), Job::STOP_EXHAUSTED);
  EXPECT_EQ(version->plan(), serving);
  EXPECT_EQ(PlanIds(version->ToProto(true)),
            (std::vector<std::string>{"found-2", "found-1", baseline}));
  EXPECT_EQ(end.comparison().plan_id(), "found-2");
  EXPECT_EQ(end.comparison().against(), baseline);
  EXPECT_EQ(end.comparison().ratio(), 0.5);
  const v1::PlanInfo found = version->ToProto(true).plans(0);
  EXPECT_EQ(found.search().budget(), "3600s");
  EXPECT_FALSE(version->ToProto(true).plans(2).has_search());
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-2").ok());
  EXPECT_EQ(ServedBy(*version), "found-2");
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "").ok());
  EXPECT_EQ(ServedBy(*version), baseline);
}

TEST_F(SearchTest, KeptPlansDoNotPushOutWhatServes) {
  control_->Search({.plans = 3});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  AwaitEnd(*Start(version));
  ASSERT_EQ(ServedBy(*version), "found-3");
  control_->Search({.plans = 20});
  auto job = core_->workers().Start(version, WithBudget("1h", v1::SearchOptions::KEEP));
  ASSERT_TRUE(job.ok()) << job.status();
  AwaitEnd(**job);
  EXPECT_EQ(ServedBy(*version), "found-3");
  const std::vector<std::string> ids = PlanIds(version->ToProto(true));
  EXPECT_EQ(ids.size(), 8u);
  EXPECT_EQ(ids[0], "found-23");
  EXPECT_EQ(ids[6], "found-3");
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "found-23").ok());
  ASSERT_TRUE(core_->workers().pins().Pin("m", "", "").ok());
  EXPECT_EQ(ServedBy(*version), "found-3");
}

TEST_F(SearchTest, ComparingBeginsAtTheBaselineAndKeepsNothing) {
  control_->Search({.plans = 2});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  AwaitEnd(*Start(version));
  const std::vector<std::string> before = PlanIds(version->ToProto(true));
  ASSERT_EQ(ServedBy(*version), "found-2");
  SearchPolicy policy = WithBudget("fast:7c", v1::SearchOptions::COMPARE);
  policy.seed = 5;
  policy.disabled_rules = {"fuse"};
  const size_t events = control_->events().size();
  auto job = core_->workers().Start(version, policy);
  ASSERT_TRUE(job.ok()) << job.status();
  const Job end = AwaitEnd(**job);
  EXPECT_EQ(control_->events()[events], "search from " + before.back());
  EXPECT_EQ(control_->events().back(), "compare found-4 with found-2");
  EXPECT_EQ(end.comparison().ratio(), 0.5);
  EXPECT_EQ(PlanIds(version->ToProto(true)), before);
  EXPECT_EQ(ServedBy(*version), "found-2");
  const PlanSearchOptions options = control_->search_options();
  EXPECT_EQ(options.seed, 5u);
  EXPECT_EQ(options.max_candidates, 7);
  EXPECT_EQ(options.mode, v1::SEARCH_FAST);
  EXPECT_THAT(options.disabled_rules, ElementsAre("fuse"));
  EXPECT_EQ(end.search_options().SerializeAsString(), policy.ToProto().SerializeAsString());
}

// Uses two workers, so that only this rule keeps the second from overwriting the first's plan.
TEST_F(SearchTest, AVersionHasOneJobAtATime) {
  Begin(2);
  control_->Search({.plans = 1, .endless = true});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::shared_ptr<CompileJob> first = StartSearching(version);
  std::shared_ptr<CompileJob> second = Start(version);
  std::shared_ptr<CompileJob> third = Start(version);
  // Another version's job overtakes the two that wait.
  std::shared_ptr<CompileJob> other = Start(Store("other", ScaleModel({1, 2})));
  control_->LetSearch(8);
  ASSERT_TRUE(Await(*other->version()).ok());
  EXPECT_EQ(second->state().phase(), Job::QUEUED);
  EXPECT_EQ(third->state().phase(), Job::QUEUED);
  core_->workers().Cancel(third, Job::STOP_CANCELLED);
  EXPECT_EQ(third->state().phase(), Job::CANCELLED);
  control_->ReleaseSearches();
  core_->workers().Cancel(first, Job::STOP_CANCELLED);
  AwaitEnd(*first);
  while (second->state().search().plans_taken() == 0) std::this_thread::yield();
  EXPECT_EQ(second->state().phase(), Job::SEARCHING);
  core_->workers().Cancel(second, Job::STOP_CANCELLED);
  core_->workers().Cancel(other, Job::STOP_CANCELLED);
  EXPECT_EQ(AwaitEnd(*second).stop_reason(), Job::STOP_CANCELLED);
  AwaitEnd(*other);
}

// Many jobs of one version on several workers: never two run at once, and all end.
TEST_F(SearchTest, ManyJobsOfOneVersion) {
  Begin(3);
  control_->Search({.plans = 2});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      std::vector<std::shared_ptr<CompileJob>> jobs;
      for (int i = 0; i < 5; ++i) jobs.push_back(Start(version));
      core_->workers().Cancel(jobs[2], Job::STOP_CANCELLED);
      for (const auto& job : jobs) AwaitEnd(*job);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Each search goes on from the plan of the one before: none was lost.
  std::string serving;
  for (const std::string& event : control_->events()) {
    if (event.rfind("search from ", 0) == 0 && !serving.empty()) {
      EXPECT_EQ(event, "search from " + serving);
    }
    if (event.rfind("taken ", 0) == 0) serving = event.substr(6);
  }
  EXPECT_EQ(ServedBy(*version), serving);
}

// Many searches of several workers, ended in different ways at once.
TEST_F(SearchTest, ManyAtOnce) {
  Begin(2);
  control_->Search({.plans = 3, .endless = true});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "m" + std::to_string(t);
      for (int i = 1; i <= 6; ++i) {
        std::shared_ptr<ModelVersion> version = StoreScale(name, static_cast<float>(i));
        std::shared_ptr<CompileJob> job = Start(version);
        const absl::Status ready = Await(*version);
        ASSERT_TRUE(ready.ok()) << ready;
        while (job->state().search().plans_taken() < 3) {
          ASSERT_EQ(Run(*version, 2).value(), 2.0f * static_cast<float>(i));
        }
        if (i % 2 == 0) {
          core_->workers().Cancel(job, Job::STOP_CANCELLED);
        } else {
          ASSERT_TRUE(core_->registry().Delete(name, std::to_string(i)).ok());
          core_->workers().CancelFor(*version);
        }
        EXPECT_EQ(AwaitEnd(*job).stop_reason(),
                  i % 2 == 0 ? Job::STOP_CANCELLED : Job::STOP_MODEL_DELETED);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace athanor
