// Tests the calls of CompileService, through gRPC.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Job = v1::CompileJob;

// Returns all states that a watcher is sent.
std::vector<Job> Watch(TestServer& test, const std::string& id, grpc::Status* status = nullptr) {
  grpc::ClientContext context;
  v1::WatchCompileJobRequest request;
  request.set_id(id);
  auto reader = test.compile->WatchCompileJob(&context, request);
  std::vector<Job> seen;
  for (Job job; reader->Read(&job);) seen.push_back(job);
  const grpc::Status end = reader->Finish();
  if (status != nullptr) *status = end;
  return seen;
}

Job Get(TestServer& test, const std::string& id) {
  grpc::ClientContext context;
  v1::GetCompileJobRequest request;
  request.set_id(id);
  Job job;
  EXPECT_TRUE(test.compile->GetCompileJob(&context, request, &job).ok());
  return job;
}

grpc::Status Cancel(TestServer& test, const std::string& id, Job* job) {
  grpc::ClientContext context;
  v1::CancelCompileJobRequest request;
  request.set_id(id);
  return test.compile->CancelCompileJob(&context, request, job);
}

std::string Send(TestServer& test, const std::string& name, const TestModel& model) {
  v1::UploadModelResponse reply;
  EXPECT_TRUE(test.Send(UploadMessages(name, model), &reply).ok());
  return reply.compile_job_id();
}

TEST(CompileServiceTest, WatchEndsWithTheFinalPhase) {
  TestServer test;
  const std::string id = Send(test, "m", ScaleModel({1}));
  const std::vector<Job> seen = Watch(test, id);
  ASSERT_FALSE(seen.empty());
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_GE(seen[i].percent(), seen[i - 1].percent());
  const Job& last = seen.back();
  EXPECT_EQ(last.phase(), Job::DONE);
  EXPECT_EQ(last.stop_reason(), Job::STOP_BASELINE_ONLY);
  EXPECT_EQ(last.percent(), 100);
  EXPECT_EQ(last.kernels_done(), last.kernels_total());
  EXPECT_EQ(last.model(), "m");
  EXPECT_TRUE(last.has_finished());
  EXPECT_THAT(last.message(), HasSubstr("the baseline serves"));
  // A finished job is sent once.
  EXPECT_EQ(Watch(test, id).size(), 1u);
}

TEST(CompileServiceTest, WatchRepeatsAnUnchangedJob) {
  ServerOptions options;
  options.heartbeat_ms = 10;
  TestServer test(options);
  test.control->HoldCompiles();
  const std::string id = Send(test, "m", ScaleModel({1}));
  grpc::ClientContext context;
  v1::WatchCompileJobRequest request;
  request.set_id(id);
  auto reader = test.compile->WatchCompileJob(&context, request);
  Job job;
  while (job.kernels_total() == 0) ASSERT_TRUE(reader->Read(&job));
  const std::string held = job.SerializeAsString();
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(reader->Read(&job));
    EXPECT_EQ(job.SerializeAsString(), held);
  }
  EXPECT_EQ(job.phase(), Job::COMPILING_KERNELS);
  test.control->ReleaseCompiles();
  while (reader->Read(&job)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(job.phase(), Job::DONE);
}

