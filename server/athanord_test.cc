// The program itself: exit codes, signals, and a real model compiled, run and kept across restarts.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "compiler/frontend/frontend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/compile.grpc.pb.h"
#include "proto/athanor/v1/model.grpc.pb.h"
#include "proto/inference/open_inference_grpc.grpc.pb.h"
#include "server/test_process.h"
#include "server/testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// SIGKILL to every child process of `parent`; how many there were.
int KillChildren(pid_t parent) {
  int killed = 0;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(parent) + "/task")) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) killed += kill(child, SIGKILL) == 0 ? 1 : 0;
  }
  return killed;
}

class AthanordTest : public testing::Test {
 protected:
  void SetUp() override { directory_ = FreshDirectory(); }

  std::unique_ptr<TestProcess> Start(std::vector<std::string> flags) {
    flags.insert(flags.begin(), "server/athanord");
    return std::make_unique<TestProcess>(flags, directory_ + "/log-" + std::to_string(++logs_));
  }
  std::unique_ptr<TestProcess> Serve(std::vector<std::string> flags = {}) {
    flags.push_back("--listen=127.0.0.1:0");
    flags.push_back("--state_dir=" + directory_ + "/state");
    std::unique_ptr<TestProcess> process = Start(flags);
    const int port = process->WaitForPort();
    EXPECT_NE(port, 0) << process->Output();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
    return process;
  }
  v1::UploadModelResponse Send(const std::string& name, const TestModel& model) {
    grpc::ClientContext context;
    v1::UploadModelResponse reply;
    auto writer = v1::ModelService::NewStub(channel_)->UploadModel(&context, &reply);
    for (const auto& message : UploadMessages(name, model)) writer->Write(message);
    const grpc::Status status = writer->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }
  std::vector<float> Infer(const inference::ModelInferRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(50));
    inference::ModelInferResponse reply;
    const grpc::Status status =
        inference::GRPCInferenceService::NewStub(channel_)->ModelInfer(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (reply.raw_output_contents_size() != 1) return {};
    std::vector<float> y(reply.raw_output_contents(0).size() / sizeof(float));
    std::memcpy(y.data(), reply.raw_output_contents(0).data(), y.size() * sizeof(float));
    return y;
  }
  v1::CompileJob LatestJob() {
    grpc::ClientContext context;
    v1::ListCompileJobsResponse reply;
    EXPECT_TRUE(v1::CompileService::NewStub(channel_)->ListCompileJobs(&context, {}, &reply).ok());
    return reply.jobs_size() == 0 ? v1::CompileJob() : reply.jobs(0);
  }

