// Tests equal searches on one cache: one runs, and the others wait for it and take over its plan.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "compiler/cache/cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/parked_jobs.h"
#include "server/testing/search_testing.h"

namespace athanor {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class SharedSearchTest : public SearchTest {
 protected:
  void SetUp() override {
    path_ = FreshDirectory() + "/cache.db";
    control_->RememberIn(path_);
    options_.search_budget = "1h";
    Begin(2);
    theirs_ = Cache::Open({.path = path_}, [](absl::string_view) {});
  }
  void TearDown() override {
    SearchTest::TearDown();
    lease_.reset();  // before its table is destroyed
  }

  // Makes the other server begin the search that an upload of `version` would start.
  void TheyBegin(const ModelVersion& version) {
    const v1::SearchOptions how = core_->workers().policies().Automatic(version).ToProto();
    const PlanKey key = core_->keeper().KeyOf(version, version.graph(), how);
    absl::StatusOr<Lease> lease =
        theirs_->leases().Take(SearchKeyOf(key, how), kSearchLease, "theirs");
    ASSERT_TRUE(lease.ok()) << lease.status();
    lease_.emplace(*std::move(lease));
  }
  // Waits until the job waits or has ended.
  Job AwaitWaiting(CompileJob& job) {
    Mutex mu;
    CondVar cv;
    const uint64_t watch = job.Watch([&] {
      MutexLock lock(mu);
      cv.NotifyAll();
    });
    while (!job.finished() && job.state().waits_for().empty()) {
      MutexLock lock(mu);
      cv.WaitFor(lock, std::chrono::milliseconds(20));
    }
    job.Unwatch(watch);
    return job.state();
  }
  int64_t Searches() {
    return absl::c_count_if(control_->events(), [](const std::string& event) {
      return absl::StartsWith(event, "search from");
    });
  }

  std::string path_;
  std::unique_ptr<Cache> theirs_;
  std::optional<Lease> lease_;
};

TEST_F(SharedSearchTest, GoesOnOnceTheOtherIsGone) {
  control_->Search({.plans = 1, .stop = Job::STOP_ROOFLINE});
  auto version = StoreScale("m", 3);
  TheyBegin(*version);
  auto job = Start(version);
  const Job waits = AwaitWaiting(*job);
  EXPECT_EQ(waits.phase(), Job::SEARCHING);
  EXPECT_THAT(waits.waits_for(), HasSubstr("an equal graph"));
  EXPECT_EQ(Run(*version, 2).value(), 6);  // the baseline serves meanwhile
  EXPECT_EQ(Searches(), 0);
  lease_->Release();  // it was killed and found nothing
  const Job end = AwaitEnd(*job);
  EXPECT_EQ(end.stop_reason(), Job::STOP_ROOFLINE);
  EXPECT_EQ(end.waits_for(), "");
  EXPECT_EQ(ServedBy(*version), "found-1");
  EXPECT_THAT(core_->cache().leases().Holders(), IsEmpty());
}

TEST_F(SharedSearchTest, WhatOneFindsServesTheOthers) {
  control_->Search({.plans = 1, .stop = Job::STOP_STAGNATION});
  auto one = StoreScale("one", 3), two = StoreScale("two", 3);
  auto first = StartSearching(one);
  auto second = Start(two);
  EXPECT_NE(AwaitWaiting(*second).waits_for(), "");
  control_->ReleaseSearches();
  EXPECT_EQ(AwaitEnd(*first).stop_reason(), Job::STOP_STAGNATION);
  EXPECT_EQ(AwaitEnd(*second).stop_reason(), Job::STOP_RESTORED);
  EXPECT_EQ(ServedBy(*one), "found-1");
  EXPECT_EQ(ServedBy(*two), "found-1");
  EXPECT_EQ(Run(*two, 2).value(), 6);
  EXPECT_EQ(Searches(), 1);
}

// The search was requested: it waits, takes over what the other found, and goes on from there.
TEST_F(SharedSearchTest, StartCompileSearchesAfterTheOther) {
  control_->Search({.plans = 1});
  auto one = StoreScale("one", 3), two = StoreScale("two", 3);
  control_->HoldSearches();
  auto first = core_->workers().Start(one, WithBudget("1m")).value();
  control_->AwaitSearch();
  auto second = core_->workers().Start(two, WithBudget("1m")).value();
  EXPECT_NE(AwaitWaiting(*second).waits_for(), "");
  control_->ReleaseSearches();
  AwaitEnd(*first);
  AwaitEnd(*second);
  EXPECT_THAT(control_->events(), Contains("search from found-1"));
  EXPECT_EQ(ServedBy(*one), "found-1");
  EXPECT_EQ(ServedBy(*two), "found-2");
}

TEST_F(SharedSearchTest, OtherOptionsAreAnotherSearch) {
  control_->Search({.plans = 1, .stop = Job::STOP_ROOFLINE});
  auto version = StoreScale("m", 3);
  TheyBegin(*version);
  auto job = core_->workers().Start(version, WithBudget("5m")).value();
  EXPECT_EQ(AwaitEnd(*job).stop_reason(), Job::STOP_ROOFLINE);
  // A search whose plans will not serve does not wait for others either.
  job = core_->workers().Start(version, WithBudget("1h", v1::SearchOptions::KEEP)).value();
  EXPECT_EQ(AwaitEnd(*job).stop_reason(), Job::STOP_ROOFLINE);
}

TEST_F(SharedSearchTest, AWaitingSearchIsCancelled) {
  control_->Search({.plans = 1, .stop = Job::STOP_ROOFLINE});
  auto version = StoreScale("m", 3);
  TheyBegin(*version);
  auto job = Start(version);
  AwaitWaiting(*job);
  core_->workers().Cancel(job, Job::STOP_CANCELLED);
  EXPECT_EQ(AwaitEnd(*job).stop_reason(), Job::STOP_CANCELLED);
  EXPECT_EQ(Run(*version, 2).value(), 6);
  // The version can have another job.
  lease_->Release();
  auto again = Start(version);
  EXPECT_EQ(AwaitEnd(*again).stop_reason(), Job::STOP_ROOFLINE);
  EXPECT_THAT(job->state().message(), Not(HasSubstr("waits")));
}

TEST_F(SharedSearchTest, ADeletedVersionIsNotWaitedFor) {
  control_->Search({.plans = 1});
  auto version = StoreScale("m", 3);
  TheyBegin(*version);
  auto job = Start(version);
  AwaitWaiting(*job);
  core_->workers().CancelFor(*version);
  EXPECT_EQ(AwaitEnd(*job).stop_reason(), Job::STOP_MODEL_DELETED);
}

TEST_F(SharedSearchTest, StopsWhileASearchWaits) {
  control_->Search({.plans = 1});
  auto version = StoreScale("m", 3);
  TheyBegin(*version);
  auto job = Start(version);
  AwaitWaiting(*job);
  core_->workers().Stop();
  EXPECT_EQ(job->state().stop_reason(), Job::STOP_SHUTDOWN);
}

}  // namespace
}  // namespace athanor
