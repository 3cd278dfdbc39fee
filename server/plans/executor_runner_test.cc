#include "server/plans/executor_runner.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/plans/executor_runner_testing.h"
#include "server/plans/served_plan.h"

namespace athanor {
namespace {

using Code = absl::StatusCode;

class ExecutorRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto runner = LoadRowPlan(2, device_.get(), {traffic_.get(), &turns_});
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  absl::Status Run(RowCall& call, const RunLimits& limits = {}) {
    auto context = runner_->NewContext();
    return context.ok() ? Run(**context, call, limits) : context.status();
  }
  absl::Status Run(RunContext& context, RowCall& call, const RunLimits& limits) {
    const int64_t dims[] = {call.rows};
    const std::string_view inputs[] = {AsBytes(call.x), AsBytes(call.idx)};
    const RunOutput outputs[] = {{0, call.y.data(), Bytes(call.y)},
                                 {1, call.g.data(), Bytes(call.g)}};
    return runner_->Run(context, dims, inputs, outputs, limits);
  }

  // Reports whether no turn has begun: then a step may.
  bool DeviceIsFree() {
    return turns_.Begin({Turns::Kind::kStep, this}, std::chrono::steady_clock::time_point()).ok();
  }

  template <typename T>
  static int64_t Bytes(const std::vector<T>& v) {
    return static_cast<int64_t>(v.size() * sizeof(T));
  }
  template <typename T>
  static std::string_view AsBytes(const std::vector<T>& v) {
    return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
  }

  const std::unique_ptr<FunctionDevice> device_ = FunctionDevice::Make(2);
  const std::unique_ptr<Traffic> traffic_ = Traffic::Create().value();
  const Searches searches_;
  Turns turns_{1, &searches_};
  std::shared_ptr<PlanRunner> runner_;
};

TEST_F(ExecutorRunnerTest, RunsThePlan) {
  RowCall call(5);
  ASSERT_TRUE(Run(call).ok());
  EXPECT_TRUE(call.Right(2));
}

// Runs take far less than the billions of operations that the plan claims.
TEST_F(ExecutorRunnerTest, RunsCorrectTheGuessAndNotWithoutBounds) {
  runner_ =
      LoadRowPlan(2, device_.get(), {traffic_.get(), &turns_}, int64_t{4'000'000'000}).value();
  const auto estimate = [&] {
    return static_cast<double>(runner_->EstimateMicroseconds(std::vector<int64_t>{64}));
  };
  const double guess = estimate();
  EXPECT_GE(guess, 1e6);
  RowCall call(5);
  const std::atomic<bool> cancelled = true;
  EXPECT_FALSE(Run(call, {.cancelled = &cancelled}).ok());
  EXPECT_EQ(estimate(), guess) << "it did not end";
  double before = guess;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(Run(call).ok());
    EXPECT_LT(estimate(), before);
    before = estimate();
  }
  EXPECT_GT(before, guess / 4);
  for (int i = 0; i < 90; ++i) ASSERT_TRUE(Run(call).ok());
  EXPECT_NEAR(estimate(), guess / 8, 1) << "other sizes may take longer";
}

TEST_F(ExecutorRunnerTest, LoadingIsNoRequest) { EXPECT_EQ(traffic_->Read(), TrafficState{}); }

TEST_F(ExecutorRunnerTest, EveryRunIsCountedAndNoneForEver) {
  RowCall call(5);
  EXPECT_TRUE(Run(call).ok());
  EXPECT_EQ(traffic_->Read(), (TrafficState{1, 0}));

  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(Run(call, {.cancelled = &cancelled}).code(), Code::kCancelled);
  EXPECT_EQ(traffic_->Read(), (TrafficState{2, 0}));

  EXPECT_EQ(Run(call, {.deadline = std::chrono::steady_clock::now()}).code(),
            Code::kDeadlineExceeded);
  EXPECT_EQ(traffic_->Read(), (TrafficState{3, 0}));

  call.idx[2] = kWidth;
  EXPECT_EQ(Run(call).code(), Code::kInvalidArgument);
  EXPECT_EQ(traffic_->Read(), (TrafficState{4, 0}));
}

TEST_F(ExecutorRunnerTest, RunsAtOnceAreCountedOneByOne) {
  constexpr int kThreads = 4, kRuns = 200;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRuns; ++i) {
        RowCall call(3);
        if (!Run(call).ok() || !call.Right(2)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(traffic_->Read(), (TrafficState{kThreads * kRuns, 0}));
}

// A run whose turn does not come in time is none.
TEST_F(ExecutorRunnerTest, RunsWaitForTheirTurn) {
  const Turns::Turn step{Turns::Kind::kStep, this};
  auto begun = turns_.Begin(step, std::chrono::steady_clock::time_point::max());
  ASSERT_TRUE(begun.ok());
  RowCall call(5);
  EXPECT_EQ(Run(call, {.deadline = std::chrono::steady_clock::now()}).code(),
            Code::kDeadlineExceeded);
  EXPECT_EQ(traffic_->Read(), TrafficState{});
  std::thread runner([&] { EXPECT_TRUE(Run(call).ok()); });
  while (turns_.waiting() == 0) std::this_thread::yield();
  EXPECT_EQ(traffic_->Read(), TrafficState{}) << "what waits leaves a gap to measure in";
  *begun = {};
  runner.join();
  EXPECT_TRUE(call.Right(2));
  EXPECT_EQ(traffic_->Read(), (TrafficState{1, 0}));
  EXPECT_TRUE(DeviceIsFree());
}

// A turn that began ahead goes to the run, or ends with the lease of its context.
TEST_F(ExecutorRunnerTest, ContextsKeepATurnForTheirRun) {
  const auto contexts = std::make_shared<ContextPool>(runner_, 2);
  RowCall call(5);
  ContextPool::Lease lease = contexts->TryRun();
  ASSERT_TRUE(lease);
  EXPECT_FALSE(DeviceIsFree());
  EXPECT_EQ(Run(*lease, call, {.deadline = std::chrono::steady_clock::now()}).code(),
            Code::kDeadlineExceeded);
  EXPECT_EQ(traffic_->Read(), (TrafficState{1, 0})) << "it began, and had no time left";
  EXPECT_TRUE(DeviceIsFree()) << "the turn is used";
  lease = {};
  lease = contexts->TryRun();
  ASSERT_TRUE(lease);
  EXPECT_FALSE(DeviceIsFree());
  lease = {};
  EXPECT_TRUE(DeviceIsFree()) << "nobody used the turn";

  auto begun = turns_.Begin({Turns::Kind::kStep, this}, std::chrono::steady_clock::time_point());
  ASSERT_TRUE(begun.ok());
  EXPECT_FALSE(contexts->TryRun());
  EXPECT_TRUE(contexts->TryAcquire()) << "contexts come back without a turn";
}

// Whatever a run returns, its turn ends.
TEST_F(ExecutorRunnerTest, FailedRunsEndTheirTurn) {
  RowCall call(5);
  call.idx[2] = kWidth;
  EXPECT_EQ(Run(call).code(), Code::kInvalidArgument);
  EXPECT_TRUE(DeviceIsFree());
}

}  // namespace
}  // namespace athanor
