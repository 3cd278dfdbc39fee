// Tests requests that share calls of a plan run by the runtime's executor.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/batch/batch_run.h"
#include "server/plans/executor_runner_testing.h"

namespace athanor {
namespace {

std::shared_ptr<const Batching> RowBatching() {
  return std::make_shared<Batching>(
      Batching{.dim = 0, .most_rows = 64, .input_rows = {true, true}, .output_rows = {true, true}});
}

class RowRequest final : public QueuedRequest {
 public:
  RowRequest(std::shared_ptr<const ServedPlan> plan, int64_t rows, float seed)
      : QueuedRequest(
            {.model = "m", .client = "c", .dims = {rows}, .group = "r", .batching = RowBatching()}),
        plan_(std::move(plan)),
        call(rows, seed) {
    inputs_ = {Bytes(call.x), Bytes(call.idx)};
    outputs_ = {{0, call.y.data(), static_cast<int64_t>(Bytes(call.y).size())},
                {1, call.g.data(), static_cast<int64_t>(Bytes(call.g).size())}};
  }

  bool Take() override { return !taken_.exchange(true); }
  std::shared_ptr<const ServedPlan> plan(absl::Span<const int64_t>) const override { return plan_; }
  absl::Status Begin() override { return absl::OkStatus(); }
  absl::Span<const std::string_view> inputs() const override { return inputs_; }
  absl::Span<const RunOutput> outputs() const override { return outputs_; }
  RunLimits limits() const override { return {}; }
  void End(const ServedPlan&, const absl::Status& status, const RunTimes& times) override {
    answer = status;
    rows = times.batch_rows;
  }
  void Refuse(const absl::Status& status) override { answer = status; }

 private:
  template <typename T>
  static std::string_view Bytes(const std::vector<T>& v) {
    return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
  }
  const std::shared_ptr<const ServedPlan> plan_;
  std::atomic<bool> taken_{false};
  std::vector<std::string_view> inputs_;
  std::vector<RunOutput> outputs_;

 public:  // read after the runners have ended
  RowCall call;
  absl::Status answer = absl::UnknownError("none");
  int64_t rows = 0;
};

class BatchExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto runner = LoadRowPlan(2, device_.get(), {.traffic = traffic_.get()});
    ASSERT_TRUE(runner.ok()) << runner.status();
    auto plan = std::make_shared<ServedPlan>();
    plan->runner = *std::move(runner);
    plan->contexts = std::make_shared<ContextPool>(plan->runner, 2);
    plan_ = std::move(plan);
  }

  // Creates a request; no two have the same rows.
  std::shared_ptr<RowRequest> New(int64_t rows) {
    return std::make_shared<RowRequest>(plan_, rows, static_cast<float>(seed_++));
  }
  std::shared_ptr<RowRequest> Push(int64_t rows) {
    std::shared_ptr<RowRequest> request = New(rows);
    queue_.Push(request);
    return request;
  }

  const std::unique_ptr<FunctionDevice> device_ = FunctionDevice::Make(2);
  const std::unique_ptr<Traffic> traffic_ = Traffic::Create().value();
  ServerLedger ledger_{1 << 20};
  RequestQueue queue_{{.threads = 2}};
  std::shared_ptr<const ServedPlan> plan_;
  std::atomic<int> seed_ = 0;
};

TEST_F(BatchExecutorTest, EachHasItsOwnRows) {
  std::vector<std::shared_ptr<RowRequest>> requests;
  for (const int64_t rows : {3, 0, 1, 17, 1, 40, 2}) requests.push_back(Push(rows));
  {
    Runners runners(&queue_, &ledger_, 1);
  }
  for (const auto& request : requests) {
    EXPECT_TRUE(request->answer.ok()) << request->answer;
    EXPECT_TRUE(request->call.Right(2));
    EXPECT_EQ(request->rows, 64);
  }
}

TEST_F(BatchExecutorTest, AWrongIndexIsAnsweredToWhoSentIt) {
  std::vector<std::shared_ptr<RowRequest>> requests;
  for (int i = 0; i < 16; ++i) {
    std::shared_ptr<RowRequest> request = New(2);
    if (i == 11) request->call.idx[1] = kWidth;
    queue_.Push(request);
    requests.push_back(std::move(request));
  }
  {
    Runners runners(&queue_, &ledger_, 1);
  }
  for (int i = 0; i < 16; ++i) {
    if (i == 11) {
      EXPECT_EQ(requests[i]->answer.code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    EXPECT_TRUE(requests[i]->answer.ok()) << requests[i]->answer;
    EXPECT_TRUE(requests[i]->call.Right(2));
  }
}

TEST_F(BatchExecutorTest, ManyThreadsAndRunners) {
  std::vector<std::vector<std::shared_ptr<RowRequest>>> requests(4);
  {
    Runners runners(&queue_, &ledger_, 2);
    std::vector<std::thread> clients;
    for (int t = 0; t < 4; ++t) {
      clients.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) requests[t].push_back(Push(i % 7));
      });
    }
    for (std::thread& client : clients) client.join();
  }
  for (const auto& one : requests) {
    for (const auto& request : one) {
      ASSERT_TRUE(request->answer.ok()) << request->answer;
      ASSERT_TRUE(request->call.Right(2));
      ASSERT_GE(request->rows, request->ticket().rows());
    }
  }
}

}  // namespace
}  // namespace athanor
