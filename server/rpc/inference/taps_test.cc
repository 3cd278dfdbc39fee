// Tests inner values in replies: request parameter "taps".
#include <chrono>
#include <cstring>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using Job = v1::CompileJob;

inference::ModelInferRequest Request(const std::string& model, const std::vector<float>& x,
                                     const std::string& taps) {
  inference::ModelInferRequest request = FloatRequest(model, x);
  if (!taps.empty()) (*request.mutable_parameters())["taps"].set_string_param(taps);
  return request;
}

using Values = std::vector<std::pair<std::string, std::vector<float>>>;

Values ValuesOf(const inference::ModelInferResponse& reply) {
  Values values;
  for (int i = 0; i < reply.outputs_size(); ++i) {
    EXPECT_EQ(reply.outputs(i).datatype(), "FP32");
    const std::string& raw = reply.raw_output_contents(i);
    std::vector<float> floats(raw.size() / sizeof(float));
    std::memcpy(floats.data(), raw.data(), raw.size());
    values.emplace_back(reply.outputs(i).name(), std::move(floats));
  }
  return values;
}

Values Infer(TestServer& test, const inference::ModelInferRequest& request,
             std::string* plan_id = nullptr) {
  inference::ModelInferResponse reply;
  const grpc::Status status = test.Infer(request, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  if (plan_id != nullptr && status.ok()) *plan_id = reply.parameters().at("plan_id").string_param();
  return ValuesOf(reply);
}

std::vector<Job> Jobs(TestServer& test) {
  grpc::ClientContext context;
  v1::ListCompileJobsResponse reply;
  EXPECT_TRUE(test.compile->ListCompileJobs(&context, {}, &reply).ok());
  return {reply.jobs().begin(), reply.jobs().end()};
}

grpc::Status Delete(TestServer& test, const std::string& name) {
  grpc::ClientContext context;
  v1::DeleteModelRequest request;
  request.set_name(name);
  v1::DeleteModelResponse reply;
  return test.models->DeleteModel(&context, request, &reply);
}

void AwaitJobs(TestServer& test, size_t jobs) {
  while (Jobs(test).size() < jobs) std::this_thread::yield();
}

TEST(TapsTest, ComeBehindTheOutputsInTheOrderAskedFor) {
  TestServer test;
  test.Upload("m", ChainModel({1, -2, 3}));
  std::string plan_id;
  EXPECT_THAT(
      Infer(test, Request("m", {10, 10, 10}, "doubled,x,w,hidden"), &plan_id),
      ElementsAre(Pair("y", ElementsAre(20, 0, 60)), Pair("doubled", ElementsAre(20, -40, 60)),
                  Pair("x", ElementsAre(10, 10, 10)), Pair("w", ElementsAre(1, -2, 3)),
                  Pair("hidden", ElementsAre(10, -20, 30))));
  // The serving plan has not changed.
  const std::string serving = test.Get("m").plan_id();
  EXPECT_NE(plan_id, serving);
  EXPECT_EQ(test.Get("m").plans_size(), 1);
  EXPECT_THAT(Infer(test, Request("m", {1, 1, 1}, ""), &plan_id),
              ElementsAre(Pair("y", ElementsAre(2, 0, 6))));
  EXPECT_EQ(plan_id, serving);
}

TEST(TapsTest, EqualSetsShareOnePlan) {
  TestServer test;
  test.Upload("m", ChainModel({1, -2}));
  std::string first, second;
  Infer(test, Request("m", {1, 1}, "doubled,hidden"), &first);
  EXPECT_THAT(Infer(test, Request("m", {1, 1}, "hidden,doubled"), &second),
              ElementsAre(Pair("y", ElementsAre(2, 0)), Pair("hidden", ElementsAre(1, -2)),
                          Pair("doubled", ElementsAre(2, -4))));
  EXPECT_EQ(first, second);
  const std::vector<Job> jobs = Jobs(test);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_THAT(jobs[0].taps(), ElementsAre("hidden", "doubled"));
  // Calls are answered as soon as their plan is ready; its job ends a moment later.
  const Job made = test.WaitForJob(jobs[0].id());
  EXPECT_EQ(made.phase(), Job::DONE);
  EXPECT_THAT(made.message(), HasSubstr("taps"));
  EXPECT_THAT(jobs[1].taps(), ElementsAre());
  // The model's job is still the job of its serving plan.
  EXPECT_EQ(test.Get("m").compile_job_id(), jobs[1].id());
}

TEST(TapsTest, OutputsNeedNoOtherPlan) {
  TestServer test;
  test.Upload("m", ChainModel({1, -2}));
  std::string plan_id;
  EXPECT_THAT(Infer(test, Request("m", {1, 1}, "clamped"), &plan_id),
              ElementsAre(Pair("y", ElementsAre(2, 0)), Pair("clamped", ElementsAre(2, 0))));
  EXPECT_EQ(plan_id, test.Get("m").plan_id());
  EXPECT_EQ(Jobs(test).size(), 1u);
  EXPECT_THAT(Infer(test, Request("m", {1, 1}, "clamped,hidden")),
              ElementsAre(Pair("y", ElementsAre(2, 0)), Pair("clamped", ElementsAre(2, 0)),
                          Pair("hidden", ElementsAre(1, -2))));
}

// A model with outputs "h" (node "h") and "g" (node "f"), and a node "g".
TestModel NamesakesModel() {
  Graph graph;
  graph.dims = {{"n", 1, 8}};
  GraphBuilder b(&graph);
  NodeId x = b.Input("x", {DType::kF32, {Expr::Symbol("n")}}).value();
  NodeId h = b.Add(Op::kAdd, {x, x}, {}, "h").value();
  NodeId g = b.Add(Op::kMul, {h, x}, {}, "g").value();
  b.Output("h", h);
  b.Output("g", b.Add(Op::kAdd, {g, h}, {}, "f").value());
  return ModelOf(graph, {});
}

TEST(TapsTest, NamesakesOfOutputs) {
  TestServer test;
  test.Upload("m", NamesakesModel());
  // The reply already has a tensor of this name, with the same value.
  EXPECT_THAT(Infer(test, Request("m", {3}, "h")),
              ElementsAre(Pair("h", ElementsAre(6)), Pair("g", ElementsAre(24))));
  // A different value cannot have the same name in one reply.
  inference::ModelInferRequest request = Request("m", {3}, "g");
  const grpc::Status status = test.Infer(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("node \"g\", and output \"g\""));
  EXPECT_THAT(status.error_message(), HasSubstr("node \"f\""));
  request.add_outputs()->set_name("h");
  EXPECT_THAT(Infer(test, request),
              ElementsAre(Pair("h", ElementsAre(6)), Pair("g", ElementsAre(18))));
  // An output that was not requested can be tapped.
  request = Request("m", {3, 4}, "f,x");
  request.add_outputs()->set_name("h");
  EXPECT_THAT(Infer(test, request),
              ElementsAre(Pair("h", ElementsAre(6, 8)), Pair("f", ElementsAre(24, 40)),
                          Pair("x", ElementsAre(3, 4))));
}

TEST(TapsTest, ShapesFollowTheDims) {
  TestServer test;
  test.Upload("m", ReluModel());
  inference::ModelInferRequest request = Request("m", std::vector<float>(12, -1), "x");
  request.mutable_inputs(0)->clear_shape();
  request.mutable_inputs(0)->add_shape(3);
  request.mutable_inputs(0)->add_shape(4);
  inference::ModelInferResponse reply;
  ASSERT_TRUE(test.Infer(request, &reply).ok());
  ASSERT_EQ(reply.outputs_size(), 2);
  EXPECT_THAT(reply.outputs(1).shape(), ElementsAre(3, 4));
  EXPECT_EQ(reply.raw_output_contents(1), request.raw_input_contents(0));
  EXPECT_EQ(reply.parameters().at("bucket").string_param(), "b=1..64");
}

TEST(TapsTest, WrongNamesAreRefused) {
  ServerOptions options;
  options.max_taps = 2;
  TestServer test(options);
  test.Upload("m", ChainModel({1}));
  auto refused = [&](const std::string& taps) {
    const grpc::Status status = test.Infer(Request("m", {1}, taps));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << taps;
    return status.error_message();
  };
  EXPECT_THAT(refused("hiden"), HasSubstr("did you mean \"hidden\"?"));
  EXPECT_THAT(refused("y"), HasSubstr("\"y\", which is not a node"));
  EXPECT_THAT(refused("x,x"), HasSubstr("\"x\" twice"));
  EXPECT_THAT(refused("x,"), HasSubstr("names \"\""));
  EXPECT_THAT(refused("x,w,hidden"), HasSubstr("more than 2"));
  EXPECT_EQ(Jobs(test).size(), 1u);
}

TEST(TapsTest, ServersMayRefuseThem) {
  ServerOptions options;
  options.tap_plans = 0;
  TestServer test(options);
  test.Upload("m", ChainModel({1}));
  const grpc::Status status = test.Infer(Request("m", {1}, "hidden"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("--tap_plans=0"));
  EXPECT_THAT(Infer(test, Request("m", {1}, "clamped")),
              ElementsAre(Pair("y", ElementsAre(2)), Pair("clamped", ElementsAre(2))));
}

TEST(TapsTest, ACallWaitsForItsPlanWhileOthersAreServed) {
  TestServer test;
  test.Upload("m", ChainModel({3}));
  test.control->HoldCompiles();
  Values values;
  std::thread waiting([&] { values = Infer(test, Request("m", {2}, "hidden")); });
  AwaitJobs(test, 2);
  EXPECT_THAT(Infer(test, Request("m", {1}, "")), ElementsAre(Pair("y", ElementsAre(6))));
  EXPECT_EQ(test.Get("m").state(), v1::Model::READY);
  test.control->ReleaseCompiles();
  waiting.join();
  EXPECT_THAT(values, ElementsAre(Pair("y", ElementsAre(12)), Pair("hidden", ElementsAre(6))));
}

TEST(TapsTest, BeforeTheBaseline) {
  TestServer test;
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", ChainModel({3}))).ok());
  Values values;
  std::thread waiting([&] { values = Infer(test, Request("m", {2}, "hidden")); });
  AwaitJobs(test, 2);
  test.control->ReleaseCompiles();
  waiting.join();
  EXPECT_THAT(values, ElementsAre(Pair("y", ElementsAre(12)), Pair("hidden", ElementsAre(6))));
}

TEST(TapsTest, WaitNoneStartsTheJobAndRefuses) {
  TestServer test;
  test.Upload("m", ChainModel({3}));
  test.control->HoldCompiles();
  inference::ModelInferRequest request = Request("m", {2}, "hidden");
  (*request.mutable_parameters())["wait"].set_string_param("none");
  const grpc::Status status = test.Infer(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("no plan with taps \"hidden\" yet"));
  const std::string id = Jobs(test)[0].id();
  EXPECT_THAT(status.error_message(), HasSubstr(id));
  test.control->ReleaseCompiles();
  EXPECT_EQ(test.WaitForJob(id).phase(), Job::DONE);
  EXPECT_THAT(Infer(test, request),
              ElementsAre(Pair("y", ElementsAre(12)), Pair("hidden", ElementsAre(6))));
}

TEST(TapsTest, DeadlinesAndCancellationsEndTheWait) {
  TestServer test;
  test.Upload("m", ChainModel({3}));
  test.control->HoldCompiles();
  inference::ModelInferRequest request = Request("m", {2}, "hidden");
  (*request.mutable_parameters())["timeout_us"].set_int64_param(30'000);
  const grpc::Status late = test.Infer(request);
  EXPECT_EQ(late.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(late.error_message(), HasSubstr("its plan with taps \"hidden\" was not ready"));

  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  grpc::ClientContext context;
  std::thread cancel([&] {
    while (test.server->core().active_calls() == 0) std::this_thread::yield();
    context.TryCancel();
  });
  inference::ModelInferResponse reply;
  const grpc::Status cancelled =
      test.inference_stub->ModelInfer(&context, Request("m", {2}, "hidden"), &reply);
  cancel.join();
  EXPECT_EQ(cancelled.error_code(), grpc::StatusCode::CANCELLED);
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  // The job goes on, and the next call uses its plan.
  test.control->ReleaseCompiles();
  EXPECT_THAT(Infer(test, Request("m", {2}, "hidden")),
              ElementsAre(Pair("y", ElementsAre(12)), Pair("hidden", ElementsAre(6))));
  EXPECT_EQ(Jobs(test).size(), 2u);
}

TEST(TapsTest, DeletingTheModelEndsTheWait) {
  TestServer test;
  test.Upload("m", ChainModel({3}));
  test.control->HoldCompiles();
  grpc::Status status;
  std::thread waiting([&] { status = test.Infer(Request("m", {2}, "hidden")); });
  AwaitJobs(test, 2);
  const std::string id = Jobs(test)[0].id();
  ASSERT_TRUE(Delete(test, "m").ok());
  waiting.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("was deleted"));
  EXPECT_EQ(test.WaitForJob(id).stop_reason(), Job::STOP_MODEL_DELETED);
}

TEST(TapsTest, DrainingEndsTheWait) {
  TestServer test;
  test.Upload("m", ChainModel({3}));
  test.control->HoldCompiles();
  grpc::Status status;
  std::thread waiting([&] { status = test.Infer(Request("m", {2}, "hidden")); });
  AwaitJobs(test, 2);
  EXPECT_TRUE(test.server->Drain());
  waiting.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(TapsTest, AFailedJobIsTheAnswerAndCostsNothingElse) {
  TestServer test;
  test.Upload("m", ChainModel({3}));
  test.control->FailCompiles(absl::ResourceExhaustedError("kernel mul: the compiler ran out"));
  for (int i = 0; i < 2; ++i) {
    inference::ModelInferRequest request = Request("m", {2}, "hidden");
    // The error is the failure, not "no plan yet".
    if (i == 1) (*request.mutable_parameters())["wait"].set_string_param("none");
    const grpc::Status status = test.Infer(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("kernel mul"));
  }
  ASSERT_EQ(Jobs(test).size(), 2u);
  EXPECT_EQ(test.WaitForJob(Jobs(test)[0].id()).phase(), Job::FAILED);
  EXPECT_EQ(test.Get("m").state(), v1::Model::READY);
  EXPECT_EQ(test.Get("m").error(), "");
  EXPECT_THAT(test.Infer("m", {1}), ElementsAre(6));
  // StartCompile tries again.
  test.control->FailCompiles(absl::OkStatus());
  grpc::ClientContext context;
  v1::StartCompileRequest start;
  start.set_model("m");
  Job job;
  ASSERT_TRUE(test.compile->StartCompile(&context, start, &job).ok());
  EXPECT_THAT(Infer(test, Request("m", {2}, "hidden")),
              ElementsAre(Pair("y", ElementsAre(12)), Pair("hidden", ElementsAre(6))));
}

TEST(TapsTest, AFailedVersionHasNone) {
  TestServer test;
  test.control->FailCompiles(absl::UnimplementedError("node \"hidden\" (Mul): not here"));
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test.Send(UploadMessages("m", ChainModel({3})), &uploaded).ok());
  EXPECT_EQ(test.WaitForJob(uploaded.compile_job_id()).phase(), Job::FAILED);
  const grpc::Status status = test.Infer(Request("m", {2}, "hidden"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Jobs(test).size(), 1u);
}

TEST(TapsTest, ACancelledJobIsTheAnswer) {
  TestServer test;
  test.Upload("m", ChainModel({3}));
  test.control->HoldCompiles();
  grpc::Status status;
  std::thread waiting([&] { status = test.Infer(Request("m", {2}, "hidden")); });
  AwaitJobs(test, 2);
  const std::string id = Jobs(test)[0].id();
  grpc::ClientContext context;
  v1::CancelCompileJobRequest request;
  request.set_id(id);
  Job job;
  ASSERT_TRUE(test.compile->CancelCompileJob(&context, request, &job).ok());
  waiting.join();
  EXPECT_EQ(job.phase(), Job::CANCELLED);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("has no plan with taps \"hidden\""));
  EXPECT_THAT(status.error_message(), HasSubstr(id + " was cancelled"));
  EXPECT_EQ(test.Get("m").state(), v1::Model::READY);
}

TEST(TapsTest, PlansAreBoundedAndWhatRunsIsKept) {
  ServerOptions options;
  options.tap_plans = 1;
  options.threads = 2;
  TestServer test(options);
  test.Upload("m", ChainModel({3}));
  const auto hidden = ElementsAre(Pair("y", ElementsAre(12)), Pair("hidden", ElementsAre(6)));
  EXPECT_THAT(Infer(test, Request("m", {2}, "hidden")), hidden);
  // A tap plan in use makes room for another set of taps, and its call ends normally.
  test.control->HoldRuns();
  Values values;
  std::thread running([&] { values = Infer(test, Request("m", {2}, "hidden")); });
  while (test.control->runs_waiting() == 0) std::this_thread::yield();
  std::thread other([&] { Infer(test, Request("m", {2}, "doubled")); });
  while (test.control->runs_waiting() < 2) std::this_thread::yield();
  test.control->ReleaseRuns();
  running.join();
  other.join();
  EXPECT_THAT(values, hidden);
  EXPECT_EQ(Jobs(test).size(), 3u);
  EXPECT_THAT(Infer(test, Request("m", {2}, "hidden")), hidden);
  EXPECT_EQ(Jobs(test).size(), 4u);
  EXPECT_THAT(Infer(test, Request("m", {2}, "hidden")), hidden);
  EXPECT_EQ(Jobs(test).size(), 4u);
}

TEST(TapsTest, TooManySetsAtOnceAreRefused) {
  ServerOptions options;
  options.tap_plans = 1;
  TestServer test(options);
  test.Upload("m", ChainModel({3}));
  test.control->HoldCompiles();
  std::thread waiting([&] { EXPECT_EQ(Infer(test, Request("m", {2}, "hidden")).size(), 2u); });
  AwaitJobs(test, 2);
  const grpc::Status status = test.Infer(Request("m", {2}, "doubled"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("model \"m\", version 1: "));
  EXPECT_THAT(status.error_message(), HasSubstr("--tap_plans"));
  test.control->ReleaseCompiles();
  waiting.join();
}

TEST(TapsTest, ARestartMakesThemAgain) {
  TestServer test;
  test.Upload("m", ChainModel({3}));
  std::string before, after;
  Infer(test, Request("m", {2}, "hidden"), &before);
  test.Restart();
  EXPECT_THAT(Infer(test, Request("m", {2}, "hidden"), &after),
              ElementsAre(Pair("y", ElementsAre(12)), Pair("hidden", ElementsAre(6))));
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace athanor
