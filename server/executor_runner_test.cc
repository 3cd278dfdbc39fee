#include "server/executor_runner.h"

#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/executor_testing.h"

namespace athanor {
namespace {

using Code = absl::StatusCode;

// What RowPlan takes and gives, by name.
Graph RowGraph() {
  Graph graph;
  graph.name = "rows";
  graph.dims = {{"b", 0, 64}};
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {Expr::Symbol("b"), Expr(8)}}).value();
  builder.Input("idx", {DType::kI64, {Expr::Symbol("b")}}).value();
  builder.Parameter("w", {DType::kF32, {Expr(8)}}).value();
  builder.Output("y", x);
  builder.Output("g", x);
  return graph;
}

std::shared_ptr<const MappedTensor> Weight(float value) {
  void* data = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < kWidth; ++i) StoreAt(data, i, value);
  return std::make_shared<const MappedTensor>(data, kWidth * sizeof(float), std::to_string(value));
}

class ExecutorRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<KernelObject> objects;
    for (absl::string_view object : RowPlanObjects()) {
      objects.push_back({.object = std::string(object)});
    }
    auto runner = ExecutorRunner::Load(RowGraph(), RowPlan(), objects, {Weight(2)}, device_.get(),
                                       nullptr, nullptr, traffic_.get());
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  absl::Status Run(RowCall& call, const RunLimits& limits = {}) {
    auto context = runner_->NewContext();
    if (!context.ok()) return context.status();
    const int64_t dims[] = {call.rows};
    const std::string_view inputs[] = {AsBytes(call.x), AsBytes(call.idx)};
    const RunOutput outputs[] = {{0, call.y.data(), Bytes(call.y)},
                                 {1, call.g.data(), Bytes(call.g)}};
    return runner_->Run(**context, dims, inputs, outputs, limits);
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
  std::shared_ptr<PlanRunner> runner_;
};

TEST_F(ExecutorRunnerTest, RunsThePlan) {
  RowCall call(5);
  ASSERT_TRUE(Run(call).ok());
  EXPECT_TRUE(call.Right(2));
}

TEST_F(ExecutorRunnerTest, PlansShareWeightsByContent) {
  v1::Plan plan = RowPlan();
  std::vector<KernelObject> objects;
  for (v1::Kernel& kernel : *plan.mutable_kernels()) {
    kernel.set_source_hash("hash " + kernel.name());
    objects.push_back({.object = kernel.name()});
  }
  PreparedPool pool(device_.get(), nullptr);
  PlanRunner::Prepared held;
  const auto load = [&](float w) {
    auto runner = ExecutorRunner::Load(RowGraph(), plan, objects, {Weight(w)}, device_.get(),
                                       nullptr, &pool, nullptr)
                      .value();
    runner->AddPrepared(&held);
    EXPECT_EQ(runner->prepared_bytes(), 128);
    return runner;
  };
  const auto first = load(2), second = load(2);
  EXPECT_EQ(held.size(), 2);  // the constant and the weight
  EXPECT_EQ(pool.bytes(), 128);
  const auto third = load(4);
  EXPECT_EQ(held.size(), 3);
  EXPECT_EQ(pool.bytes(), 192);
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

}  // namespace
}  // namespace athanor
