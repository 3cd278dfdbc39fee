// A server's compile jobs whose searches go step by step, as the fixture of tests.
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

  // Its search has begun and its first step waits.
  std::shared_ptr<CompileJob> StartSearching(const std::shared_ptr<ModelVersion>& version) {
    control_->HoldSearches();
    std::shared_ptr<CompileJob> job = Start(version);
    control_->AwaitSearch();
    EXPECT_EQ(job->state().phase(), Job::SEARCHING);
    return job;
  }

  // `steps` more of one worker's searches are done, the swaps they brought too.
  void Steps(int steps) {
    control_->LetSearch(steps);
    control_->AwaitSearch();
  }

  Job AwaitEnd(CompileJob& job) { return AwaitPhase(job, Job::DONE); }

  // Until it is in `phase`, or has ended.
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

  // Newest first.
  static std::vector<std::string> PlanIds(const v1::Model& model) {
    std::vector<std::string> ids;
    for (const v1::PlanInfo& plan : model.plans()) ids.push_back(plan.plan_id());
    return ids;
  }
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TESTING_SEARCH_TESTING_H_
