// Tests searches while the baseline serves: swaps under load, how searches end, and which work goes
// first.
#include "server/jobs/worker_searches.h"

#include <atomic>
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
using ::testing::Not;

TEST_F(SearchTest, SwapsUnderLoad) {
  constexpr int kSwaps = 24, kThreads = 8;
  control_->Search({.plans = kSwaps, .stop = Job::STOP_ROOFLINE});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 3);
  std::shared_ptr<CompileJob> job = StartSearching(version);
  const std::weak_ptr<const ServedPlan> baseline = version->plan();
  std::atomic<bool> stop = false;
  std::atomic<int> replies = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; !stop; i = (i + 1) % 100) {
        absl::StatusOr<float> y = Run(*version, static_cast<float>(i));
        ASSERT_TRUE(y.ok()) << y.status();
        ASSERT_EQ(*y, 3.0f * static_cast<float>(i));
        ++replies;
      }
    });
  }
  for (int i = 1; i <= kSwaps; ++i) {
    const int before = replies;
    Steps(1);
    EXPECT_EQ(ServedBy(*version), "found-" + std::to_string(i));
    while (replies < before + kThreads) std::this_thread::yield();
  }
  control_->ReleaseSearches();
  const Job end = AwaitEnd(*job);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(end.phase(), Job::DONE);
  EXPECT_EQ(end.stop_reason(), Job::STOP_ROOFLINE);
  EXPECT_EQ(end.search().plans_taken(), kSwaps);
  EXPECT_EQ(end.percent(), 100);
  EXPECT_TRUE(baseline.expired());
}

TEST_F(SearchTest, EndsWithTheSearchsReason) {
  for (Job::StopReason reason : {Job::STOP_ROOFLINE, Job::STOP_STAGNATION, Job::STOP_EXHAUSTED}) {
    control_->Search({.plans = 2, .stop = reason});
    std::shared_ptr<CompileJob> job = Start(StoreScale("m", 2));
    const Job end = AwaitEnd(*job);
    EXPECT_EQ(end.phase(), Job::DONE);
    EXPECT_EQ(end.stop_reason(), reason) << Job::StopReason_Name(end.stop_reason());
    EXPECT_EQ(end.search().plans_taken(), 2);
    EXPECT_EQ(end.search().candidates(), 3);
  }
}

TEST_F(SearchTest, EndsWhenItsTimeIsUsed) {
  control_->Search({.endless = true});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  auto job = core_->workers().Start(version, WithBudget("1ms"));
  ASSERT_TRUE(job.ok()) << job.status();
  const Job end = AwaitEnd(**job);
  EXPECT_EQ(end.phase(), Job::DONE);
  EXPECT_EQ(end.stop_reason(), Job::STOP_BUDGET);
  EXPECT_GT(end.search().seconds(), 0);
}

