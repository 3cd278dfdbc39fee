// Requests and a plan for tests of the queue: y[b] = 2 * x[b] in f32. The run returns an error if
// an x is negative, DEADLINE_EXCEEDED if one is infinite.
#ifndef ATHANOR_SERVER_BATCH_TESTING_H_
#define ATHANOR_SERVER_BATCH_TESTING_H_

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/batch/request_queue.h"

namespace athanor {

class DoublingRunner final : public PlanRunner {
 public:
  absl::StatusOr<std::unique_ptr<RunContext>> NewContext() override {
    return std::make_unique<Context>(&turns_);
  }
  absl::Status Run(RunContext& context, absl::Span<const int64_t> dims,
                   absl::Span<const std::string_view> inputs, absl::Span<const RunOutput> outputs,
                   const RunLimits& limits) override {
    context.EndTurn();
    {
      MutexLock lock(mu_);
      rows_.push_back(dims[0]);
    }
    for (int64_t i = 0; i < dims[0]; ++i) {
      float x = 0;
      std::memcpy(&x, inputs[0].data() + i * sizeof(x), sizeof(x));
      if (x < 0) return absl::InvalidArgumentError("x is negative");
      if (std::isinf(x)) return absl::DeadlineExceededError("x is infinite");
      x *= 2;
      for (const RunOutput& output : outputs) {
        std::memcpy(static_cast<char*>(output.data) + i * sizeof(x), &x, sizeof(x));
      }
    }
    return absl::OkStatus();
  }
  int64_t prepared_bytes() const override { return 0; }
  int64_t arena_bytes() const override { return 0; }
  int64_t EstimateMicroseconds(absl::Span<const int64_t>) const override { return 1; }
  bool TryTurn(RunContext& context) override {
    if (busy_) return false;
    static_cast<Context&>(context).has_turn = true;
    ++turns_;
    return true;
  }

  void SetBusy(bool busy) { busy_ = busy; }
  // Number of turns that have begun ahead of their runs.
  int turns() const { return turns_; }
  std::vector<int64_t> rows() const {
    MutexLock lock(mu_);
    return rows_;
  }

 private:
  struct Context final : RunContext {
    explicit Context(std::atomic<int>* turns) : turns(*turns) {}
    void EndTurn() override {
      if (std::exchange(has_turn, false)) --turns;
    }

    std::atomic<int>& turns;
    bool has_turn = false;
  };

  std::atomic<bool> busy_{false};
  std::atomic<int> turns_{0};
  mutable Mutex mu_;
  std::vector<int64_t> rows_ ABSL_GUARDED_BY(mu_);  // rows of each call
};

// With `max` > 0 the plan holds only min..max rows.
inline std::shared_ptr<const ServedPlan> DoublingPlan(int64_t contexts, int64_t min = 0,
                                                      int64_t max = 0) {
  auto plan = std::make_shared<ServedPlan>();
  if (max > 0) {
    plan->sizes = {{min, max}};
    plan->bucket = "b=" + std::to_string(min) + ".." + std::to_string(max);
  }
  plan->runner = std::make_shared<DoublingRunner>();
  plan->contexts = std::make_shared<ContextPool>(plan->runner, contexts);
  return plan;
}

class TestRequest final : public QueuedRequest {
 public:
  TestRequest(Ticket ticket, std::shared_ptr<const ServedPlan> plan, std::vector<float> x)
      : QueuedRequest(std::move(ticket)), plan_(std::move(plan)), x_(std::move(x)), y_(x_.size()) {
    input_ = {reinterpret_cast<const char*>(x_.data()), x_.size() * sizeof(float)};
    output_ = {0, y_.data(), static_cast<int64_t>(y_.size() * sizeof(float))};
  }

  bool Take() override { return !taken_.exchange(true); }
  std::shared_ptr<const ServedPlan> plan(absl::Span<const int64_t> dims) const override {
    return plan_of_ ? plan_of_(dims) : plan_;
  }
  absl::Status Begin() override { return begin_; }
  absl::Span<const std::string_view> inputs() const override { return {&input_, 1}; }
  absl::Span<const RunOutput> outputs() const override { return {&output_, 1}; }
  RunLimits limits() const override { return limits_; }
  void End(const ServedPlan& plan, const absl::Status& status, const RunTimes& times) override {
    MutexLock lock(mu_);
    bucket_ = plan.bucket;
    status_ = status;
    times_ = times;
    ended_.NotifyAll();
  }
  void Refuse(const absl::Status& status) override {
    MutexLock lock(mu_);
    status_ = status;
    ended_.NotifyAll();
  }

  // Sets a plan by the size of a call. Call it before the request is pushed.
  using PlanOf = std::function<std::shared_ptr<const ServedPlan>(absl::Span<const int64_t>)>;
  void SetPlanOf(PlanOf plan_of) { plan_of_ = std::move(plan_of); }
  // Returns the bucket of the plan that ran it.
  std::string bucket() const {
    MutexLock lock(mu_);
    return bucket_;
  }
  void SetDeadline(std::chrono::steady_clock::time_point deadline) { limits_.deadline = deadline; }
  void FailToBegin(absl::Status status) { begin_ = std::move(status); }
  absl::Status Await() {
    MutexLock lock(mu_);
    while (!status_) ended_.Wait(lock);
    return *status_;
  }
  RunTimes times() const {
    MutexLock lock(mu_);
    return times_;
  }
  const std::vector<float>& x() const { return x_; }
  const std::vector<float>& y() const { return y_; }

 private:
  const std::shared_ptr<const ServedPlan> plan_;
  const std::vector<float> x_;
  std::vector<float> y_;
  std::string_view input_;
  RunOutput output_;
  PlanOf plan_of_;
  absl::Status begin_;
  RunLimits limits_;
  std::atomic<bool> taken_{false};
  mutable Mutex mu_;
  CondVar ended_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
  RunTimes times_ ABSL_GUARDED_BY(mu_);
  std::string bucket_ ABSL_GUARDED_BY(mu_);
};

struct TestTicket {
  std::string model = "m";
  std::string client = "c";
  int64_t priority = 100;
  std::string group;
  int64_t most_rows = 8;
  int64_t predicted_us = 100;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

inline std::shared_ptr<TestRequest> NewRequest(const std::shared_ptr<const ServedPlan>& plan,
                                               std::vector<float> x, const TestTicket& like = {}) {
  Ticket ticket{.model = like.model,
                .client = like.client,
                .priority = like.priority,
                .dims = {static_cast<int64_t>(x.size())},
                .group = like.group,
                .predicted_us = like.predicted_us,
                .deadline = like.deadline};
  if (!like.group.empty()) {
    ticket.batching = std::make_shared<Batching>(Batching{
        .dim = 0, .most_rows = like.most_rows, .input_rows = {true}, .output_rows = {true}});
  }
  return std::make_shared<TestRequest>(std::move(ticket), plan, std::move(x));
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_TESTING_H_
