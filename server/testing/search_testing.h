// Test fixture: a server's compile jobs, with searches that go step by step.
#ifndef ATHANOR_SERVER_TESTING_SEARCH_TESTING_H_
#define ATHANOR_SERVER_TESTING_SEARCH_TESTING_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/search_policy.h"
#include "server/testing/core_testing.h"

namespace athanor {

class SearchTest : public CoreTest {
 protected:
  using Job = v1::CompileJob;

  static SearchPolicy WithBudget(const char* budget,
                                 v1::SearchOptions::Use use = v1::SearchOptions::SERVE) {
    SearchPolicy policy;
    policy.budget = ParseSearchBudget(budget).value();
    policy.use = use;
    return policy;
  }

  void SetUp() override {
    options_.search_budget = "1h";
    Begin(1);
  }

  void TearDown() override { control_->ReleaseSearches(); }

  void Begin(int workers) {
    core_.reset();
    options_.state_dir = FreshDirectory();
    options_.compile_workers = workers;
    options_.contexts = 2;
    core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
  }

  std::shared_ptr<CompileJob> Start(const std::shared_ptr<ModelVersion>& version) {
    auto job = core_->workers().Start(version);
    EXPECT_TRUE(job.ok()) << job.status();
    return *job;
  }

  // Stores y = w * x under `name`.
  std::shared_ptr<ModelVersion> StoreScale(const std::string& name, float w) {
    return Store(name, ScaleModel({w}));
  }

  // Starts a job; returns once its search has begun and its first step waits.
  std::shared_ptr<CompileJob> StartSearching(const std::shared_ptr<ModelVersion>& version) {
    control_->HoldSearches();
    std::shared_ptr<CompileJob> job = Start(version);
    control_->AwaitSearch();
    EXPECT_EQ(job->state().phase(), Job::SEARCHING);
    return job;
  }

  // Lets one worker's searches do `steps` more steps, and waits until these and the resulting plan
  // swaps are done.
  void Steps(int steps) {
    control_->LetSearch(steps);
    control_->AwaitSearch();
  }

  Job AwaitEnd(CompileJob& job) { return AwaitPhase(job, Job::DONE); }

  // Waits until the job is in `phase` or has ended.
  Job AwaitPhase(CompileJob& job, Job::Phase phase) {
    Mutex mu;
    CondVar cv;
    bool changed = true;
    const uint64_t watch = job.Watch([&] {
      MutexLock lock(mu);
      changed = true;
      cv.NotifyAll();
    });
    while (!job.finished() && job.state().phase() != phase) {
      MutexLock lock(mu);
      while (!std::exchange(changed, false)) cv.Wait(lock);
    }
    job.Unwatch(watch);
    return job.state();
  }

  std::string ServedBy(const ModelVersion& version) {
    const std::shared_ptr<const ServedPlan> plan = version.plan();
    return plan == nullptr ? "" : plan->id();
  }

  // Returns the plans' ids, the newest first.
  static std::vector<std::string> PlanIds(const v1::Model& model) {
    std::vector<std::string> ids;
    for (const v1::PlanInfo& plan : model.plans()) ids.push_back(plan.plan_id());
    return ids;
  }
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TESTING_SEARCH_TESTING_H_
