#include "server/jobs/job_queue.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/idle_backend_testing.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class JobQueueTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    a_ = Store("a", ScaleModel({1}));
    b_ = Store("b", ScaleModel({2}));
  }
  std::shared_ptr<CompileJob> Job(const std::shared_ptr<ModelVersion>& version) {
    return std::make_shared<CompileJob>(absl::StrCat("job-", ++jobs_), version);
  }
  std::shared_ptr<CompileJob> Add(const std::shared_ptr<ModelVersion>& version) {
    return queue_.Add([&] { return Job(version); }).value();
  }
  // Builds the next job on a worker, and lets its version's next one begin.
  std::shared_ptr<CompileJob> BuildOne(int worker = 0) {
    const JobQueue::Build build = queue_.NextBuild(worker, &backends_[worker]);
    if (build.job == nullptr) return nullptr;
    queue_.Built(worker);
    build.job->Finish(absl::OkStatus(), v1::CompileJob::STOP_BASELINE_ONLY);
    queue_.Release(build.job);
    return build.job;
  }

  std::shared_ptr<ModelVersion> a_, b_;
  int jobs_ = 0;
  IdleBackend backends_[2];
  JobQueue queue_{2, 4};
};

TEST_F(JobQueueTest, JobsAreBuiltInTheOrderOfArrivalAndOldVersionsLast) {
  const auto stored = Job(a_), old = Job(b_);
  queue_.AddAll({stored}, {old});
  const auto later = Add(a_);
  const auto first = Job(b_);
  ASSERT_TRUE(queue_.AddFirst(first));
  EXPECT_EQ(BuildOne(), first);
  EXPECT_EQ(BuildOne(), stored);
  EXPECT_EQ(BuildOne(), later);
  EXPECT_EQ(BuildOne(), old);
}

TEST_F(JobQueueTest, AVersionHasOneJobAtATime) {
  const auto first = Add(a_), second = Add(a_), other = Add(b_);
  const JobQueue::Build build = queue_.NextBuild(0, &backends_[0]);
  EXPECT_EQ(build.job, first);
  EXPECT_EQ(BuildOne(1), other);
  queue_.Built(0);
  first->Finish(absl::OkStatus(), v1::CompileJob::STOP_BASELINE_ONLY);
  queue_.Release(first);
  EXPECT_EQ(BuildOne(1), second);
}

TEST_F(JobQueueTest, WhatIsLeftComesBackWithItsJob) {
  const auto job = Add(a_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).rest.index(), 0u);
  ChosenPlan incomplete;
  incomplete.plan = std::make_shared<const CompiledPlan>();
  const CompiledPlan* plan = incomplete.plan.get();
  const auto other = Add(b_);
  ASSERT_TRUE(queue_.AddRest(job, std::move(incomplete)));
  queue_.Built(0);
  EXPECT_EQ(BuildOne(), other);  // its callers have no plan yet
  const JobQueue::Build again = queue_.NextBuild(0, &backends_[0]);
  EXPECT_EQ(again.job, job);
  ASSERT_TRUE(std::holds_alternative<ChosenPlan>(again.rest));
  EXPECT_EQ(std::get<ChosenPlan>(again.rest).plan.get(), plan);
}

TEST_F(JobQueueTest, SmallModelsGoFirstButLargeOnesDoNotStarve) {
  const auto large = Add(a_);  // three nodes
  std::vector<std::shared_ptr<CompileJob>> built;
  for (int i = 0; i < 12; ++i) {
    Add(Store(absl::StrCat("small", i), ReluModel()));  // two
    built.push_back(BuildOne());
  }
  EXPECT_EQ(std::find(built.begin(), built.end(), large) - built.begin(), 8);
}

TEST_F(JobQueueTest, BoxesComeAfterFirstPlansAndLeaveAWorker) {
  const auto a = Add(a_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, a);
  ASSERT_TRUE(queue_.AddRest(a, BoxesLeft{}));
  queue_.Built(0);
  const auto b = Add(b_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, b);
  ASSERT_TRUE(queue_.AddRest(b, BoxesLeft{}));
  queue_.Built(0);
  const JobQueue::Build boxes = queue_.NextBuild(0, &backends_[0]);
  EXPECT_EQ(boxes.job, a);
  EXPECT_TRUE(std::holds_alternative<BoxesLeft>(boxes.rest));
  // The other worker would build a first plan now, and no further boxes.
  const auto c = Add(Store("c", ScaleModel({3})));
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).job, c);
  EXPECT_FALSE(queue_.GivesWay(0));
  const auto d = Add(Store("d", ScaleModel({4})));
  EXPECT_TRUE(queue_.GivesWay(0));
  queue_.Built(1);
  EXPECT_FALSE(queue_.GivesWay(0)) << "the free worker takes it";
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).job, d);
  queue_.Built(0);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, b);
}

