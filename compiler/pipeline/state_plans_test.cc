// Plans and checks of graphs that write states.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/canonical.h"
#include "compiler/pipeline/golden_testing.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/prepare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two states; the second one's rows follow from the first one's.
constexpr char kGraph[] = R"(graph "g" {
  dim rows in [1, 64]
  dim groups in [1, 4096]
  %0 = Input "slot" : i32[rows]
  %1 = Input "x" : f32[rows, 2, 8]
  %2 = StateRead "old keys" {role="keys"} : f32[16*groups, 2, 8]
  %3 = StateRead "values" {role="values"} : f32[16*groups, 2, 8]
  %4 = Exp(%1)
  %5 = StateWrite(%2, %0, %4)
  %6 = Gather(%5, %0) {axis=0}
  %7 = Tanh(%6)
  %8 = StateWrite(%3, %0, %7)
  %9 = Gather(%8, %0) {axis=0}
  output "y" = %9
  update %5
  update %8
})";

// Returns by state of the plan, in the order of the buffers: name and layout.
std::vector<std::string> StatesOf(const v1::Plan& plan) {
  std::vector<std::string> states;
  for (const v1::Buffer& b : plan.buffers()) {
    if (b.kind() == v1::Buffer::STATE) states.push_back(absl::StrCat(b.name(), ": ", b.layout()));
  }
  return states;
}

// Returns the steps as "written <- read, read", by the names of buffers that have one.
std::vector<std::string> StepsOf(const v1::Plan& plan) {
  std::vector<std::string> steps;
  for (const v1::Step& step : plan.run()) {
    std::string text;
    for (int b = 0; b < step.buffers_size(); ++b) {
      const std::string& name = plan.buffers(static_cast<int>(step.buffers(b))).name();
      absl::StrAppend(&text, b == 1 ? " <- " : b > 1 ? ", " : "", name.empty() ? "-" : name);
    }
    steps.push_back(std::move(text));
  }
  return steps;
}

TEST(StatePlansTest, AStateIsOneBufferThatStepsWriteAndRead) {
  const Graph graph = ParseGraph(kGraph).value();
  const absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(graph, GoldenTarget());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->format(), 5u);
  EXPECT_EQ(plan->graph_hash(), CanonicalHash(graph));
  EXPECT_THAT(StatesOf(*plan), ElementsAre("old keys: keys16", "values: values16"));
  EXPECT_THAT(StepsOf(*plan),
              ElementsAre("old keys <- slot, x", "values <- slot, old keys", "y <- slot, values"));
  EXPECT_EQ(plan->prepare_size(), 0);
}

TEST(StatePlansTest, APlainPlanHasTheSameStates) {
  const absl::StatusOr<CheckedPlan> plain =
      BuildCheckedBaselinePlan(ParseGraph(kGraph).value(), GoldenTarget(), /*plain=*/true);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(StatesOf(plain->plan), ElementsAre("old keys: keys16", "values: values16"));
  EXPECT_GT(plain->plan.run_size(), 3);
}

// The check of a write has no output: it is of the state.
TEST(StatePlansTest, ChecksNameTheStatesOfTheirKernels) {
  const absl::StatusOr<CheckedPlan> checked =
      BuildCheckedBaselinePlan(ParseGraph(kGraph).value(), GoldenTarget());
  ASSERT_TRUE(checked.ok()) << checked.status();
  ASSERT_EQ(checked->checks.size(), 3u);
  int writes = 0;
  for (const internal::KernelCheck& check : checked->checks) {
    const v1::Plan& plan = check.request().plan();
    const absl::StatusOr<Graph> task = ParseGraph(check.request().graph_text());
    ASSERT_TRUE(task.ok()) << task.status();
    ASSERT_EQ(task->outputs.size(), 1u);
    const bool write = !task->updates.empty();
    writes += write ? 1 : 0;
    EXPECT_EQ(plan.outputs_size(), write ? 0 : 1) << check.request().graph_text();
    EXPECT_EQ(StatesOf(plan).size(), task->StateIds().size());
    EXPECT_GT(check.request().sizes_size(), 0);
  }
  EXPECT_EQ(writes, 2);
}

TEST(StatePlansTest, PrepareKeepsNamesOfStates) {
  const Graph graph = ParseGraph(kGraph).value();
  for (const bool plain : {false, true}) {
    const absl::StatusOr<Prepared> prepared = Prepare(graph, plain);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    EXPECT_TRUE(Verify(prepared->graph).ok()) << Verify(prepared->graph);
    std::vector<std::string> names;
    for (const NodeId s : prepared->graph.StateIds()) names.push_back(prepared->graph.node(s).name);
    EXPECT_THAT(names, ElementsAre("old keys", "values"));
    EXPECT_EQ(prepared->graph.updates.size(), 2u);
  }
}

// Runs copy nothing out of a state.
TEST(StatePlansTest, AStateIsNoOutput) {
  const Graph graph = ParseGraph(R"(graph "g" { dim t in [1, 8]
    %0 = Input "x" : f32[t, 4] %1 = Input "i" : i32[t] %2 = StateRead "kv" : f32[64, 4]
    %3 = StateWrite(%2, %1, %0) output "y" = %3 update %3 })")
                          .value();
  const absl::Status status = BuildBaselinePlan(graph, GoldenTarget()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("output \"y\" is the state \"kv\""));
}

}  // namespace
}  // namespace athanor
