// The debug mode finds the step that goes wrong. Runs plans of a small model, right ones and ones
// with a fault in one kernel.
#include "server/tuner/check/step_check.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/plan_builder.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/search/kernels/fusion.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cpu/device.h"
#include "server/tuner/run/inputs.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr char kModel[] = R"(graph "g" { dim b in [1, 64] %0 = Input "x" : f32[b, 40]
  %1 = Parameter "w" : f32[40, 48] %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Tanh(%2)
  %4 = Parameter "v" : f32[48, 32] %5 = Contract(%3, %4) {spec="bk,kn->bn"}
  %6 = Softmax(%5) {axis=1} output "y" = %6 })";

class StepCheckTest : public TunerTest {
 protected:
  void SetUp() override {
    TunerTest::SetUp();
    if (HasFatalFailure()) return;
    auto graph = ParseGraph(kModel);
    ASSERT_TRUE(graph.ok()) << graph.status();
    auto prepared = Prepare(*graph);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    scheduled_ = {prepared->graph, ChooseKernels(prepared->graph, target_)};
    PackWeights(&scheduled_.graph, &scheduled_.genome, target_);
    auto built = PlanBuilder(target_).Build(scheduled_, {.kind = "test"});
    ASSERT_TRUE(built.ok()) << built.status();
    built_ = *std::move(built);
    auto device = CpuDevice::Create({.threads = 2, .pin = false});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  absl::Status Check(const BuiltPlan& built) {
    std::vector<std::string> objects;
    for (const v1::Kernel& kernel : built.plan.kernels()) {
      auto object = tuner_->Compile(kernel.source(), target_);
      if (!object.ok()) return object.status();
      objects.push_back(*std::move(object));
    }
    const std::vector<absl::string_view> views(objects.begin(), objects.end());
    const std::string dim = scheduled_.graph.dims[0].name;
    auto inputs = RandomInputs(scheduled_.graph, {{dim, 9}}, 5, IndexChoice::kAny);
    if (!inputs.ok()) return inputs.status();
    return CheckSteps({scheduled_.graph, built, views}, {9}, *inputs, device_.get());
  }

  // Adds a number to the first result of this step's kernel.
  BuiltPlan Faulty(const v1::Step& step) {
    BuiltPlan faulty = built_;
    v1::Kernel* kernel = faulty.plan.mutable_kernels(static_cast<int>(step.kernel()));
    kernel->set_source(absl::StrCat(
        absl::StrReplaceAll(kernel->source(),
                            {{"void athanor_kernel(", "static void right_kernel("}}),
        "\nvoid athanor_kernel(void* const* buffers, const i64* sizes, i64 begin, i64 end,"
        " void* scratch, struct KernelError* error) {"
        " right_kernel(buffers, sizes, begin, end, scratch, error);"
        " if (begin == 0) ((float*)buffers[0])[0] += 0.5f; }\n"));
    return faulty;
  }

  ScheduledGraph scheduled_;
  BuiltPlan built_;
  std::unique_ptr<CpuDevice> device_;
};

TEST_F(StepCheckTest, ARightPlanPassesEveryStep) {
  EXPECT_EQ(built_.nodes.size(), static_cast<size_t>(built_.plan.buffers_size()));
  EXPECT_TRUE(Check(built_).ok()) << Check(built_);
}

TEST_F(StepCheckTest, TheFirstWrongStepIsNamed) {
  const v1::Plan& plan = built_.plan;
  ASSERT_GE(plan.run_size(), 2);
  for (int s = 0; s < plan.run_size(); ++s) {
    const absl::Status status = Check(Faulty(plan.run(s)));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("step ", s + 1, " of ", plan.run_size(), " '",
                                       plan.run(s).label(), "', ")));
    EXPECT_THAT(std::string(status.message()), HasSubstr("off by"));
  }
}

TEST_F(StepCheckTest, WhatIsPreparedWrongIsNamedWhereItIsRead) {
  ASSERT_GE(built_.plan.prepare_size(), 1) << "this target packs no weights ahead";
  const absl::Status status = Check(Faulty(built_.plan.prepare(0)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(" as prepared: "));
}

}  // namespace
}  // namespace athanor
