// Kills uploads and servers with SIGKILL at random moments: afterwards an acknowledged model is
// listed and equal byte for byte, and an unacknowledged one is gone.
//
//   uploads_test                      // 8 moments
//   uploads_test --moments=50 --seed=7
//
// An upload runs in a process of its own (this binary with --upload), so that killing it acts like
// a lost client. Every second moment kills the server instead and starts it again.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "compiler/frontend/frontend.h"
#include "deploy/bazel/libs/sha256.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/model.grpc.pb.h"
#include "proto/inference/open_inference_grpc.grpc.pb.h"
#include "server/testing/test_process.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

int moments = 8;
uint32_t seed = 1;
std::string self;

constexpr int64_t kElements = 48 << 10;
constexpr int kParameters = 3;
constexpr size_t kChunk = 32 << 10;

// Model number `number`: y = x * w0 * w1 * w2, with weights drawn from the number.
struct NumberedModel {
  explicit NumberedModel(int number) : name(absl::StrCat("model-", number)) {
    std::mt19937 random(number);
    Graph graph;
    GraphBuilder b(&graph);
    NodeId y = b.Input("x", {DType::kF32, {kElements}}).value();
    std::vector<std::string> hashes;
    for (int p = 0; p < kParameters; ++p) {
      std::vector<float> values(kElements);
      for (float& value : values) value = static_cast<float>(random() % 1000) / 500;
      tensors.emplace_back(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof(float));
      hashes.push_back(Sha256Of(tensors.back()));
      const NodeId w = b.Parameter(absl::StrCat("w", p), {DType::kF32, {kElements}}).value();
      y = b.Add(Op::kMul, {y, w}).value();
    }
    b.Output("y", y);
    bytes = GraphToProto(graph, hashes).SerializeAsString();
  }

  std::string name;
  std::string bytes;
  std::vector<std::string> tensors;
};

void Say(const char* line) {
  if (write(STDOUT_FILENO, line, std::strlen(line)) < 0) _exit(3);
}

// Prints "commit" before it sends the commit and "stored" once the server has acknowledged it.
int UploadMain(const std::string& address, int number) {
  const NumberedModel model(number);
  const auto stub =
      v1::ModelService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::UploadModelResponse reply;
  const auto writer = stub->UploadModel(&context, &reply);
  v1::UploadModelRequest message;
  v1::UploadHeader* header = message.mutable_header();
  header->set_name(model.name);
  header->set_format("athanor");
  header->set_graph(model.bytes);
  header->set_graph_sha256(Sha256Of(model.bytes));
  for (const std::string& tensor : model.tensors) {
    auto* info = header->add_tensors();
    info->set_hash(Sha256Of(tensor));
    info->set_bytes(static_cast<int64_t>(tensor.size()));
  }
  writer->Write(message);
  for (const std::string& tensor : model.tensors) {
    for (size_t offset = 0; offset < tensor.size(); offset += kChunk) {
      message.mutable_chunk()->set_hash(Sha256Of(tensor));
      message.mutable_chunk()->set_offset(static_cast<int64_t>(offset));
      message.mutable_chunk()->set_data(tensor.substr(offset, kChunk));
      writer->Write(message);
    }
  }
  message.mutable_commit();
  Say("commit\n");
  writer->Write(message);
  writer->WritesDone();
  if (!writer->Finish().ok()) return 1;
  Say("stored\n");
  return 0;
}

class SteadyUploadsTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/steady-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    state_ = directory_ + "/state";
    StartServer();
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void StartServer() {
    const std::string log = absl::StrCat(directory_, "/server-", ++starts_, ".log");
    server_ = std::make_unique<TestProcess>(
        std::vector<std::string>{"server/athanord", "--listen=127.0.0.1:0", "--state_dir=" + state_,
                                 "--search_budget=0"},
        log);
    const int port = server_->WaitForPort();
    ASSERT_NE(port, 0) << server_->Output();
    address_ = absl::StrCat("127.0.0.1:", port);
    channel_ = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  }

  // Uploads a model undisturbed and returns how long that takes here and now.
  milliseconds UploadWhole() {
    const auto begin = std::chrono::steady_clock::now();
    const int number = next_model_++;
    TestProcess upload({self, "--upload=" + address_, absl::StrCat("--number=", number)},
                       absl::StrCat(directory_, "/upload-", number));
    EXPECT_EQ(upload.Wait(), 0) << upload.Output();
    stored_.insert(number);
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
  }

  // Uploads models until the moment comes; records the outcome of each in stored_ or maybe_.
  void UploadUntilKilled(milliseconds moment, bool kill_server) {
    const auto end = std::chrono::steady_clock::now() + moment;
    bool killed = false;
    while (!killed) {
      const int number = next_model_++;
      TestProcess upload({self, "--upload=" + address_, absl::StrCat("--number=", number)},
                         absl::StrCat(directory_, "/upload-", number));
      std::string said;
      while (!absl::StrContains(said, "stored") && !killed) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        said = upload.Output();
        killed = std::chrono::steady_clock::now() >= end;
      }
      if (killed) {
        kill_server ? server_->Kill() : upload.Kill();
        upload.Kill();
        said = upload.Output();
      }
      if (absl::StrContains(said, "stored")) {
        stored_.insert(number);
      } else if (absl::StrContains(said, "commit")) {
        maybe_.insert(number);
      } else {
        gone_.insert(number);
      }
    }
  }

  std::map<std::string, v1::Model> List() {
    v1::ListModelsResponse reply;
    grpc::ClientContext context;
    const grpc::Status status =
        v1::ModelService::NewStub(channel_)->ListModels(&context, {}, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::map<std::string, v1::Model> models;
    for (const v1::Model& model : reply.models()) models[model.name()] = model;
    return models;
  }

  std::string TensorPath(const std::string& hash) const {
    const std::string hex = absl::BytesToHexString(hash);
    return state_ + "/tensors/" + hex.substr(0, 2) + "/" + hex.substr(2);
  }

  // Describes an inconsistency; empty if there is none.
  std::string Inconsistency() {
    const std::map<std::string, v1::Model> listed = List();
    std::set<std::string> expected_files, found_files;
    for (int number = 0; number < next_model_; ++number) {
      const bool is_listed = listed.contains(absl::StrCat("model-", number));
      if (stored_.contains(number) && !is_listed) return absl::StrCat("model ", number, " is lost");
      if (gone_.contains(number) && is_listed) {
        return absl::StrCat("model ", number, " is listed without a commit");
      }
      if (!is_listed) continue;
      for (const std::string& tensor : NumberedModel(number).tensors) {
        const std::string path = TensorPath(Sha256Of(tensor));
        std::ifstream file(path, std::ios::binary);
        const std::string found((std::istreambuf_iterator<char>(file)), {});
        if (found != tensor)
          return absl::StrCat("model ", number, ": ", path, " is not its tensor");
        expected_files.insert(path);
      }
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(state_ + "/tensors")) {
      if (entry.is_regular_file()) found_files.insert(entry.path());
    }
    if (found_files != expected_files) {
      return absl::StrCat(found_files.size(), " tensor files, ", expected_files.size(),
                          " expected");
    }
    return std::filesystem::is_empty(state_ + "/tmp") ? "" : "temporary files are left";
  }

  // Checks consistency. A surviving server needs time to notice that a client has gone, and may be
  // in the middle of a commit; a restarted one does not.
  void ExpectConsistent(bool at_once) {
    std::string found = Inconsistency();
    for (int i = 0; i < 6000 && !found.empty() && !at_once; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
      found = Inconsistency();
    }
    EXPECT_EQ(found, "");
  }

  // Checks that the model answers with its own weights.
  void ExpectAnswers(int number) {
    const NumberedModel model(number);
    inference::ModelInferRequest request;
    request.set_model_name(model.name);
    auto* input = request.add_inputs();
    input->set_name("x");
    input->set_datatype("FP32");
    input->add_shape(kElements);
    const std::vector<float> ones(kElements, 1);
    request.add_raw_input_contents(ones.data(), kElements * sizeof(float));
    inference::ModelInferResponse reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const grpc::Status status =
        inference::GRPCInferenceService::NewStub(channel_)->ModelInfer(&context, request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    std::vector<float> y(kElements), expected(kElements, 1);
    ASSERT_EQ(reply.raw_output_contents(0).size(), kElements * sizeof(float));
    std::memcpy(y.data(), reply.raw_output_contents(0).data(), kElements * sizeof(float));
    for (const std::string& tensor : model.tensors) {
      const auto* w = reinterpret_cast<const float*>(tensor.data());
      for (int64_t i = 0; i < kElements; ++i) expected[i] *= w[i];
    }
    EXPECT_EQ(y, expected);
  }

  std::string directory_, state_, address_;
  int starts_ = 0;
  int next_model_ = 0;
  std::unique_ptr<TestProcess> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::set<int> stored_, maybe_, gone_;
};

TEST_F(SteadyUploadsTest, KilledAtRandomMoments) {
  std::mt19937 random(seed);
  const milliseconds whole = UploadWhole();
  for (int moment = 0; moment < moments; ++moment) {
    const bool kill_server = moment % 2 == 1;
    // The moment falls into one of the next three uploads.
    const milliseconds after(random() % (3 * whole.count() + 1));
    SCOPED_TRACE(absl::StrCat("moment ", moment, ", seed ", seed, ": ",
                              kill_server ? "server" : "upload", " killed after ", after.count(),
                              " ms"));
    UploadUntilKilled(after, kill_server);
    if (kill_server) StartServer();
    ExpectConsistent(/*at_once=*/kill_server);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  if (!stored_.empty()) ExpectAnswers(*stored_.rbegin());
  std::printf("%d moments: %zu uploads acknowledged, %zu cut off at the commit, %zu before it\n",
              moments, stored_.size(), maybe_.size(), gone_.size());
  EXPECT_FALSE(stored_.empty());
  EXPECT_FALSE(gone_.empty() && maybe_.empty());
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  athanor::self = "/proc/self/exe";
  std::string upload;
  int number = 0;
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    bool known = false;
    if (absl::ConsumePrefix(&arg, "--upload=")) {
      upload = std::string(arg);
      known = true;
    } else if (absl::ConsumePrefix(&arg, "--number=")) {
      known = absl::SimpleAtoi(arg, &number);
    } else if (absl::ConsumePrefix(&arg, "--moments=")) {
      known = absl::SimpleAtoi(arg, &athanor::moments);
    } else if (absl::ConsumePrefix(&arg, "--seed=")) {
      known = absl::SimpleAtoi(arg, &athanor::seed);
    }
    if (!known) {
      std::fprintf(stderr, "unknown or wrong flag %s\n", argv[i]);
      return 2;
    }
  }
  if (!upload.empty()) return athanor::UploadMain(upload, number);
  return RUN_ALL_TESTS();
}