TEST(CompileServiceTest, AWatcherThatGoesAwayIsForgotten) {
  TestServer test;
  test.control->HoldCompiles();
  const std::string id = Send(test, "m", ScaleModel({1}));
  {
    grpc::ClientContext context;
    v1::WatchCompileJobRequest request;
    request.set_id(id);
    auto reader = test.compile->WatchCompileJob(&context, request);
    Job job;
    ASSERT_TRUE(reader->Read(&job));
    context.TryCancel();
    while (reader->Read(&job)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  test.control->ReleaseCompiles();
  EXPECT_EQ(test.WaitForJob(id).phase(), Job::DONE);
}

// A call that is cancelled while it is being refused must end once: ending it twice crashed the
// server.
TEST(CompileServiceTest, AWatcherThatIsRefusedMayGoAwayMeanwhile) {
  TestServer test;
  v1::WatchCompileJobRequest request;
  request.set_id("job-none");
  for (int i = 0; i < 1000; ++i) {
    grpc::ClientContext context;
    std::thread cancel([&] { context.TryCancel(); });
    auto reader = test.compile->WatchCompileJob(&context, request);
    Job job;
    EXPECT_FALSE(reader->Read(&job));
    cancel.join();
    EXPECT_FALSE(reader->Finish().ok());
  }
  EXPECT_TRUE(Watch(test, Send(test, "m", ScaleModel({1}))).back().has_finished());
}

TEST(CompileServiceTest, UnknownJobs) {
  TestServer test;
  grpc::Status status;
  EXPECT_TRUE(Watch(test, "job-none", &status).empty());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("\"job-none\""));
  Job job;
  EXPECT_EQ(Cancel(test, "job-none", &job).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(CompileServiceTest, StartCompilesAStoredVersionAgain) {
  TestServer test;
  test.Upload("m", ScaleModel({2}));
  grpc::ClientContext context;
  v1::StartCompileRequest request;
  request.set_model("m");
  Job job;
  ASSERT_TRUE(test.compile->StartCompile(&context, request, &job).ok());
  EXPECT_EQ(test.WaitForJob(job.id()).phase(), Job::DONE);
  EXPECT_EQ(test.Get("m").compile_job_id(), job.id());
  EXPECT_THAT(test.Infer("m", {3}), testing::ElementsAre(6));

  auto refused = [&](const v1::StartCompileRequest& wrong) {
    grpc::ClientContext other;
    return test.compile->StartCompile(&other, wrong, &job);
  };
  for (const char* budget : {"soon", "0s", "-1c", "99999999999999999999h", "fast:exhaust"}) {
    request.set_search_budget(budget);
    const grpc::Status status = refused(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("search_budget: \"" + std::string(budget)));
  }
  request.clear_search_budget();
  request.add_disable_rules("algebra,layout");
  EXPECT_THAT(refused(request).error_message(), HasSubstr("disable_rules: \"algebra,layout\""));
  request.clear_disable_rules();
  request.add_disable_rules("algebro");
  EXPECT_THAT(refused(request).error_message(),
              HasSubstr("disable_rules: \"algebro\" is neither a rule nor a family; there are: "
                        "double_not, algebra"));
  request.clear_disable_rules();
  request.set_use(static_cast<v1::SearchOptions::Use>(9));
  EXPECT_THAT(refused(request).error_message(), HasSubstr("use: 9; it must be 1 (SERVE)"));
  request.clear_use();
  request.add_buckets()->set_dim("b");
  EXPECT_THAT(refused(request).error_message(), HasSubstr("buckets: dim \"b\""));
  request.set_model("absent");
  EXPECT_EQ(refused(request).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(CompileServiceTest, ListIsNewestFirstAndFilters) {
  TestServer test;
  test.Upload("a", ScaleModel({1}));
  test.control->HoldCompiles();
  const std::string b = Send(test, "b", ScaleModel({2}));
  auto list = [&](const std::string& model, bool unfinished) {
    grpc::ClientContext context;
    v1::ListCompileJobsRequest request;
    request.set_model(model);
    request.set_only_unfinished(unfinished);
    v1::ListCompileJobsResponse reply;
    EXPECT_TRUE(test.compile->ListCompileJobs(&context, request, &reply).ok());
    return reply;
  };
  EXPECT_EQ(list("", false).jobs_size(), 2);
  EXPECT_EQ(list("", false).jobs(0).id(), b);
  EXPECT_EQ(list("", true).jobs_size(), 1);
  EXPECT_EQ(list("a", false).jobs(0).model(), "a");
  EXPECT_EQ(list("c", false).jobs_size(), 0);
}

TEST(CompileServiceTest, CancelStopsARunningJob) {
  TestServer test;
  test.control->HoldCompiles();
  const std::string id = Send(test, "m", ScaleModel({1}));
  while (Get(test, id).phase() != Job::COMPILING_KERNELS) std::this_thread::yield();
  Job job;
  ASSERT_TRUE(Cancel(test, id, &job).ok());
  EXPECT_EQ(job.phase(), Job::CANCELLED);
  EXPECT_EQ(job.stop_reason(), Job::STOP_CANCELLED);
  const grpc::Status status = test.Infer(FloatRequest("m", {1}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr(id + " was cancelled"));
  // It can still be compiled later.
  test.control->ReleaseCompiles();
  grpc::ClientContext context;
  v1::StartCompileRequest request;
  request.set_model("m");
  ASSERT_TRUE(test.compile->StartCompile(&context, request, &job).ok());
  EXPECT_THAT(test.Infer("m", {3}), testing::ElementsAre(3));
}

TEST(CompileServiceTest, CancelTakesAJobOutOfTheQueue) {
  TestServer test({.compile_workers = 1});
  test.control->HoldCompiles();
  Send(test, "first", ScaleModel({1}));
  const std::string id = Send(test, "second", ScaleModel({2}));
  Job job;
  ASSERT_TRUE(Cancel(test, id, &job).ok());
  EXPECT_EQ(job.phase(), Job::CANCELLED);
  EXPECT_FALSE(job.has_started());
  // Cancelling again returns the job unchanged.
  ASSERT_TRUE(Cancel(test, id, &job).ok());
  EXPECT_EQ(job.phase(), Job::CANCELLED);
}

TEST(CompileServiceTest, CancelKeepsWhatServes) {
  TestServer test;
  test.Upload("m", ScaleModel({1}));
  test.control->HoldCompiles();
  const std::string id = Send(test, "m", ScaleModel({2}));
  Job job;
  ASSERT_TRUE(Cancel(test, id, &job).ok());
  EXPECT_THAT(test.Infer("m", {5}), testing::ElementsAre(5));
  EXPECT_EQ(test.Get("m", "2").state(), v1::Model::FAILED);
}

TEST(CompileServiceTest, DeletingAModelStopsItsJob) {
  TestServer test;
  test.control->HoldCompiles();
  const std::string id = Send(test, "m", ScaleModel({1}));
  while (Get(test, id).phase() != Job::COMPILING_KERNELS) std::this_thread::yield();
  grpc::ClientContext context;
  v1::DeleteModelRequest request;
  request.set_name("m");
  v1::DeleteModelResponse reply;
  ASSERT_TRUE(test.models->DeleteModel(&context, request, &reply).ok());
  EXPECT_EQ(test.WaitForJob(id).stop_reason(), Job::STOP_MODEL_DELETED);
}

TEST(CompileServiceTest, AFailureNamesItsCauseAndKeepsItsCode) {
  TestServer test;
  test.control->FailCompiles(absl::UnimplementedError("node \"y\" (Sort): not on this device"));
  const Job job = test.WaitForJob(Send(test, "m", ScaleModel({1})));
  EXPECT_EQ(job.phase(), Job::FAILED);
  EXPECT_EQ(job.stop_reason(), Job::STOP_ERROR);
  EXPECT_EQ(job.error_code(), static_cast<int>(grpc::StatusCode::UNIMPLEMENTED));
  EXPECT_THAT(job.error(), HasSubstr("node \"y\" (Sort)"));
  EXPECT_EQ(test.Get("m").state(), v1::Model::FAILED);
  EXPECT_THAT(test.Get("m").error(), HasSubstr("node \"y\" (Sort)"));
  // A job's failure does not affect other jobs.
  test.control->FailCompiles(absl::OkStatus());
  test.Upload("n", ScaleModel({4}));
  EXPECT_THAT(test.Infer("n", {1}), testing::ElementsAre(4));
}

TEST(CompileServiceTest, AWrongKernelCostsSpeedNotTheModel) {
  TestServer test;
  test.control->FailCompiles(absl::DataLossError("kernel Mul: output \"y\" is 3, 2 is right"));
  const Job job = test.WaitForJob(Send(test, "m", ScaleModel({4})));
  EXPECT_EQ(job.phase(), Job::DONE);
  EXPECT_THAT(test.Infer("m", {1}), testing::ElementsAre(4));
  const std::vector<std::string> events = test.control->events();
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const std::string& e) { return e.starts_with("lower plain "); }),
            1);
}

TEST(CompileServiceTest, ALostTunerIsNoReasonForAPlainPlan) {
  TestServer test;
  test.control->FailCompiles(absl::UnavailableError("the tuner was ended by SIGKILL"));
  const Job job = test.WaitForJob(Send(test, "m", ScaleModel({4})));
  EXPECT_EQ(job.phase(), Job::FAILED);
  EXPECT_EQ(job.error_code(), static_cast<int>(grpc::StatusCode::UNAVAILABLE));
  EXPECT_THAT(test.control->events(),
              testing::Each(testing::Not(testing::StartsWith("lower plain"))));
}

TEST(CompileServiceTest, WhatNoPlanCanBeMadeOfIsUnimplemented) {
  TestServer test;
  test.control->FailCompiles(absl::InternalError("%3 (Mul): kernel Mul: ended by SIGSEGV"));
  const Job job = test.WaitForJob(Send(test, "m", ScaleModel({4})));
  EXPECT_EQ(job.phase(), Job::FAILED);
  EXPECT_EQ(job.error_code(), static_cast<int>(grpc::StatusCode::UNIMPLEMENTED));
  EXPECT_THAT(job.error(), HasSubstr("%3 (Mul)"));
}

TEST(CompileServiceTest, TooManyJobsAreRefused) {
  TestServer test({.compile_workers = 1, .max_compile_jobs = 1});
  test.control->HoldCompiles();
  const std::string running = Send(test, "a", ScaleModel({1}));
  while (Get(test, running).phase() != Job::COMPILING_KERNELS) std::this_thread::yield();
  Send(test, "b", ScaleModel({2}));
  grpc::ClientContext context;
  v1::StartCompileRequest request;
  request.set_model("a");
  Job job;
  const grpc::Status status = test.compile->StartCompile(&context, request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--max_compile_jobs"));
}

TEST(CompileServiceTest, AJobSaysWhatItSearchesWith) {
  TestServer test;
  test.control->Search({.plans = 1});
  std::vector<v1::UploadModelRequest> messages = UploadMessages("m", ScaleModel({2}));
  v1::UploadHeader* header = messages[0].mutable_header();
  header->set_search_budget("exhaust:90c");
  header->add_disable_rules("layout");
  header->set_deterministic(true);
  v1::UploadModelResponse stored;
  ASSERT_TRUE(test.Send(messages, &stored).ok());
  const Job first = test.WaitForJob(stored.compile_job_id());
  EXPECT_EQ(first.stop_reason(), Job::STOP_BASELINE_ONLY);
  EXPECT_EQ(first.search_options().budget(), "0");
  test.Restart();  // the restarted server still knows the options of the upload
  EXPECT_TRUE(test.Get("m").deterministic());
  grpc::ClientContext context;
  v1::StartCompileRequest request;
  request.set_model("m");
  request.add_disable_rules("algebra");
  request.set_search_seed(11);
  Job job;
  ASSERT_TRUE(test.compile->StartCompile(&context, request, &job).ok());
  EXPECT_EQ(job.search_options().budget(), "exhaust:90c");
  EXPECT_EQ(job.search_options().seed(), 11u);
  EXPECT_THAT(job.search_options().disabled_rules(), testing::ElementsAre("algebra", "layout"));
  EXPECT_EQ(job.search_options().use(), v1::SearchOptions::KEEP);
  EXPECT_EQ(test.WaitForJob(job.id()).comparison().ratio(), 0.5);
  request.set_use(v1::SearchOptions::SERVE);
  grpc::ClientContext other;
  const grpc::Status refused = test.compile->StartCompile(&other, request, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("use: SERVE, but model \"m\", version 1"));
}

}  // namespace
}  // namespace athanor
