// Test fixture: the server without gRPC, so that ThreadSanitizer sees every lock.
#ifndef ATHANOR_SERVER_TESTING_CORE_TESTING_H_
#define ATHANOR_SERVER_TESTING_CORE_TESTING_H_

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/core/core.h"
#include "server/models/upload.h"
#include "server/testing/testing.h"

namespace athanor {

class CoreTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.state_dir = FreshDirectory();
    options_.compile_workers = 2;
    options_.contexts = 2;
    options_.tap_plans = 2;
    core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
  }

  std::shared_ptr<ModelVersion> Store(const std::string& name, const TestModel& model) {
    return Store(UploadMessages(name, model));
  }

  std::shared_ptr<ModelVersion> Store(const std::vector<v1::UploadModelRequest>& messages) {
    Upload upload(&core_->registry(), &core_->ledger(), core_->options());
    for (const auto& message : messages) {
      const absl::Status status = upload.Take(message);
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(upload.committed());
    return upload.version();
  }

  absl::Status Await(ModelVersion& version) { return Await(version.serving()); }

  // Waits until the slot has a plan or an error; returns its status.
  absl::Status Await(PlanSlot& slot) {
    Mutex mu;
    CondVar cv;
    std::optional<absl::Status> verdict;
    slot.WhenReady([&](absl::Status status) {
      MutexLock lock(mu);
      verdict = std::move(status);
      cv.NotifyAll();
    });
    MutexLock lock(mu);
    while (!verdict.has_value()) cv.Wait(lock);
    return *verdict;
  }

  // Runs a ScaleModel of one element: y = x * w.
  absl::StatusOr<float> Run(const ModelVersion& version, float x) {
    return Run(version.plan(), x, 0);
  }

  // Returns output `wanted` of a plan that takes one element.
  absl::StatusOr<float> Run(const std::shared_ptr<const ServedPlan>& plan, float x, int wanted) {
    if (plan == nullptr) return absl::NotFoundError("no plan");
    ContextPool::Lease lease;
    while (!(lease = plan->contexts->TryAcquire())) std::this_thread::yield();
    float y = 0;
    const std::string_view input(reinterpret_cast<const char*>(&x), sizeof(x));
    const RunOutput output{wanted, &y, sizeof(y)};
    const absl::Status status = plan->runner->Run(*lease, {}, {input}, {output}, {});
    return status.ok() ? absl::StatusOr<float>(y) : status;
  }

  ServerOptions options_;
  std::shared_ptr<TestControl> control_ = std::make_shared<TestControl>();
  std::unique_ptr<ServerCore> core_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TESTING_CORE_TESTING_H_
