#include "server/plans/tap_plans.h"

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// x, a = exp(x), b = sin(a), c = sqrt(b); output "tap1" = c
Graph Chain() {
  Graph graph;
  graph.dims = {{"n", 1, 8}};
  GraphBuilder builder(&graph);
  NodeId node = builder.Input("x", {DType::kF32, {Expr::Symbol("n")}}).value();
  node = builder.Add(Op::kExp, {node}, {}, "a").value();
  node = builder.Add(Op::kSin, {node}, {}, "b").value();
  builder.Output("tap1", builder.Add(Op::kSqrt, {node}, {}, "c").value());
  return graph;
}

class TapPlansTest : public testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<TapPlan>> Get(std::vector<NodeId> nodes, int64_t most = 2) {
    return taps_.Get(std::move(nodes), most, [&](const std::shared_ptr<TapPlan>& added) {
      started_.push_back(added->names);
      return start_;
    });
  }
  std::shared_ptr<TapPlan> Ready(std::vector<NodeId> nodes, int64_t most = 2) {
    std::shared_ptr<TapPlan> plan = Get(std::move(nodes), most).value();
    plan->plans.full().Set(std::make_shared<ServedPlan>());
    return plan;
  }

  const Graph graph_ = Chain();
  TapPlans taps_{graph_};
  absl::Status start_;
  std::vector<std::vector<std::string>> started_;
};

TEST_F(TapPlansTest, GraphsGetOutputsOfTheirOwnNames) {
  const Graph tapped = WithTaps(graph_, {1, 2});
  ASSERT_TRUE(Verify(tapped).ok());
  ASSERT_EQ(tapped.outputs.size(), 3u);
  EXPECT_EQ(tapped.outputs[0].name, "tap1");
  EXPECT_EQ(tapped.outputs[1].name, "tap0");
  EXPECT_EQ(tapped.outputs[1].node, 1);
  EXPECT_EQ(tapped.outputs[2].name, "tap1'");
  EXPECT_EQ(tapped.outputs[2].node, 2);
}

TEST_F(TapPlansTest, ShapesAreThoseOfOutputsThenTaps) {
  const TapPlan plan(graph_, {0, 2});
  EXPECT_EQ(plan.Describe(), "plan with taps \"x\", \"b\"");
  EXPECT_EQ(plan.shapes.name(0), "tap1");
  EXPECT_EQ(plan.shapes.name(2), "b");
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  ASSERT_TRUE(plan.shapes.Fill(2, {5}, &shape, &bytes).ok());
  EXPECT_THAT(shape, ElementsAre(5));
  EXPECT_EQ(bytes, 20);
}

TEST_F(TapPlansTest, EqualSetsShareOnePlan) {
  const std::shared_ptr<TapPlan> first = Get({0, 1}).value();
  EXPECT_EQ(Get({0, 1}).value(), first);
  EXPECT_NE(Get({0}).value(), first);
  EXPECT_THAT(started_, ElementsAre(ElementsAre("x", "a"), ElementsAre("x")));
}

TEST_F(TapPlansTest, TheOneUsedLongestAgoGivesWay) {
  const std::shared_ptr<TapPlan> zero = Ready({0}), one = Ready({1});
  EXPECT_EQ(Get({0}).value(), zero);
  Ready({2});
  EXPECT_EQ(Get({0}).value(), zero);
  // A dropped plan stays whole for its users.
  EXPECT_NE(one->plans.full().plan(), nullptr);
  EXPECT_NE(Get({1}).value(), one);
}

TEST_F(TapPlansTest, WhatIsBeingCompiledStays) {
  const std::shared_ptr<TapPlan> zero = Get({0}).value();
  const std::shared_ptr<TapPlan> one = Get({1}).value();
  const absl::Status refused = Get({2}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--tap_plans"));
  EXPECT_EQ(Get({0}).value(), zero);
  one->plans.full().Fail(absl::InternalError("kernel"));
  EXPECT_TRUE(Get({2}).ok());
  EXPECT_EQ(Get({0}).value(), zero);
}

TEST_F(TapPlansTest, WhatDoesNotStartCostsNothing) {
  const std::shared_ptr<TapPlan> zero = Ready({0}, 1);
  start_ = absl::ResourceExhaustedError("too many jobs");
  EXPECT_EQ(Get({1}, 1).status(), start_);
  EXPECT_EQ(Get({0}, 1).value(), zero);
  start_ = absl::OkStatus();
  EXPECT_TRUE(Get({1}, 1).ok());
}

TEST_F(TapPlansTest, FailuresAreForgottenOnRequest) {
  const std::shared_ptr<TapPlan> zero = Get({0}).value(), one = Ready({1});
  zero->plans.full().Fail(absl::InternalError("kernel"));
  EXPECT_EQ(Get({0}).value(), zero);
  taps_.ForgetFailed();
  EXPECT_NE(Get({0}).value(), zero);
  EXPECT_EQ(Get({1}).value(), one);
}

TEST_F(TapPlansTest, CloseAnswersThoseWhoWait) {
  const std::shared_ptr<TapPlan> zero = Get({0}).value(), one = Ready({1});
  absl::Status told;
  zero->plans.full().WhenReady([&](const absl::Status& status) { told = status; });
  taps_.Close(absl::NotFoundError("gone"));
  EXPECT_EQ(told, absl::NotFoundError("gone"));
  EXPECT_EQ(Get({2}).status(), absl::NotFoundError("gone"));
  EXPECT_EQ(one->plans.full().plan(), nullptr);
  EXPECT_FALSE(zero->plans.full().Set(std::make_shared<ServedPlan>()));
  zero->plans.full().Fail(absl::InternalError("kernel"));
  EXPECT_EQ(zero->plans.full().view().error, absl::NotFoundError("gone"));
}

TEST_F(TapPlansTest, AWaiterIsToldOnce) {
  PlanSlot slot;
  int told = 0, stopped = 0;
  const uint64_t id = slot.WhenReady([&](const absl::Status&) { ++stopped; });
  EXPECT_NE(slot.WhenReady([&](const absl::Status& s) { told += s.ok() ? 1 : 100; }), 0u);
  EXPECT_TRUE(slot.StopWaiting(id));
  EXPECT_FALSE(slot.StopWaiting(id));
  slot.Set(std::make_shared<ServedPlan>());
  slot.Set(std::make_shared<ServedPlan>());
  EXPECT_EQ(told, 1);
  EXPECT_EQ(stopped, 0);
  // A plan stays whatever later jobs come to.
  slot.SetJob("job-2", true);
  slot.Fail(absl::InternalError("kernel"));
  EXPECT_NE(slot.plan(), nullptr);
  EXPECT_EQ(slot.WhenReady([&](const absl::Status& s) { told += s.ok() ? 1 : 100; }), 0u);
  EXPECT_EQ(told, 2);
}

TEST_F(TapPlansTest, ManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> told = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto plan = taps_.Get({(t + i) % 4}, 4, [](const std::shared_ptr<TapPlan>& added) {
          added->plans.full().SetJob("job", false);
          return absl::OkStatus();
        });
        ASSERT_TRUE(plan.ok()) << plan.status();
        (*plan)->plans.full().WhenReady(
            [&](const absl::Status& status) { told += status.ok() ? 1 : 0; });
        (*plan)->plans.full().Set(std::make_shared<ServedPlan>());
        if (i % 50 == 0) taps_.ForgetFailed();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 800);
}

}  // namespace
}  // namespace athanor