internal::LowerReply TwoKernels() {
  internal::LowerReply lowered;
  for (const char* name : {"k0", "k1"}) {
    v1::Kernel* kernel = lowered.mutable_plan()->add_kernels();
    kernel->set_name(name);
    kernel->set_source_hash(name);
  }
  return lowered;
}

TEST_F(JobQueueTest, AnIdleWorkerHelpsUntilAFirstPlanIsWanted) {
  const auto work = std::make_shared<KernelWork>(TwoKernels(), NoCalls());
  const auto job = Add(a_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, job);
  queue_.Share(0, work);
  JobQueue::Build help = queue_.NextBuild(1, &backends_[1]);
  EXPECT_EQ(help.job, job);
  EXPECT_EQ(help.help, work);
  // Cancelling the job interrupts both.
  job->RequestStop(v1::CompileJob::STOP_CANCELLED);
  EXPECT_EQ(queue_.Cancel(job), JobQueue::Place::kElsewhere);
  EXPECT_EQ(backends_[0].interrupts, 1);
  EXPECT_EQ(backends_[1].interrupts, 1);
  queue_.Built(1);
  const auto first = Add(b_);
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).job, first);
  queue_.Built(1);
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).help, work);
  queue_.Built(1);
  // Nobody helps with what is done.
  queue_.Share(0, nullptr);
  queue_.Built(0);
  queue_.Release(job);
  const auto last = Add(Store("c", ScaleModel({3})));
  const JobQueue::Build next = queue_.NextBuild(1, &backends_[1]);
  EXPECT_EQ(next.job, last);
  EXPECT_EQ(next.help, nullptr);
}

TEST_F(JobQueueTest, FirstPlansAreHelpedBeforeOtherWorkIsBegun) {
  const auto a = Add(a_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, a);
  ASSERT_TRUE(queue_.AddRest(a, BoxesLeft{}));
  queue_.Built(0);
  const auto b = Add(b_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, b);
  const auto work = std::make_shared<KernelWork>(TwoKernels(), NoCalls());
  queue_.Share(0, work);
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).help, work);
  queue_.Built(1);
  queue_.Share(0, nullptr);
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).job, a);
}

TEST_F(JobQueueTest, BoxesGiveWayToHelp) {
  const auto a = Add(a_), b = Add(b_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, a);
  ASSERT_TRUE(queue_.AddRest(a, BoxesLeft{}));
  queue_.Built(0);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, b);
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).job, a);
  EXPECT_FALSE(queue_.GivesWay(1)) << "b is being lowered";
  const auto work = std::make_shared<KernelWork>(TwoKernels(), NoCalls());
  queue_.Share(0, work);
  EXPECT_TRUE(queue_.GivesWay(1));
  ASSERT_TRUE(queue_.AddRest(a, BoxesLeft{}));
  queue_.Built(1);
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).help, work);
}

TEST_F(JobQueueTest, PlansWithTapsGoBeforeHelp) {
  const auto a = Add(a_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, a);
  queue_.Share(0, std::make_shared<KernelWork>(TwoKernels(), NoCalls()));
  const auto tapped =
      queue_
          .Add([&] {
            return std::make_shared<CompileJob>(
                "tapped", b_, std::make_shared<TapPlan>(b_->graph(), std::vector<NodeId>{0}));
          })
          .value();
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).job, tapped);
}

// No step of a search begins on a worker that could help.
TEST_F(JobQueueTest, SearchesWaitWhileTheirWorkerCouldHelp) {
  const auto a = Add(a_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, a);
  const auto work = std::make_shared<KernelWork>(TwoKernels(), NoCalls());
  queue_.Share(0, work);
  ASSERT_TRUE(queue_.AddSearch(1, Job(b_), nullptr));
  std::atomic<bool> searches = false;
  std::thread searcher([&] { searches = queue_.AwaitSearch(1); });
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).help, work);
  queue_.Built(1);
  EXPECT_FALSE(searches);
  queue_.Share(0, nullptr);
  searcher.join();
  EXPECT_TRUE(searches);
}

