// Tests the program: exit codes, signals, and a real model compiled, run and kept across restarts.
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "compiler/frontend/frontend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/compile.grpc.pb.h"
#include "proto/athanor/v1/model.grpc.pb.h"
#include "proto/inference/open_inference_grpc.grpc.pb.h"
#include "server/base/signals.h"
#include "server/net/tls_testing.h"
#include "server/testing/test_process.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(parent) + "/task")) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) found.push_back(child);
  }
  return found;
}

// Sends SIGKILL to every child process of `parent`; returns how many there were.
int KillChildren(pid_t parent) {
  int killed = 0;
  for (const pid_t child : ChildrenOf(parent)) killed += kill(child, SIGKILL) == 0 ? 1 : 0;
  return killed;
}

void AwaitText(const std::string& path, const std::string& part) {
  while (!absl::StrContains(TestProcess::TextOf(path), part)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class AthanordTest : public testing::Test {
 protected:
  void SetUp() override { directory_ = FreshDirectory(); }

  std::unique_ptr<TestProcess> Start(std::vector<std::string> flags) {
    flags.insert(flags.begin(), "server/athanord");
    return std::make_unique<TestProcess>(flags, directory_ + "/log-" + std::to_string(++logs_));
  }
  // `log` is the file of --log_file, if set.
  std::unique_ptr<TestProcess> Serve(std::vector<std::string> flags = {},
                                     const std::string& log = "") {
    flags.push_back("--listen=127.0.0.1:0");
    flags.push_back("--state_dir=" + directory_ + "/state");
    std::unique_ptr<TestProcess> process = Start(flags);
    port_ = process->WaitForPort(log);
    EXPECT_NE(port_, 0) << process->Output();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
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
  int port_ = 0;  // port of the server that Serve started last
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(AthanordTest, WrongFlagsEndWithTwo) {
  for (const char* flag :
       {"--no_such_flag=1", "--threads=many", "--device=cuda", "--listen=0.0.0.0:0",
        "--listen=127.0.0.1:99999", "--http_listen=127.0.0.1:99999", "--http_listen=localhost:-1",
        "serve"}) {
    auto process = Start({flag});
    EXPECT_EQ(process->Wait(), 2) << flag;
    EXPECT_THAT(process->Output(), HasSubstr("athanord: "));
    EXPECT_THAT(process->Output(), HasSubstr(std::string(flag).substr(0, 6)));
  }
}

// Opening a directory as a file succeeds; the exception that reading it threw was not caught.
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

TEST_F(AthanordTest, HelpManualAndVersionEndWithZero) {
  auto help = Start({"--help"});
  EXPECT_EQ(help->Wait(), 0);
  EXPECT_THAT(help->Output(), HasSubstr("--state_dir"));
  auto manual = Start({"--man"});
  EXPECT_EQ(manual->Wait(), 0);
  EXPECT_THAT(manual->Output(), HasSubstr(".TH \"ATHANORD\" 1"));
  auto version = Start({"--version"});
  EXPECT_EQ(version->Wait(), 0);
  EXPECT_THAT(version->Output(), HasSubstr("athanord "));
}

TEST_F(AthanordTest, CertificatesThatAreOverAndKeysThatAskEndWithTwo) {
  const std::string cert = directory_ + "/cert.pem", key = directory_ + "/key.pem";
  const TestPems right = SelfSigned(), other = SelfSigned();
  const std::pair<TestPems, std::string> kCases[] = {
      {SelfSigned(-7200, -3600), "' has expired: it is valid from "},
      {SelfSigned(3600, 7200), "' is not valid yet: it is valid from "},
      {{right.cert, EncryptedKey(right.key, true)}, "' is encrypted; give a key without"},
      {{right.cert, other.key}, "' is not the key of the certificate in '"}};
  for (const auto& [pems, said] : kCases) {
    pems.WriteTo(cert, key);
    auto process = Start({"--listen=127.0.0.1:0", "--state_dir=" + directory_ + "/state",
                          "--tls_cert=" + cert, "--tls_key=" + key});
    EXPECT_EQ(process->Wait(), 2) << said;
    EXPECT_THAT(process->Output(), HasSubstr(said));
  }
}

TEST_F(AthanordTest, SignalsThatDrainEndWithZero) {
  for (const SignalRow& row : SignalTable()) {
    if (row.use != SignalUse::kEnd && row.use != SignalUse::kDrain) continue;
    auto server = Serve();
    EXPECT_EQ(server->Stop(row.number), 0) << row.name;
    EXPECT_THAT(server->Output(), HasSubstr("msg=\"draining\"")) << row.name;
    EXPECT_THAT(server->Output(), HasSubstr("signal=" + std::string(row.name)));
  }
}

// Sends every signal that can be caught and does not indicate a broken process, whether or not it
// is in the table. Signals that stop a process are followed by SIGCONT.
TEST_F(AthanordTest, OtherSignalsDoNotEndIt) {
  auto server = Serve();
  Send("m", ScaleModel({2}));
  EXPECT_THAT(Infer(FloatRequest("m", {4})), ElementsAre(8));
  std::set<int> others = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE,
                          SIGILL,  SIGABRT, SIGSYS,  SIGTRAP};
  for (const SignalRow& row : SignalTable()) {
    if (row.use == SignalUse::kEnd || row.use == SignalUse::kDrain) others.insert(row.number);
  }
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (others.contains(signal) || (signal > SIGSYS && signal < SIGRTMIN)) continue;
    ASSERT_EQ(kill(server->pid(), signal), 0) << signal;
    ASSERT_EQ(kill(server->pid(), SIGCONT), 0);
  }
  EXPECT_THAT(Infer(FloatRequest("m", {5})), ElementsAre(10));
  EXPECT_EQ(server->Stop(SIGTERM), 0);
}

// Child processes must not inherit ignored or blocked signals. Signals 32 and 33 belong to the C
// library.
TEST_F(AthanordTest, TunersHaveSignalsAsAnyProcess) {
  auto server = Serve();
  Send("m", ScaleModel({2}));
  EXPECT_THAT(Infer(FloatRequest("m", {4})), ElementsAre(8));
  const std::vector<pid_t> children = ChildrenOf(server->pid());
  ASSERT_FALSE(children.empty());
  for (const pid_t child : children) {
    const std::string folder = "/proc/" + std::to_string(child);
    // Until it is the tuner, it is this server's copy, whose signals wait.
    for (std::string name; name != "athanor-tuner"; std::this_thread::yield()) {
      ASSERT_TRUE(std::getline(std::ifstream(folder + "/comm"), name)) << "child " << child;
    }
    std::ifstream status(folder + "/status");
    int found = 0;
    for (std::string line; std::getline(status, line);) {
      if (!absl::StartsWith(line, "SigBlk:") && !absl::StartsWith(line, "SigIgn:")) continue;
      const uint64_t mask = std::stoull(line.substr(7), nullptr, 16);
      EXPECT_EQ(mask & ~(uint64_t{3} << 31), 0u) << line;
      ++found;
    }
    EXPECT_EQ(found, 2);
  }
}

TEST_F(AthanordTest, AnotherSignalEndsTheDrainAtOnce) {
  auto server = Serve({"--drain=1h", "--max_uploads=1"});
  const auto uploads = v1::ModelService::NewStub(channel_);
  const auto messages = UploadMessages("m", ScaleModel({2}));
  v1::UploadModelResponse reply;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientWriter<v1::UploadModelRequest>> held;
  // Starts an upload that does not end; the refusal of a second one shows that it has begun.
  grpc::Status told;
  while (told.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) {
    if (held != nullptr) {
      context->TryCancel();
      held->Finish();
    }
    context = std::make_unique<grpc::ClientContext>();
    held = uploads->UploadModel(context.get(), &reply);
    held->Write(messages[0]);
    grpc::ClientContext other;
    auto writer = uploads->UploadModel(&other, &reply);
    for (const auto& message : messages) writer->Write(message);
    writer->WritesDone();
    told = writer->Finish();
  }
  kill(server->pid(), SIGTERM);
  while (!absl::StrContains(server->Output(), "draining")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(server->pid(), SIGXCPU);  // comes every second, and only asks for a drain
  EXPECT_EQ(server->Stop(SIGQUIT), 1);
  EXPECT_THAT(server->Output(), HasSubstr("msg=\"ended at once\" signal=SIGQUIT"));
  context->TryCancel();
  held->Finish();
}

// A write beyond the limit on file size is treated as a full disk and does not end the process.
TEST_F(AthanordTest, AFileThatMayNotGrowIsAFullDisk) {
  auto server = Serve();
  Send("m", ScaleModel({2}));
  EXPECT_THAT(Infer(FloatRequest("m", {4})), ElementsAre(8));
  rlimit before{};
  const rlimit small = {256 << 10, RLIM_INFINITY};
  ASSERT_EQ(prlimit(server->pid(), RLIMIT_FSIZE, &small, &before), 0);
  const TestModel large = ScaleModel(std::vector<float>(1 << 20, 2));
  grpc::ClientContext context;
  v1::UploadModelResponse reply;
  auto writer = v1::ModelService::NewStub(channel_)->UploadModel(&context, &reply);
  for (const auto& message : UploadMessages("large", large)) writer->Write(message);
  writer->WritesDone();
  const grpc::Status refused = writer->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("File too large"));
  EXPECT_THAT(Infer(FloatRequest("m", {5})), ElementsAre(10));
  ASSERT_EQ(prlimit(server->pid(), RLIMIT_FSIZE, &before, nullptr), 0);
  Send("large", large);
  EXPECT_EQ(server->Stop(SIGTERM), 0);
}

TEST_F(AthanordTest, HangupOpensTheLogAndReadsTheCertificateAgain) {
  const std::string log = directory_ + "/athanord.log";
  const std::string cert = directory_ + "/cert.pem", key = directory_ + "/key.pem";
  const TestPems before = SelfSigned(), after = SelfSigned();
  before.WriteTo(cert, key);
  auto server = Serve({"--log_file=" + log, "--tls_cert=" + cert, "--tls_key=" + key}, log);
  const auto trusts = [&](const TestPems& pems) {
    grpc::SslCredentialsOptions trust;
    trust.pem_root_certs = pems.cert;
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("localhost");
    auto stub = inference::GRPCInferenceService::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port_), grpc::SslCredentials(trust), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    inference::ServerLiveResponse reply;
    return stub->ServerLive(&context, {}, &reply).ok();
  };
  EXPECT_TRUE(trusts(before));
  EXPECT_THAT(server->Output(), IsEmpty());
  // Rotates the log: programs that do so rename the file first.
  std::filesystem::rename(log, log + ".1");
  after.WriteTo(cert, key);
  kill(server->pid(), SIGHUP);
  AwaitText(log, "msg=\"reloaded\" certificate_valid_until=");
  EXPECT_TRUE(trusts(after));
  EXPECT_FALSE(trusts(before));
  SelfSigned(-7200, -3600).WriteTo(cert, key);
  kill(server->pid(), SIGHUP);
  AwaitText(log, "msg=\"certificate kept\" reason=\"--tls_cert: '");
  EXPECT_TRUE(trusts(after));
  // If the log file cannot be opened again, logging goes on where it went.
  std::filesystem::rename(log, log + ".2");
  std::filesystem::create_directory(log);
  kill(server->pid(), SIGHUP);
  AwaitText(log + ".2", "msg=\"log file kept\" reason=\"--log_file: cannot open '");
  EXPECT_EQ(server->Stop(SIGTERM), 0);
  EXPECT_THAT(TestProcess::TextOf(log + ".2"), HasSubstr("msg=\"stopped\""));
  EXPECT_THAT(TestProcess::TextOf(log + ".1"), HasSubstr("msg=\"serving\""));
  auto none =
      Start({"--listen=127.0.0.1:0", "--state_dir=" + directory_ + "/state", "--log_file=" + log});
  EXPECT_EQ(none->Wait(), 2);
  EXPECT_THAT(none->Output(), HasSubstr("--log_file: cannot open '" + log + "'"));
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
  // If the child dies between two jobs, the next job gets a new one.
  ASSERT_GT(KillChildren(server->pid()), 0);
  Send("b", ReluModel());
  inference::ModelInferRequest request = FloatRequest("b", {-1, 2, -3, 4});
  request.mutable_inputs(0)->clear_shape();
  request.mutable_inputs(0)->add_shape(1);
  request.mutable_inputs(0)->add_shape(4);
  EXPECT_THAT(Infer(request), ElementsAre(0, 2, 0, 4));
}

// Makes y = x, through many layers that take a while to lower and share two kernels.
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
  // Uses a new graph each time, because this test may be too slow to hit the lowering.
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
