#include "server/restore/warm_up.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Makes a version with y = relu(x), f32 [b, 4], b in [2, max].
std::shared_ptr<ModelVersion> Version(int64_t max) {
  ImportedGraph imported;
  imported.graph.dims = {{"b", 2, max}};
  GraphBuilder b(&imported.graph);
  NodeId x = b.Input("x", {DType::kF32, {Expr::Symbol("b"), 4}}).value();
  b.Output("y", b.Add(Op::kRelu, {x}).value());
  VersionRow row;
  row.name = "m";
  row.version = 1;
  return ModelVersion::Create(std::move(row), std::move(imported)).value();
}

// Records what it is asked to run.
class NotingRunner final : public PlanRunner {
 public:
  explicit NotingRunner(int64_t microseconds_per_row) : per_row_(microseconds_per_row) {}

  absl::StatusOr<std::unique_ptr<RunContext>> NewContext() override {
    return std::make_unique<RunContext>();
  }
  absl::Status Run(RunContext&, absl::Span<const int64_t> dims,
                   absl::Span<const std::string_view> inputs, absl::Span<const RunOutput> outputs,
                   const RunLimits& limits) override {
    rows.push_back(dims[0]);
    zeros = inputs[0] == std::string(inputs[0].size(), '\0');
    input_bytes = static_cast<int64_t>(inputs[0].size());
    output_bytes = outputs[0].bytes;
    deadline = limits.deadline;
    return status;
  }
  int64_t prepared_bytes() const override { return 0; }
  int64_t arena_bytes() const override { return 0; }
  int64_t EstimateMicroseconds(absl::Span<const int64_t> dims) const override {
    return dims[0] * per_row_;
  }

  std::vector<int64_t> rows;  // rows of each run
  bool zeros = false;
  int64_t input_bytes = 0, output_bytes = 0;
  steady_clock::time_point deadline;
  absl::Status status;

 private:
  const int64_t per_row_;
};

struct Case {
  explicit Case(int64_t microseconds_per_row)
      : runner(std::make_shared<NotingRunner>(microseconds_per_row)) {
    plan.runner = runner;
    plan.contexts = std::make_shared<ContextPool>(runner, 1);
    EXPECT_TRUE(plan.contexts->MakeFirst().ok());
  }

  std::shared_ptr<NotingRunner> runner;
  ServedPlan plan;
};

TEST(WarmUpTest, RunsOnceOnZerosAtTheLargestSizes) {
  Case c(1);
  const auto before = steady_clock::now();
  ASSERT_TRUE(WarmUp(*Version(64), c.plan).ok());
  EXPECT_THAT(c.runner->rows, ElementsAre(64));
  EXPECT_TRUE(c.runner->zeros);
  EXPECT_EQ(c.runner->input_bytes, 64 * 4 * 4);
  EXPECT_EQ(c.runner->output_bytes, 64 * 4 * 4);
  // A wrong estimate costs at most a second.
  EXPECT_GE(c.runner->deadline, before);
  EXPECT_LE(c.runner->deadline, steady_clock::now() + std::chrono::seconds(1));
}

TEST(WarmUpTest, RunsTheSmallestWhereTheLargestTakesLong) {
  Case c(10'000);  // 640 ms for 64 rows, 20 for 2
  ASSERT_TRUE(WarmUp(*Version(64), c.plan).ok());
  EXPECT_THAT(c.runner->rows, ElementsAre(2));
}

TEST(WarmUpTest, RunsTheSmallestWhereTheLargestIsLarge) {
  Case c(0);
  ASSERT_TRUE(WarmUp(*Version(int64_t{1} << 30), c.plan).ok());
  EXPECT_THAT(c.runner->rows, ElementsAre(2));
}

TEST(WarmUpTest, RunsNothingThatTakesLong) {
  Case c(100'000);
  ASSERT_TRUE(WarmUp(*Version(64), c.plan).ok());
  EXPECT_THAT(c.runner->rows, IsEmpty());
}

TEST(WarmUpTest, LeavesAPlanAloneThatSomebodyRuns) {
  Case c(1);
  ContextPool::Lease lease = c.plan.contexts->TryAcquire();
  ASSERT_TRUE(lease);
  ASSERT_TRUE(WarmUp(*Version(64), c.plan).ok());
  EXPECT_THAT(c.runner->rows, IsEmpty());
}

TEST(WarmUpTest, AFailedRunIsSaid) {
  Case c(1);
  c.runner->status = absl::DeadlineExceededError("it took long");
  EXPECT_EQ(WarmUp(*Version(64), c.plan), c.runner->status);
}

}  // namespace
}  // namespace athanor
