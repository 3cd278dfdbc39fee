#include "server/jobs/job_list.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobListTest : public CoreTest {
 protected:
  std::shared_ptr<CompileJob> New(JobList& jobs, const std::shared_ptr<ModelVersion>& version) {
    return jobs.New(version, nullptr, {}, std::nullopt);
  }
  void Finish(CompileJob& job) { job.Finish(absl::OkStatus(), v1::CompileJob::STOP_BASELINE_ONLY); }
};

TEST_F(JobListTest, JobsAreListedTheNewestFirst) {
  JobList jobs(10);
  const auto version = Store("m", ScaleModel({1})), other = Store("n", ScaleModel({2}));
  const auto first = New(jobs, version), second = New(jobs, other), third = New(jobs, version);
  EXPECT_THAT(jobs.List(""), ElementsAre(third, second, first));
  EXPECT_THAT(jobs.List("m"), ElementsAre(third, first));
  EXPECT_EQ(jobs.Find(second->id()).value(), second);
  EXPECT_EQ(other->serving().view().job_id, second->id());
  EXPECT_EQ(version->serving().view().job_id, third->id());
}

TEST_F(JobListTest, JobsOfAnotherProcessAreNotFound) {
  JobList jobs(10), others(10);
  const auto version = Store("m", ScaleModel({1}));
  const auto ours = New(jobs, version), theirs = New(others, version);
  if (ours->id() == theirs->id()) GTEST_SKIP() << "both drew the same prefix";
  for (const std::string& id : {theirs->id(), ours->id() + "0", std::string("job-")}) {
    const absl::Status status = jobs.Find(id).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(id));
  }
}

TEST_F(JobListTest, FinishedJobsAreForgottenAboveTheLimit) {
  JobList jobs(2);
  const auto version = Store("m", ScaleModel({1}));
  std::vector<std::shared_ptr<CompileJob>> made;
  for (int i = 0; i < 5; ++i) made.push_back(New(jobs, version));
  jobs.Forget();
  EXPECT_EQ(jobs.List("").size(), 5u);  // none has finished
  for (int i : {1, 2, 4}) Finish(*made[i]);
  jobs.Forget();
  EXPECT_THAT(jobs.List(""), ElementsAre(made[3], made[0]));
  EXPECT_EQ(jobs.Find(made[1]->id()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobListTest, TheLatestOfDeletedModelsAreKept) {
  JobList jobs(1000);
  std::vector<std::shared_ptr<CompileJob>> made;
  for (int i = 0; i < 52; ++i) {
    made.push_back(New(jobs, Store("m", ScaleModel({1}))));
    Finish(*made.back());
    made.back()->LetGoOfVersion();
    ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  }
  jobs.Forget();
  EXPECT_EQ(jobs.List("").size(), 50u);
  EXPECT_FALSE(jobs.Find(made[1]->id()).ok());
  EXPECT_TRUE(jobs.Find(made[2]->id()).ok());
}

}  // namespace
}  // namespace athanor
