// Measures and checks a plan whose weight is larger than a check or a measurement may hold in
// memory, with a real tuner process: values are compared as usual, in less memory than the weight
// has.
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_replace.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/memory_watch.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// 213 MB in f32, 426 MB in f64, packed by `prepare`.
constexpr char kModel[] = R"(graph "g" { dim b in [1, 4]
  %0 = Input "x" : f32[b, 1024] %1 = Parameter "w" : f32[1024, 52000]
  %2 = Contract(%0, %1) {spec="bk,kn->bn"}
  %3 = Constant {value=f32[] {1.25}} %4 = IndexMap(%3) {map=map[b, 52000]()}
  %5 = Mul(%2, %4) output "y" = %5 })";
constexpr int64_t kWeight = int64_t{4} * 1024 * 52'000;
// Limits on memory beyond what the child held before: a measurement walks through the weight, a
// check holds only small tensors.
constexpr int64_t kMostMeasured = int64_t{140} << 20, kMostChecked = int64_t{60} << 20;

class LargeWeightsTest : public TunerTest {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("TEST_TMPDIR");
    ASSERT_NE(folder, nullptr);
    // Limits the address space, as a server's may be: kernel processes then map memory without
    // setting a limit of their own, which would end them.
    const rlimit addresses{uint64_t{64} << 30, uint64_t{64} << 30};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &addresses), 0);
    TunerOptions options;
    options.binary = "server/athanor-tuner";
    options.scratch_folder = folder;
    auto tuner = TunerProcess::Start(options);
    ASSERT_TRUE(tuner.ok()) << tuner.status();
    tuner_ = *std::move(tuner);
    auto machine = tuner_->Target();
    ASSERT_TRUE(machine.ok()) << machine.status();
    target_ = machine->target();
    target_.set_threads(2);
  }

  internal::MeasuredPlan PlanOf(const std::string& text, bool exact = false) {
    internal::MeasuredPlan plan;
    auto lowered = tuner_->Lower(*ParseGraph(text), target_, exact);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    if (!lowered.ok()) return plan;
    *plan.mutable_plan() = std::move(*lowered->mutable_plan());
    for (const v1::Kernel& kernel : plan.plan().kernels()) {
      auto object = tuner_->Compile(kernel.source(), target_);
      EXPECT_TRUE(object.ok()) << object.status();
      plan.add_objects(*std::move(object));
    }
    return plan;
  }
};

TEST_F(LargeWeightsTest, PlansAreMeasuredInLittleMemory) {
  internal::MeasureRequest request;
  request.set_graph_text(kModel);
  request.set_threads(2);
  request.add_sizes()->add_values(1);
  for (int i = 0; i < 2; ++i) *request.add_plans() = PlanOf(kModel);
  ASSERT_GT(request.plans(0).plan().prepare_size(), 0);
  const int64_t before = HeldBelow(tuner_->pid());
  ASSERT_GT(before, 0);
  MemoryWatch watch(tuner_->pid());
  const auto reply = tuner_->Measure(request);
  const int64_t peak = watch.Stop();
  ASSERT_TRUE(reply.ok()) << reply.status();
  for (const internal::PlanTimes& plan : reply->plans()) EXPECT_GT(plan.sizes(0).seconds(), 0);
  EXPECT_LT(peak - before, kMostMeasured);
  EXPECT_LT(kMostMeasured, kWeight);
}

// TEST_TMPDIR must lie on a disk: scratch files do not work on a file system in memory.
TEST_F(LargeWeightsTest, PlansAreCheckedInF64InLittleMemory) {
  internal::PlanCheckRequest request;
  request.set_graph_text(kModel);
  request.set_seed(3);
  request.set_threads(2);
  *request.mutable_candidate() = *request.mutable_baseline() = PlanOf(kModel);
  *request.mutable_exact() = PlanOf(kModel, /*exact=*/true);
  request.add_sizes()->add_values(1);
  request.add_sizes()->add_values(4);
  const int64_t before = HeldBelow(tuner_->pid());
  MemoryWatch watch(tuner_->pid());
  const auto reply = tuner_->CheckPlan(request);
  const int64_t peak = watch.Stop();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->compared_with(), "f64 plan");
  EXPECT_GE(reply->elements(), 5 * 52'000);
  EXPECT_LT(peak - before, kMostChecked);
  EXPECT_LT(HeldBelow(tuner_->pid()) - before, kMostChecked / 2);

  // A candidate that computes something else is still found.
  *request.mutable_candidate() = PlanOf(absl::StrReplaceAll(kModel, {{"1.25", "1.2505"}}));
  const absl::Status wrong = tuner_->CheckPlan(request).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kDataLoss) << wrong;
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("output \"y\""));
}

TEST_F(LargeWeightsTest, KernelsThatPackThemAreCheckedInLittleMemory) {
  auto lowered = tuner_->Lower(*ParseGraph(kModel), target_);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_GT(lowered->checks_size(), 0);
  const internal::MeasuredPlan plan = PlanOf(kModel);
  for (internal::KernelCheck& check : *lowered->mutable_checks()) {
    internal::CheckRequest& request = *check.mutable_request();
    for (const v1::Kernel& kernel : request.plan().kernels()) {
      auto object = tuner_->Compile(kernel.source(), target_);
      ASSERT_TRUE(object.ok()) << object.status();
      request.add_objects(*std::move(object));
    }
    const int64_t before = HeldBelow(tuner_->pid());
    MemoryWatch watch(tuner_->pid());
    const absl::Status checked = tuner_->Check(request);
    EXPECT_LT(watch.Stop() - before, kMostChecked);
    EXPECT_TRUE(checked.ok()) << checked;
  }
}

}  // namespace
}  // namespace athanor