TEST_F(SearchTest, WhatDoesNotFinishIsEndedWhenItsTimeIsUp) {
  control_->Search({.endless = true, .deaf = true});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  auto job = core_->workers().Start(version, WithBudget("50ms"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(AwaitEnd(**job).stop_reason(), Job::STOP_BUDGET);
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline");
}

// Its time also runs while its steps wait for a build.
TEST_F(SearchTest, ASearchsTimeIsUpBesideABuild) {
  control_->Search({.endless = true, .deaf = true});
  control_->HoldSearches();
  auto job = core_->workers().Start(StoreScale("m", 2), WithBudget("500ms"));
  ASSERT_TRUE(job.ok()) << job.status();
  control_->AwaitSearch();
  control_->HoldCompiles();
  std::shared_ptr<CompileJob> build = Start(Store("b", ScaleModel({1, 2})));
  ASSERT_EQ(AwaitPhase(*build, Job::COMPILING_KERNELS).phase(), Job::COMPILING_KERNELS);
  control_->LetSearch(1);
  EXPECT_EQ(AwaitEnd(**job).stop_reason(), Job::STOP_BUDGET);
  EXPECT_EQ(build->state().phase(), Job::COMPILING_KERNELS);
  control_->ReleaseCompiles();
  ASSERT_TRUE(Await(*build->version()).ok());
}

TEST_F(SearchTest, WhoseTimeIsShortGoesOnUntilItIsUp) {
  control_->Search({.endless = true});
  StartSearching(Store("a", ScaleModel({1})));  // with an hour of time
  auto b = core_->workers().Start(Store("b", ScaleModel({1, 2})), WithBudget("40s"));
  ASSERT_TRUE(b.ok()) << b.status();
  ASSERT_EQ(AwaitPhase(**b, Job::SEARCHING).phase(), Job::SEARCHING);
  Steps(4);
  const size_t before = control_->events().size();
  Steps(4);
  const std::vector<std::string> events = control_->events();
  ASSERT_EQ(events.size(), before + 4);
  for (size_t i = before; i < events.size(); ++i) EXPECT_EQ(events[i], events[before]);
  EXPECT_GE((*b)->state().search().candidates(), 4);
}

TEST_F(SearchTest, WithoutTimeThereIsNone) {
  control_->Search({.plans = 1});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  auto job = core_->workers().Start(version, WithBudget("0"));
  ASSERT_TRUE(job.ok()) << job.status();
  const Job end = AwaitEnd(**job);
  EXPECT_EQ(end.phase(), Job::DONE);
  EXPECT_EQ(end.stop_reason(), Job::STOP_BASELINE_ONLY);
  EXPECT_EQ(version->plan()->compiled->plan.kind(), "baseline");
  EXPECT_THAT(control_->events(), ElementsAre(HasSubstr("lower")));
}

TEST_F(SearchTest, CancelledLeavesWhatServes) {
  control_->Search({.plans = 1, .endless = true});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::shared_ptr<CompileJob> job = StartSearching(version);
  Steps(1);
  core_->workers().Cancel(job, Job::STOP_CANCELLED);
  const Job end = AwaitEnd(*job);
  EXPECT_EQ(end.phase(), Job::CANCELLED);
  EXPECT_EQ(end.stop_reason(), Job::STOP_CANCELLED);
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_EQ(version->state(), v1::Model::READY);
  EXPECT_EQ(Run(*version, 5).value(), 10);
}

// Cancels a search between two of its steps, while a step of the other search runs.
TEST_F(SearchTest, CancelledBetweenItsSteps) {
  control_->Search({.endless = true});
  std::shared_ptr<CompileJob> first = StartSearching(Store("a", ScaleModel({1})));
  std::shared_ptr<CompileJob> second = Start(Store("b", ScaleModel({1, 2})));
  Steps(4);  // steps alternate, so `second` searches too, and one of them waits for its next step
  ASSERT_EQ(second->state().phase(), Job::SEARCHING);
  core_->workers().Cancel(first, Job::STOP_CANCELLED);
  control_->ReleaseSearches();
  EXPECT_EQ(AwaitEnd(*first).stop_reason(), Job::STOP_CANCELLED);
  EXPECT_FALSE(second->finished());
  core_->workers().Cancel(second, Job::STOP_CANCELLED);
  EXPECT_EQ(AwaitEnd(*second).stop_reason(), Job::STOP_CANCELLED);
}

TEST_F(SearchTest, EndsWithTheModel) {
  control_->Search({.plans = 1, .endless = true});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  std::shared_ptr<CompileJob> job = StartSearching(version);
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  // The running step still finds a plan, but that does not bring the version back.
  Steps(1);
  EXPECT_THAT(control_->events(), Contains("refused found-1"));
  EXPECT_EQ(version->plan(), nullptr);
  core_->workers().CancelFor(*version);
  const Job end = AwaitEnd(*job);
  EXPECT_EQ(end.phase(), Job::CANCELLED);
  EXPECT_EQ(end.stop_reason(), Job::STOP_MODEL_DELETED);
}

// A third model next to two that are searched: its baseline is made while a step runs, and the next
// step waits for it.
TEST_F(SearchTest, BaselinesComeFirst) {
  control_->Search({.endless = true});
  std::shared_ptr<CompileJob> a = StartSearching(Store("a", ScaleModel({1})));
  std::shared_ptr<CompileJob> b = Start(Store("b", ScaleModel({1, 2})));
  Steps(4);
  const size_t before = control_->events().size();
  std::shared_ptr<ModelVersion> third = Store("c", ScaleModel({1, 2, 3}));
  control_->HoldCompiles();
  std::shared_ptr<CompileJob> c = Start(third);
  ASSERT_EQ(AwaitPhase(*c, Job::COMPILING_KERNELS).phase(), Job::COMPILING_KERNELS);
  control_->LetSearch(2);  // the step that waits; another one may not begin yet
  while (control_->events().size() < before + 2) std::this_thread::yield();
  EXPECT_EQ(third->plan(), nullptr);
  control_->ReleaseCompiles();
  ASSERT_TRUE(Await(*third).ok());
  control_->AwaitSearch();
  const std::vector<std::string> events = control_->events();
  ASSERT_EQ(events.size(), before + 4);
  EXPECT_THAT(events[before], HasSubstr("lower"));
  EXPECT_THAT(events[before + 1], HasSubstr("step"));
  EXPECT_THAT(events[before + 2], HasSubstr("search from"));
  EXPECT_THAT(events[before + 3], HasSubstr("step"));
  EXPECT_EQ(c->state().phase(), Job::SEARCHING);
  for (const auto& job : {a, b, c}) EXPECT_FALSE(job->finished());
}

// There is one worker, and the step that has begun never ends by itself.
TEST_F(SearchTest, NoBuildWaitsForAStep) {
  control_->Search({.endless = true});
  std::shared_ptr<ModelVersion> a = Store("a", ChainModel({3}));
  std::shared_ptr<CompileJob> searching = StartSearching(a);
  std::shared_ptr<ModelVersion> b = Store("b", ScaleModel({2}));
  std::shared_ptr<CompileJob> waiting = Start(b);
  ASSERT_TRUE(Await(*b).ok());
  EXPECT_EQ(Run(*b, 5).value(), 10);
  auto plain = core_->workers().Start(Store("c", ScaleModel({1, 2})), WithBudget("0"));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(AwaitEnd(**plain).stop_reason(), Job::STOP_BASELINE_ONLY);
  auto tapped = core_->workers().Tap(a, {2});
  ASSERT_TRUE(tapped.ok()) << tapped.status();
  ASSERT_TRUE(Await((*tapped)->plans.full()).ok());
  EXPECT_EQ(Run((*tapped)->plans.full().plan(), 2, 1).value(), 6);
  EXPECT_EQ(AwaitPhase(*waiting, Job::SEARCHING).phase(), Job::SEARCHING);
  for (const std::string& event : control_->events()) EXPECT_THAT(event, Not(HasSubstr("step")));
  control_->LetSearch(4);
  control_->AwaitSearch();
  EXPECT_GE(waiting->state().search().candidates(), 1);
}

// The end of a search that has not begun, or waits for its step, does not wait for a step either.
TEST_F(SearchTest, AWaitingSearchEndsBesideAStep) {
  control_->Search({.endless = true});
  StartSearching(Store("a", ScaleModel({1})));
  std::shared_ptr<ModelVersion> version = Store("b", ScaleModel({1, 2}));
  std::shared_ptr<CompileJob> cancelled = Start(version);
  ASSERT_EQ(AwaitPhase(*cancelled, Job::SEARCHING).phase(), Job::SEARCHING);
  core_->workers().Cancel(cancelled, Job::STOP_CANCELLED);
  EXPECT_EQ(AwaitEnd(*cancelled).stop_reason(), Job::STOP_CANCELLED);
  // The version can have another job.
  std::shared_ptr<CompileJob> deleted = Start(version);
  ASSERT_EQ(AwaitPhase(*deleted, Job::SEARCHING).phase(), Job::SEARCHING);
  ASSERT_TRUE(core_->registry().Delete("b", "").ok());
  core_->workers().CancelFor(*version);
  EXPECT_EQ(AwaitEnd(*deleted).stop_reason(), Job::STOP_MODEL_DELETED);
  for (const std::string& event : control_->events()) EXPECT_THAT(event, Not(HasSubstr("step")));
}

TEST_F(SearchTest, AWaitingSearchEndsBesideABuild) {
  control_->Search({.endless = true});
  std::shared_ptr<CompileJob> a = StartSearching(Store("a", ScaleModel({1})));
  std::shared_ptr<CompileJob> b = Start(Store("b", ScaleModel({1, 2})));
  Steps(2);
  control_->HoldCompiles();
  std::shared_ptr<CompileJob> c = Start(Store("c", ScaleModel({1, 2, 3})));
  ASSERT_EQ(AwaitPhase(*c, Job::COMPILING_KERNELS).phase(), Job::COMPILING_KERNELS);
  for (const auto& job : {a, b}) core_->workers().Cancel(job, Job::STOP_CANCELLED);
  for (const auto& job : {a, b}) EXPECT_EQ(AwaitEnd(*job).stop_reason(), Job::STOP_CANCELLED);
  EXPECT_EQ(c->state().phase(), Job::COMPILING_KERNELS);
  control_->ReleaseCompiles();
  ASSERT_TRUE(Await(*c->version()).ok());
}

TEST_F(SearchTest, DrainingEndsWhatHasNotBegun) {
  control_->Search({.endless = true});
  std::shared_ptr<CompileJob> first = StartSearching(Store("a", ScaleModel({1})));
  std::shared_ptr<CompileJob> second = Start(Store("b", ScaleModel({1, 2})));
  ASSERT_EQ(AwaitPhase(*second, Job::SEARCHING).phase(), Job::SEARCHING);
  core_->workers().Stop();
  for (const auto& job : {first, second}) {
    EXPECT_EQ(job->state().stop_reason(), Job::STOP_SHUTDOWN);
  }
}

// Three or more searches on one worker would leave one waiting in line: the backend holds two.
TEST_F(SearchTest, WorkersShareTheSearches) {
  Begin(2);
  control_->Search({.endless = true});
  control_->HoldSearches();
  std::vector<std::shared_ptr<CompileJob>> jobs;
  for (int i = 1; i <= 4; ++i) {
    jobs.push_back(Start(Store("m" + std::to_string(i), ScaleModel(std::vector<float>(i, 1)))));
    ASSERT_TRUE(Await(*jobs.back()->version()).ok());
  }
  for (const auto& job : jobs) AwaitPhase(*job, Job::SEARCHING);
  control_->ReleaseSearches();
  for (const auto& job : jobs) {
    while (job->state().search().candidates() < 3) std::this_thread::yield();
  }
  for (const auto& job : jobs) core_->workers().Cancel(job, Job::STOP_CANCELLED);
  for (const auto& job : jobs) AwaitEnd(*job);
}

// A build may leave no gaps to measure in at the end of a search, so it gets another step.
TEST_F(SearchTest, WhatASearchEndsWithIsTriedAgain) {
  control_->Search({.plans = 1, .crowded = 1});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  const Job end = AwaitEnd(*Start(version));
  EXPECT_EQ(end.stop_reason(), Job::STOP_EXHAUSTED);
  EXPECT_EQ(end.search().plans_taken(), 1);
  EXPECT_EQ(version->plans().view().full().Find("found-1")->costs->size(), 1u);
  auto compared = core_->workers().Start(version, WithBudget("1h", v1::SearchOptions::COMPARE));
  ASSERT_TRUE(compared.ok()) << compared.status();
  EXPECT_EQ(AwaitEnd(**compared).comparison().ratio(), 0.5);
  // But it is tried again only once.
  control_->Search({.plans = 1, .crowded = 2});
  EXPECT_EQ(AwaitEnd(*Start(version)).stop_reason(), Job::STOP_EXHAUSTED);
  EXPECT_EQ(version->plans().view().full().Find("found-3")->costs, nullptr);
}

// More searches than the backend holds: the rest wait in line and lose nothing.
TEST_F(SearchTest, NoMoreTakeTurnsThanTheBackendHolds) {
  control_->Search({.endless = true});
  std::vector<std::shared_ptr<CompileJob>> jobs;
  jobs.push_back(StartSearching(Store("a", ScaleModel({1}))));
  jobs.push_back(Start(Store("b", ScaleModel({1, 2}))));
  jobs.push_back(Start(Store("c", ScaleModel({1, 2, 3}))));
  Steps(12);
  EXPECT_GE(jobs[0]->state().search().candidates(), 4);
  EXPECT_GE(jobs[1]->state().search().candidates(), 4);
  EXPECT_EQ(jobs[2]->state().phase(), Job::SEARCHING);
  EXPECT_EQ(jobs[2]->state().search().candidates(), 0);
  core_->workers().Cancel(jobs[0], Job::STOP_CANCELLED);
  Steps(6);
  EXPECT_TRUE(jobs[0]->finished());
  EXPECT_GE(jobs[2]->state().search().candidates(), 1);
}

TEST_F(SearchTest, SearchesTakeTurns) {
  control_->Search({.endless = true});
  std::shared_ptr<ModelVersion> a = Store("a", ScaleModel({1}));
  std::shared_ptr<ModelVersion> b = Store("b", ScaleModel({1, 2}));
  StartSearching(a);
  Start(b);
  Steps(2);
  const size_t before = control_->events().size();
  Steps(6);
  const std::vector<std::string> events = control_->events();
  ASSERT_EQ(events.size(), before + 6);
  for (size_t i = before; i + 2 < events.size(); ++i) {
    EXPECT_NE(events[i], events[i + 1]);
    EXPECT_EQ(events[i], events[i + 2]);
  }
}

TEST_F(SearchTest, DrainingEndsIt) {
  control_->Search({.plans = 1, .endless = true});
  std::shared_ptr<ModelVersion> a = Store("a", ScaleModel({1}));
  std::shared_ptr<ModelVersion> b = Store("b", ScaleModel({1, 2}));
  std::shared_ptr<CompileJob> first = StartSearching(a);
  std::shared_ptr<CompileJob> second = Start(b);
  Steps(3);
  core_->workers().Stop();  // while a step waits that is never let go
  for (const auto& job : {first, second}) {
    EXPECT_EQ(job->state().phase(), Job::CANCELLED);
    EXPECT_EQ(job->state().stop_reason(), Job::STOP_SHUTDOWN);
  }
  EXPECT_EQ(Run(*a, 7).value(), 7);
}

TEST_F(SearchTest, AnErrorLeavesWhatServes) {
  control_->Search({.plans = 1, .error = absl::InternalError("the tuner has no answer")});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  const Job end = AwaitEnd(*Start(version));
  EXPECT_EQ(end.phase(), Job::DONE);
  EXPECT_EQ(end.stop_reason(), Job::STOP_SEARCH_FAILED);
  EXPECT_THAT(end.message(), HasSubstr("the tuner has no answer"));
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_EQ(version->state(), v1::Model::READY);
  EXPECT_EQ(Run(*version, 5).value(), 10);
}

TEST_F(SearchTest, GoesOnFromWhatServes) {
  control_->Search({.plans = 2});
  std::shared_ptr<ModelVersion> version = StoreScale("m", 2);
  AwaitEnd(*Start(version));
  ASSERT_EQ(ServedBy(*version), "found-2");
  const size_t before = control_->events().size();
  AwaitEnd(*Start(version));
  EXPECT_EQ(control_->events()[before], "search from found-2");
  EXPECT_EQ(ServedBy(*version), "found-4");
}

TEST_F(SearchTest, AnUnknownRuleStopsTheServer) {
  core_.reset();
  options_.disable_rules = "algebra,algebro";
  const absl::Status status = ServerCore::Create(options_, EvaluatorFactory(control_)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--disable_rules: \"algebro\" is neither a rule nor a family"));
}

}  // namespace
}  // namespace athanor
