// Test fixture: a server without gRPC, with a model repository and the evaluator in place of the
// compiler.
#ifndef ATHANOR_SERVER_REPOSITORY_REPOSITORY_TESTING_H_
#define ATHANOR_SERVER_REPOSITORY_REPOSITORY_TESTING_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/repository/repository.h"
#include "server/testing/core_testing.h"

namespace athanor {

inline std::string LittleEndian(uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

// Returns what Graph.save writes.
inline std::string BundleOf(const TestModel& model) {
  const std::string graph = model.graph.SerializeAsString();
  std::string rows, data;
  for (const auto& [hash, bytes] : model.tensors) {
    rows += hash + LittleEndian(bytes.size());
    data += bytes;
  }
  return "ATHANOR1" + LittleEndian(graph.size()) + LittleEndian(model.tensors.size()) + rows +
         graph + data;
}

class RepositoryTest : public CoreTest {
 protected:
  void SetUp() override {
    options_.state_dir = FreshDirectory();
    folder_ = FreshDirectory();
    std::filesystem::create_directories(folder_);
    options_.model_repository = folder_;
    options_.repository_poll_ms = 20;
    options_.compile_workers = 2;
  }

  void Write(const std::string& path, const std::string& bytes) const {
    const std::filesystem::path whole = std::filesystem::path(folder_) / path;
    std::filesystem::create_directories(whole.parent_path());
    // Written aside and renamed: what is half-written is a case of its own.
    const std::filesystem::path aside = std::filesystem::path(folder_) / ".aside";
    std::ofstream(aside, std::ios::binary) << bytes;
    std::filesystem::rename(aside, whole);
  }
  void Remove(const std::string& path) const {
    std::filesystem::remove_all(std::filesystem::path(folder_) / path);
  }
  // y = x * w, of one element.
  void WriteScale(const std::string& version, float w) const {
    Write(version + "/model.athanor", BundleOf(ScaleModel({w})));
  }

  void Begin(const std::string& control = "none") {
    options_.model_control = control;
    core_.reset();
    core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
    Until([&] { return core_->serves(); });
  }
  template <typename Condition>
  static void Until(Condition holds) {
    while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  // Returns "m/1 READY" of each version, and "m/2 UNAVAILABLE" of what is not loaded.
  std::vector<std::string> Index() {
    std::vector<std::string> index;
    for (const auto& version : core_->registry().versions().List("")) {
      index.push_back(version->name() + "/" + std::to_string(version->version()) +
                      (version->plan() != nullptr ? " READY" : " LOADING"));
    }
    for (const UnavailableModel& model : core_->repository()->unavailable()) {
      index.push_back(model.name + "/" + model.version + " UNAVAILABLE");
    }
    std::sort(index.begin(), index.end());
    return index;
  }
  std::string ReasonOf(const std::string& name) const {
    for (const UnavailableModel& model : core_->repository()->unavailable()) {
      if (model.name == name) return model.reason;
    }
    return "it is not unavailable";
  }
  std::shared_ptr<ModelVersion> Find(const std::string& name, const std::string& version = "") {
    return core_->registry().versions().Find(name, version).value();
  }
  float Answer(const std::string& name, const std::string& version = "") {
    const std::shared_ptr<ModelVersion> found = Find(name, version);
    EXPECT_TRUE(Await(*found).ok());
    return Run(*found, 2).value();
  }
  absl::Status Ask(void (Repository::*call)(const std::string&, Repository::Done),
                   const std::string& name) {
    Mutex mu;
    CondVar told;
    std::optional<absl::Status> answer;
    (core_->repository()->*call)(name, [&](absl::Status status) {
      MutexLock lock(mu);
      answer = std::move(status);
      told.NotifyAll();
    });
    MutexLock lock(mu);
    while (!answer.has_value()) told.Wait(lock);
    return *answer;
  }
  absl::Status Load(const std::string& name) { return Ask(&Repository::Load, name); }
  absl::Status Unload(const std::string& name) { return Ask(&Repository::Unload, name); }

  std::string folder_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_REPOSITORY_REPOSITORY_TESTING_H_