  std::string directory_;
  int logs_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(AthanordTest, WrongFlagsEndWithTwo) {
  for (const char* flag :
       {"--no_such_flag=1", "--threads=many", "--device=cuda:0", "--listen=0.0.0.0:0",
        "--listen=127.0.0.1:99999", "--http_listen=127.0.0.1:99999", "--http_listen=localhost:-1",
        "serve"}) {
    auto process = Start({flag});
    EXPECT_EQ(process->Wait(), 2) << flag;
    EXPECT_THAT(process->Output(), HasSubstr("athanord: "));
    EXPECT_THAT(process->Output(), HasSubstr(std::string(flag).substr(0, 6)));
  }
}

// A file can be opened of a directory too; what reading it threw was caught by nobody.
TEST_F(AthanordTest, CertificatesThatCannotBeReadEndWithTwo) {
  const std::string missing = directory_ + "/missing.pem", empty = directory_ + "/empty.pem";
  std::ofstream(empty).flush();
  for (const std::string& file : {directory_, missing, empty}) {
    auto process = Start({"--listen=127.0.0.1:0", "--state_dir=" + directory_ + "/state",
                          "--tls_cert=" + file, "--tls_key=" + file});
    EXPECT_EQ(process->Wait(), 2) << file;
    EXPECT_THAT(process->Output(), HasSubstr("--tls_cert: cannot read '" + file + "'"));
  }
  const std::string wrong = directory_ + "/wrong.pem";
  std::ofstream(wrong) << "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n";
  auto process = Start({"--listen=127.0.0.1:0", "--state_dir=" + directory_ + "/state",
                        "--tls_cert=" + wrong, "--tls_key=" + wrong});
  EXPECT_EQ(process->Wait(), 2);
  EXPECT_THAT(process->Output(), HasSubstr("--tls_cert: '" + wrong + "' holds no certificate"));
}

TEST_F(AthanordTest, HelpAndVersionEndWithZero) {
  auto help = Start({"--help"});
  EXPECT_EQ(help->Wait(), 0);
  EXPECT_THAT(help->Output(), HasSubstr("--state_dir"));
  auto version = Start({"--version"});
  EXPECT_EQ(version->Wait(), 0);
  EXPECT_THAT(version->Output(), HasSubstr("athanord "));
}

TEST_F(AthanordTest, SignalsDrainAndEndWithZero) {
  for (int signal : {SIGTERM, SIGINT}) {
    auto server = Serve();
    EXPECT_EQ(server->Stop(signal), 0);
    EXPECT_THAT(server->Output(), HasSubstr("msg=\"draining\""));
  }
}

TEST_F(AthanordTest, ASecondServerOnTheSameStateEndsWithOne) {
  auto first = Serve();
  auto second = Start({"--listen=127.0.0.1:0", "--state_dir=" + directory_ + "/state"});
  EXPECT_EQ(second->Wait(), 1);
  EXPECT_THAT(second->Output(), HasSubstr("is used by another server"));
}

TEST_F(AthanordTest, AStateDirectoryThatCannotBeMadeIsNamed) {
  auto server = Start({"--listen=127.0.0.1:0", "--state_dir=/proc/athanor/state"});
  EXPECT_EQ(server->Wait(), 1);
  EXPECT_THAT(server->Output(), HasSubstr("/proc/athanor"));
}

TEST_F(AthanordTest, JsonLog) {
  auto server =
      Start({"--listen=127.0.0.1:0", "--state_dir=" + directory_ + "/state", "--log_format=json"});
  while (!absl::StrContains(server->Output(), "\"serving\"")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(server->Stop(SIGTERM), 0);
  EXPECT_THAT(server->Output(), HasSubstr("\"level\":\"info\",\"msg\":\"serving\",\"version\":"));
}

TEST_F(AthanordTest, CompilesOnceAndAnswersAfterEveryStart) {
  auto server = Serve();
  Send("m", ScaleModel({1, -2, 3}));
  EXPECT_THAT(Infer(FloatRequest("m", {10, 10, 10})), ElementsAre(10, -20, 30));
  EXPECT_EQ(LatestJob().kernels_from_cache(), 0);
  EXPECT_GE(LatestJob().kernels_total(), 1);
  EXPECT_EQ(server->Stop(SIGTERM), 0);
  for (int signal : {SIGKILL, SIGTERM}) {
    server = Serve();
    EXPECT_THAT(Infer(FloatRequest("m", {10, 10, 10})), ElementsAre(10, -20, 30));
    EXPECT_EQ(LatestJob().kernels_from_cache(), LatestJob().kernels_total());
    server->Stop(signal);
  }
}

TEST_F(AthanordTest, ALostTunerCostsNothingButTime) {
  auto server = Serve({"--compile_workers=1"});
  Send("a", ScaleModel({2}));
  EXPECT_THAT(Infer(FloatRequest("a", {4})), ElementsAre(8));
  // Whatever ends the child between two jobs, the next job has another one.
  ASSERT_GT(KillChildren(server->pid()), 0);
  Send("b", ReluModel());
  inference::ModelInferRequest request = FloatRequest("b", {-1, 2, -3, 4});
  request.mutable_inputs(0)->clear_shape();
  request.mutable_inputs(0)->add_shape(1);
  request.mutable_inputs(0)->add_shape(4);
  EXPECT_THAT(Infer(request), ElementsAre(0, 2, 0, 4));
}

// y = x, by way of many layers that take a while to lower and share two kernels.
TestModel DeepModel(int layers) {
  Graph graph;
  graph.name = "deep";
  GraphBuilder b(&graph);
  NodeId x = b.Input("x", {DType::kF32, {4}}).value();
  Tensor identity = Tensor::Zeros(DType::kF32, {4, 4});
  for (int i = 0; i < 4; ++i) identity.data<float>()[5 * i] = 1;
  const NodeId w = b.Constant(identity).value();
  for (int i = 0; i < layers; ++i) {
    x = b.Add(Op::kContract, {x, w}, {{"spec", std::string("k,kn->n")}}).value();
  }
  b.Output("y", x);
  return {GraphToProto(graph), {}};
}

TEST_F(AthanordTest, ATunerLostWhileLoweringCostsNothingButTime) {
  auto server = Serve({"--compile_workers=1"});
  Send("a", ScaleModel({2}));
  EXPECT_THAT(Infer(FloatRequest("a", {4})), ElementsAre(8));
  // Each time another graph, because this test may be too slow to meet the lowering.
  for (int layers = 1'000; !absl::StrContains(server->Output(), "graph lowered once more");
       ++layers) {
    Send("b", DeepModel(layers));
    while (LatestJob().phase() == v1::CompileJob::QUEUED) {
    }
    ASSERT_GT(KillChildren(server->pid()), 0);
    EXPECT_THAT(Infer(FloatRequest("b", {1, 2, 3, 4})), ElementsAre(1, 2, 3, 4));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace athanor
