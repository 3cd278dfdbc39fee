// Tests compile jobs of a server that shares its cache with another server.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "compiler/cache/cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/parked_jobs.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Job = v1::CompileJob;

class SharedCacheTest : public CoreTest {
 protected:
  void SetUp() override {
    path_ = FreshDirectory() + "/cache.db";
    control_->RememberIn(path_);
    options_.state_dir = FreshDirectory();
    options_.compile_workers = 1;
    options_.search_budget = "0";
    core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
    theirs_ = Cache::Open({.path = path_}, [](absl::string_view) {});
  }
  void TearDown() override {
    control_->ReleaseCompiles();
    lease_.reset();  // before its table is destroyed
  }

  // Makes the other server begin to make the plan of `version`.
  void TheyBegin(const ModelVersion& version) {
    const PlanKey key = core_->keeper().KeyOf(version, version.graph(), {});
    absl::StatusOr<Lease> lease =
        theirs_->leases().Take(GateHash(key.Fields()), kPlanLease, "theirs");
    ASSERT_TRUE(lease.ok()) << lease.status();
    lease_.emplace(*std::move(lease));
  }
  // Starts a job that waits for the other server.
  std::shared_ptr<CompileJob> StartParked(const std::shared_ptr<ModelVersion>& version) {
    std::shared_ptr<CompileJob> job = core_->workers().Start(version).value();
    AwaitState(*job, [](const Job& state) { return !state.waits_for().empty(); });
    return job;
  }
  void AwaitState(CompileJob& job, const std::function<bool(const Job&)>& reached) {
    Mutex mu;
    CondVar cv;
    const uint64_t watch = job.Watch([&] {
      MutexLock lock(mu);
      cv.NotifyAll();
    });
    // Calls `reached` without the lock, which the job's watcher takes while holding the job's own.
    // A change between the check and the wait is seen a little later.
    while (!reached(job.state())) {
      MutexLock lock(mu);
      cv.WaitFor(lock, std::chrono::milliseconds(20));
    }
    job.Unwatch(watch);
  }
  void AwaitEnd(CompileJob& job) {
    AwaitState(job, [](const Job& state) { return IsFinal(state.phase()); });
  }

  std::string path_;
  std::unique_ptr<Cache> theirs_;
  std::optional<Lease> lease_;
};

TEST_F(SharedCacheTest, WaitsAndGoesOnOnceTheOtherHasGivenUp) {
  auto version = Store("m", ScaleModel({3}));
  TheyBegin(*version);
  auto job = StartParked(version);
  EXPECT_EQ(job->state().phase(), Job::QUEUED);
  EXPECT_THAT(job->state().waits_for(), HasSubstr("an equal graph"));
  lease_->Release();  // the other server failed: the plan is made here
  AwaitEnd(*job);
  EXPECT_EQ(job->state().phase(), Job::DONE);
  EXPECT_EQ(job->state().waits_for(), "");
  EXPECT_EQ(Run(*version, 2).value(), 6);
}

TEST_F(SharedCacheTest, WhatWasMadeForOneIsFoundForTheOther) {
  auto first = Store("m", ScaleModel({3}));
  auto made = core_->workers().Start(first).value();
  AwaitEnd(*made);
  const std::string plan_id = first->plan()->id();
  auto second = Store("n", ScaleModel({3}));
  const size_t events = control_->events().size();
  auto job = core_->workers().Start(second).value();
  AwaitEnd(*job);
  EXPECT_EQ(second->plan()->id(), plan_id);
  for (size_t i = events; i < control_->events().size(); ++i) {
    EXPECT_THAT(control_->events()[i], ::testing::Not(HasSubstr("compile")));
  }
  EXPECT_THAT(core_->cache().leases().Holders(), ::testing::IsEmpty());
}

TEST_F(SharedCacheTest, TheWorkerIsFreeMeanwhile) {
  auto version = Store("m", ScaleModel({3}));
  TheyBegin(*version);
  auto job = StartParked(version);
  auto other = Store("other", ReluModel());
  auto others = core_->workers().Start(other).value();
  AwaitEnd(*others);
  EXPECT_EQ(others->state().phase(), Job::DONE);
  EXPECT_FALSE(job->finished());
  // A second job of the same version waits for the first.
  auto again = core_->workers().Start(version).value();
  lease_->Release();
  AwaitEnd(*job);
  AwaitEnd(*again);
  EXPECT_EQ(again->state().phase(), Job::DONE);
}

TEST_F(SharedCacheTest, TwoVersionsOfOneGraphAreMadeOnce) {
  options_.compile_workers = 2;
  core_.reset();
  core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
  control_->HoldCompiles();
  auto one = Store("one", ScaleModel({3})), two = Store("two", ScaleModel({3}));
  auto first = core_->workers().Start(one).value();
  auto second = core_->workers().Start(two).value();
  AwaitState(*first, [&](const Job& state) {
    return !state.waits_for().empty() || !second->state().waits_for().empty();
  });
  control_->ReleaseCompiles();
  AwaitEnd(*first);
  AwaitEnd(*second);
  EXPECT_EQ(one->plan()->id(), two->plan()->id());
  EXPECT_EQ(Run(*one, 2).value(), 6);
  EXPECT_EQ(Run(*two, 2).value(), 6);
}

TEST_F(SharedCacheTest, AParkedJobIsCancelled) {
  auto version = Store("m", ScaleModel({3}));
  TheyBegin(*version);
  auto job = StartParked(version);
  core_->workers().Cancel(job, Job::STOP_CANCELLED);
  AwaitEnd(*job);  // its worker may have been about to park it
  EXPECT_EQ(job->state().phase(), Job::CANCELLED);
  EXPECT_EQ(Await(*version).code(), absl::StatusCode::kFailedPrecondition);
  // The version can have another job.
  lease_->Release();
  auto again = core_->workers().Start(version).value();
  AwaitEnd(*again);
  EXPECT_EQ(again->state().phase(), Job::DONE);
}

TEST_F(SharedCacheTest, ADeletedVersionIsNotWaitedFor) {
  auto version = Store("m", ScaleModel({3}));
  TheyBegin(*version);
  auto job = StartParked(version);
  core_->workers().CancelFor(*version);
  AwaitEnd(*job);
  EXPECT_EQ(job->state().stop_reason(), Job::STOP_MODEL_DELETED);
}

TEST_F(SharedCacheTest, StopsWhileAJobIsParked) {
  auto version = Store("m", ScaleModel({3}));
  TheyBegin(*version);
  auto job = StartParked(version);
  core_->workers().Stop();
  EXPECT_EQ(job->state().stop_reason(), Job::STOP_SHUTDOWN);
  EXPECT_EQ(Await(*version).code(), absl::StatusCode::kUnavailable);
}

TEST_F(SharedCacheTest, AFailureLetsTheNextTry) {
  auto version = Store("m", ScaleModel({3}));
  TheyBegin(*version);
  auto job = StartParked(version);
  control_->FailCompiles(absl::InternalError("no"));
  lease_->Release();
  AwaitEnd(*job);
  EXPECT_EQ(job->state().phase(), Job::FAILED);
  EXPECT_THAT(core_->cache().leases().Holders(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace athanor
