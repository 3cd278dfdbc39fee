#include "server/search/plan_cost.h"

#include <utility>

#include "compiler/frontend/expr_proto.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Plan TwoSteps() {
  v1::Plan plan;
  for (const char* name : {"b", "s"}) plan.add_dims()->set_name(name);
  plan.mutable_target()->set_l2_bytes(1'000);
  const Expr b = Expr::Symbol("b"), s = Expr::Symbol("s");
  v1::Step* step = plan.add_run();
  *step->mutable_flops() = ExprToProto(2 * b * s);
  *step->mutable_moved_bytes() = ExprToProto(4 * b * s + 8);
  step = plan.add_run();
  *step->mutable_flops() = ExprToProto(Expr(100'000));
  *step->mutable_moved_bytes() = ExprToProto(4'000 * b);
  return plan;
}

TEST(PlanCostTest, CountsAtASize) {
  const v1::PlanCost cost = CountCost(TwoSteps(), {3, 5});
  EXPECT_EQ(cost.size(), "b=3 s=5");
  ASSERT_EQ(cost.steps_size(), 2);
  EXPECT_EQ(cost.steps(0).flops(), 30);
  EXPECT_EQ(cost.steps(0).bytes(), 68);
  EXPECT_EQ(cost.steps(0).seconds(), 0);
  EXPECT_EQ(cost.steps(0).roofline_seconds(), 0);
  EXPECT_EQ(cost.steps(1).bytes(), 12'000);
}

TEST(PlanCostTest, TheNearerLimitBounds) {
  internal::MachineReply limits;
  limits.set_read_bytes_per_second(1e3);
  limits.set_cache_bytes_per_second(1e4);
  limits.set_f32_flops_per_second(1e3);
  const v1::PlanCost cost = CountCost(TwoSteps(), {3, 5}, limits);
  EXPECT_DOUBLE_EQ(cost.steps(0).roofline_seconds(), 30 / 1e3);  // operations; bytes are cached
  EXPECT_DOUBLE_EQ(cost.steps(1).roofline_seconds(), 100);
  limits.clear_cache_bytes_per_second();
  limits.set_f32_flops_per_second(1e9);
  const v1::PlanCost bound = CountCost(TwoSteps(), {100, 5}, limits);
  EXPECT_DOUBLE_EQ(bound.steps(1).roofline_seconds(), 400);
}

// 30 + 100,000 operations and 68 + 12,000 bytes, which no cache of 1,000 holds.
TEST(PlanCostTest, TheShareOfALimitThatARunReached) {
  internal::MachineReply limits;
  EXPECT_EQ(ReachedShare(TwoSteps(), {3, 5}, 1, limits), 0);  // none is known
  limits.set_read_bytes_per_second(12'068);
  limits.set_f32_flops_per_second(1e9);
  EXPECT_DOUBLE_EQ(ReachedShare(TwoSteps(), {3, 5}, 0.5, limits), 2);
  limits.set_f32_flops_per_second(100'030);
  EXPECT_DOUBLE_EQ(ReachedShare(TwoSteps(), {3, 5}, 0.25, limits), 4);
  v1::Plan cached = TwoSteps();
  cached.mutable_target()->set_l3_bytes(1 << 20);
  limits.set_f32_flops_per_second(1e9);
  EXPECT_LT(ReachedShare(cached, {3, 5}, 0.5, limits), 1e-3);
}

// Two buffers that share a place, never alive together, and one behind a gap.
TEST(PlanCostTest, ActivationsAreWhatARunTouchesOfItsArena) {
  v1::Plan plan = TwoSteps();
  const Expr b = Expr::Symbol("b");
  const std::pair<int64_t, Expr> arena[] = {{0, 64 * b}, {0, 16 * b}, {32, 64 * b}, {640, 8 * b}};
  for (const auto& [offset, bytes] : arena) {
    v1::Buffer* buffer = plan.add_buffers();
    buffer->set_kind(v1::Buffer::ARENA);
    buffer->set_arena_offset(offset);
    *buffer->mutable_bytes() = ExprToProto(bytes);
  }
  v1::Buffer* input = plan.add_buffers();
  input->set_kind(v1::Buffer::INPUT);
  *input->mutable_bytes() = ExprToProto(1000 * b);
  EXPECT_EQ(ActivationBytes(plan, {2, 5}), 32 + 128 + 16);
  EXPECT_EQ(ActivationBytes(plan, {1, 5}), 32 + 64 + 8);
}

TEST(PlanCostTest, WhatCannotBeReadCountsAsNothing) {
  v1::Plan plan = TwoSteps();
  plan.mutable_run(0)->mutable_flops()->mutable_terms(0)->add_factors();
  EXPECT_EQ(CountCost(plan, {3, 5}).steps(0).flops(), 0);
  EXPECT_EQ(CountCost(plan, {3}).steps(1).bytes(), 12'000);
}

}  // namespace
}  // namespace athanor
