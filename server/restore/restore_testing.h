// Fixture of tests that end and start servers, with a scripted search and without gRPC.
#ifndef ATHANOR_SERVER_RESTORE_RESTORE_TESTING_H_
#define ATHANOR_SERVER_RESTORE_RESTORE_TESTING_H_

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/sha256.h"
#include "gtest/gtest.h"
#include "server/testing/search_testing.h"

namespace athanor {

class RestoreTest : public SearchTest {
 protected:
  void SetUp() override {
    cache_path_ = FreshDirectory() + "/cache.db";
    control_->RememberIn(cache_path_);
    SearchTest::SetUp();
  }

  // Ends and starts the server, as if the process had ended and come back.
  void Restart() {
    End();
    Create();
  }
  void End() {
    core_.reset();
    seen_ = control_->events().size();
  }
  void Create() { core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value(); }

  // Returns the events since the last end.
  std::vector<std::string> Events() const {
    std::vector<std::string> events = control_->events();
    events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(seen_));
    return events;
  }

  std::shared_ptr<ModelVersion> Find(const std::string& name) {
    return core_->registry().Find(name, "").value();
  }

  // Returns the job that the version names.
  std::shared_ptr<CompileJob> JobOf(ModelVersion& version) {
    return core_->workers().Find(version.serving().view().job_id).value();
  }

  // Returns the number of pin files for `plan_id`.
  int Pins(const std::string& plan_id) const {
    int files = 0;
    std::error_code none;
    for (const auto& entry :
         std::filesystem::directory_iterator(options_.state_dir + "/plans", none)) {
      files += absl::EndsWith(entry.path().string(), "-" + plan_id) ? 1 : 0;
    }
    return files;
  }
  std::string PinPath(const std::string& plan_id) const {
    for (const auto& entry : std::filesystem::directory_iterator(options_.state_dir + "/plans")) {
      if (absl::EndsWith(entry.path().string(), "-" + plan_id)) return entry.path();
    }
    return "";
  }

  // Returns quarantined entries as an operator sees them.
  std::vector<std::string> Quarantined() {
    std::vector<std::string> rows;
    const v1::CacheVerification found = control_->cache()->Verify(false).value();
    for (const auto& row : found.quarantined()) {
      rows.push_back(row.tier() + " " + row.about() + ": " + row.why());
    }
    return rows;
  }

  // Stores y = 3 x and searches until `plans` faster plans were found.
  void MakeSearched(int plans) {
    control_->Search({.plans = plans});
    const auto version = StoreScale("m", 3);
    ASSERT_EQ(AwaitEnd(*Start(version)).stop_reason(), Job::STOP_EXHAUSTED);
    ASSERT_EQ(ServedBy(*version), "found-" + std::to_string(plans));
  }

  void ForgetKernelOf(const std::string& plan_id) {
    v1::Kernel kernel;
    kernel.set_source(plan_id);
    const std::string key = absl::BytesToHexString(KernelKeyOf(kernel, control_->machine()).Hash());
    ASSERT_TRUE(control_->cache()
                    ->ExecuteForTest(absl::StrCat("DELETE FROM kernels WHERE key = x'", key, "'"))
                    .ok());
  }

  // Starts both jobs so that both wait for the one worker before either begins; compiles are held
  // until released.
  std::pair<std::shared_ptr<CompileJob>, std::shared_ptr<CompileJob>> StartBoth(
      const std::shared_ptr<ModelVersion>& one, const std::shared_ptr<ModelVersion>& two) {
    control_->HoldCompiles();
    const auto ahead = Start(Store("ahead", ScaleModel({1, 2})));
    std::pair jobs(Start(one), Start(two));
    core_->workers().Cancel(ahead, Job::STOP_CANCELLED);
    AwaitEnd(*ahead);
    return jobs;
  }

  // Returns the id that the test's backend gives the plan of a graph without dims.
  static std::string LoweredId(const std::shared_ptr<ModelVersion>& version) {
    return "p-" + Sha256Hex(CanonicalHash(version->graph())).substr(0, 16);
  }

  std::string cache_path_;
  size_t seen_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RESTORE_RESTORE_TESTING_H_