// The version's own jobs do not wait behind the boxes of other models.
TEST_F(JobQueueTest, BoxesAreAsUrgentAsTheJobThatWaitsForThem) {
  const auto a = Add(a_), b = Add(b_);
  for (const auto& job : {a, b}) {
    EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, job);
    ASSERT_TRUE(queue_.AddRest(job, BoxesLeft{}));
    queue_.Built(0);
  }
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, a) << "its boxes take the only place";
  const auto again = Add(b_);
  const JobQueue::Build boxes = queue_.NextBuild(1, &backends_[1]);
  EXPECT_EQ(boxes.job, b);
  EXPECT_TRUE(std::holds_alternative<BoxesLeft>(boxes.rest));
  // They do not give way to help with themselves.
  queue_.Share(1, std::make_shared<KernelWork>(TwoKernels(), NoCalls()));
  EXPECT_FALSE(queue_.GivesWay(1));
  EXPECT_TRUE(queue_.GivesWay(0)) << "the other boxes are less urgent";
  queue_.Share(1, nullptr);
  queue_.Built(1);
  queue_.Release(b);
  EXPECT_EQ(queue_.NextBuild(1, &backends_[1]).job, again);
}

TEST_F(JobQueueTest, WhatIsLeftKeepsNobodyOut) {
  for (int i = 0; i < 4; ++i) {
    const auto job = Add(Store(absl::StrCat("m", i), ReluModel()));
    EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, job);
    ASSERT_TRUE(queue_.AddRest(job, BoxesLeft{}));
    queue_.Built(0);
  }
  for (int i = 0; i < 4; ++i) Add(Store(absl::StrCat("n", i), ReluModel()));
  EXPECT_EQ(queue_.Add([&] { return Job(a_); }).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(JobQueueTest, ACancelledJobIsRemovedWhereItWaitsAndInterruptedWhereItIsBuilt) {
  const auto building = Add(a_), waiting = Add(b_), built = Job(b_);
  EXPECT_EQ(queue_.NextBuild(0, &backends_[0]).job, building);
  ASSERT_TRUE(queue_.AddSearch(1, built, nullptr));
  EXPECT_EQ(queue_.Cancel(building), JobQueue::Place::kElsewhere);
  EXPECT_EQ(backends_[0].interrupts, 1);
  EXPECT_EQ(queue_.Cancel(waiting), JobQueue::Place::kToBuild);
  EXPECT_EQ(queue_.Cancel(waiting), JobQueue::Place::kElsewhere);
  EXPECT_EQ(queue_.Cancel(built), JobQueue::Place::kToSearch);
  EXPECT_EQ(queue_.Cancel(built), JobQueue::Place::kElsewhere);
  EXPECT_EQ(backends_[0].interrupts + backends_[1].interrupts, 1);
}

TEST_F(JobQueueTest, AJobThatIsToStopIsNotQueuedAgain) {
  const auto job = Job(a_);
  job->RequestStop(v1::CompileJob::STOP_CANCELLED);
  EXPECT_FALSE(queue_.AddFirst(job));
  EXPECT_FALSE(queue_.AddRest(job, {}));
  EXPECT_FALSE(queue_.AddSearch(0, job, nullptr));
  EXPECT_EQ(queue_.Cancel(job), JobQueue::Place::kElsewhere);
}

TEST_F(JobQueueTest, ASearchGoesToTheWorkerWithTheFewest) {
  ASSERT_TRUE(queue_.AddSearch(1, Job(a_), nullptr));
  EXPECT_TRUE(queue_.AwaitSearch(1));
  ASSERT_TRUE(queue_.AddSearch(1, Job(b_), nullptr));
  EXPECT_TRUE(queue_.AwaitSearch(0));
}

TEST_F(JobQueueTest, TooManyJobsAreRefusedAndAllOnceItStops) {
  for (int i = 0; i < 4; ++i) Add(a_);
  const absl::Status full = queue_.Add([&] { return Job(a_); }).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("4 compile jobs wait already"));
  EXPECT_EQ(jobs_, 4);
  EXPECT_FALSE(queue_.stopped());
  EXPECT_TRUE(queue_.Stop());
  EXPECT_FALSE(queue_.Stop());
  EXPECT_EQ(queue_.Add([&] { return Job(a_); }).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(queue_.AddFirst(Job(a_)));
  EXPECT_EQ(BuildOne(), nullptr);
  EXPECT_FALSE(queue_.AwaitSearch(0));
}

}  // namespace
}  // namespace athanor
