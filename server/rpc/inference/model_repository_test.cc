// Tests loads and unloads of a model repository over gRPC.
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"
#include "server/testing/waiters_testing.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string LittleEndian(uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

// Writes y = x * w as a bundle.
void WriteScale(const std::string& version, const std::vector<float>& w) {
  const TestModel model = ScaleModel(w);
  const std::string graph = model.graph.SerializeAsString();
  fs::create_directories(version);
  std::ofstream file(version + "/.aside", std::ios::binary);
  file << "ATHANOR1" << LittleEndian(graph.size()) << LittleEndian(model.tensors.size());
  for (const auto& [hash, bytes] : model.tensors) file << hash << LittleEndian(bytes.size());
  file << graph;
  for (const auto& [hash, bytes] : model.tensors) file << bytes;
  file.close();
  fs::rename(version + "/.aside", version + "/model.athanor");  // another inode: a change is seen
}

class ModelRepositoryTest : public testing::Test {
 protected:
  static ServerOptions OptionsOf(const std::string& folder) {
    ServerOptions options;
    options.model_repository = folder;
    options.model_control = "explicit";
    return options;
  }
  grpc::Status Load(const std::string& name, const std::string& parameter = "") {
    grpc::ClientContext context;
    return Load(&context, name, parameter);
  }
  grpc::Status Load(grpc::ClientContext* context, const std::string& name,
                    const std::string& parameter = "") {
    inference::RepositoryModelLoadRequest request;
    request.set_model_name(name);
    if (!parameter.empty()) (*request.mutable_parameters())[parameter].set_string_param("{}");
    inference::RepositoryModelLoadResponse reply;
    return test_.inference_stub->RepositoryModelLoad(context, request, &reply);
  }
  grpc::Status Unload(const std::string& name) {
    inference::RepositoryModelUnloadRequest request;
    request.set_model_name(name);
    (*request.mutable_parameters())["unload_dependents"].set_bool_param(true);
    grpc::ClientContext context;
    inference::RepositoryModelUnloadResponse reply;
    return test_.inference_stub->RepositoryModelUnload(&context, request, &reply);
  }
  std::vector<std::string> Index(bool ready = false) {
    inference::RepositoryIndexRequest request;
    request.set_ready(ready);
    grpc::ClientContext context;
    inference::RepositoryIndexResponse reply;
    EXPECT_TRUE(test_.inference_stub->RepositoryIndex(&context, request, &reply).ok());
    std::vector<std::string> index;
    for (const auto& model : reply.models()) {
      index.push_back(model.name() + "/" + model.version() + " " + model.state());
    }
    return index;
  }

  const VersionTable& versions() { return test_.server->core().registry().versions(); }
  // Returns a model once it is stored, whether or not it serves.
  std::shared_ptr<ModelVersion> AwaitStored(const std::string& name) {
    while (!versions().Find(name, "").ok()) std::this_thread::yield();
    return versions().Find(name, "").value();
  }
  void AwaitNoCalls() {
    while (test_.server->core().active_calls() > 0) std::this_thread::yield();
  }

  const std::string folder_ = [] {
    const std::string folder = FreshDirectory();
    WriteScale(folder + "/m/7", {2, 3});
    fs::create_directories(folder + "/hollow");
    return folder;
  }();
  TestServer test_{OptionsOf(folder_)};
};

TEST_F(ModelRepositoryTest, LoadsAndUnloads) {
  while (!test_.server->core().serves()) std::this_thread::yield();
  EXPECT_THAT(Index(), ElementsAre("hollow/ UNAVAILABLE", "m/ UNAVAILABLE"));
  const grpc::Status loaded = Load("m");
  ASSERT_TRUE(loaded.ok()) << loaded.error_message();
  EXPECT_THAT(test_.Infer("m", {1, 1}), ElementsAre(2, 3));
  EXPECT_THAT(Index(true), ElementsAre("m/7 READY"));
  EXPECT_TRUE(Unload("m").ok());
  EXPECT_THAT(Index(true), ElementsAre());
}

TEST_F(ModelRepositoryTest, RefusalsSayWhy) {
  while (!test_.server->core().serves()) std::this_thread::yield();
  EXPECT_EQ(Load("none").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Unload("none").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Load("").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(Load("hollow").error_message(), HasSubstr("no folder of a version"));
  const grpc::Status config = Load("m", "config");
  EXPECT_EQ(config.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(config.error_message(), HasSubstr("what its folder holds"));
  const grpc::Status uploaded = test_.Send(UploadMessages("m", ScaleModel({1})));
  EXPECT_TRUE(uploaded.ok());  // while it is not loaded, the name is free
  EXPECT_THAT(Load("m").error_message(), HasSubstr("was uploaded"));
}

TEST_F(ModelRepositoryTest, ACallThatLeavesEndsAndItsLoadGoesOn) {
  while (!test_.server->core().serves()) std::this_thread::yield();
  test_.control->HoldCompiles();
  grpc::ClientContext cancelled, late;
  std::thread cancel([&] {
    AwaitWaiters(AwaitStored("m")->serving(), 2);  // the repository and the call
    cancelled.TryCancel();
  });
  EXPECT_EQ(Load(&cancelled, "m").error_code(), grpc::StatusCode::CANCELLED);
  cancel.join();
  AwaitNoCalls();
  late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(Load(&late, "m").error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  AwaitNoCalls();
  test_.control->ReleaseCompiles();
  EXPECT_THAT(test_.Infer("m", {1, 1}), ElementsAre(2, 3));
}

TEST_F(ModelRepositoryTest, CallsMayLeaveAtAnyMoment) {
  while (!test_.server->core().serves()) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    std::thread cancel([&] { context.TryCancel(); });
    (void)Load(&context, "m");
    cancel.join();
  }
  AwaitNoCalls();
  EXPECT_TRUE(Load("m").ok());
}

TEST_F(ModelRepositoryTest, NoCallFailsWhileVersionsChange) {
  while (!test_.server->core().serves()) std::this_thread::yield();
  ASSERT_TRUE(Load("m").ok());
  std::atomic<bool> done = false;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      while (!done) EXPECT_THAT(test_.Infer("m", {1, 1}), SizeIs(2));
    });
  }
  for (int i = 1; i <= 40; ++i) {
    // In place, and as another version.
    const std::string version = folder_ + "/m/" + std::to_string(i % 2 == 1 ? 6 + i : 5 + i);
    WriteScale(version, {static_cast<float>(i), 1});
    EXPECT_TRUE(Load("m").ok());
  }
  done = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_THAT(test_.Infer("m", {1, 1}), ElementsAre(40, 1));
}

}  // namespace
}  // namespace athanor
