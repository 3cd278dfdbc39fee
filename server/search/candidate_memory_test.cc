#include "server/search/candidate_memory.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/child/search_kernel.h"
#include "server/search/kernel_maker.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CandidateMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = FreshFolder() + "/cache.db";
    machine_.mutable_target()->set_cpu("znver4");
    machine_.mutable_target()->set_threads(2);
    machine_.set_compiler_version("19.1.7");
    machine_.set_rule_set("rules");
    v1::Plan& plan = *kernel_.mutable_check()->mutable_plan();
    plan.set_plan_id("p-1");
    plan.add_kernels()->set_name("packs");
    plan.mutable_kernels(0)->set_source_hash("01");
    plan.add_kernels()->set_name("computes");
    plan.mutable_kernels(1)->set_source_hash("02");
    plan.add_run()->set_kernel(1);
    for (int64_t size : {1, 8}) kernel_.add_sizes()->add_values(size);
    kernel_.set_weight_bytes(1 << 20);
    *plan_.mutable_plan() = plan;
    plan_.mutable_plan()->set_plan_id("p-whole");
    plan_.add_sizes()->add_values(8);
    plan_.set_about("form 7: a_rule");
    graph_ = *ParseGraph(R"(graph "g" { %0 = Input "x" : f32[4] %1 = Tanh(%0) output "y" = %1 })");
    Reopen();
  }
  // As the next server has it.
  void Reopen() {
    cache_.reset();
    cache_ = Cache::Open({.path = path_}, [](absl::string_view) {});
  }
  CandidateMemory Memory() {
    return CandidateMemory(cache_.get(), &machine_, clocks_, graph_, options_);
  }
  CandidateMemory::Kernel Of() { return Memory().Of(kernel_, activations_); }
  std::optional<absl::StatusOr<std::vector<double>>> Find() { return Memory().Find(Of(), kernel_); }
  static TimingRow Row(std::vector<double> seconds, bool checked) {
    return {.seconds = seconds, .low = seconds, .high = seconds, .rounds = 9, .checked = checked};
  }
  // What is best so far takes as long at each size.
  void SetBest(double seconds) {
    kernel_.clear_best_seconds();
    for (int i = 0; i < kernel_.sizes_size(); ++i) kernel_.add_best_seconds(seconds);
  }

  std::string path_;
  std::unique_ptr<Cache> cache_;
  internal::TargetReply machine_;
  std::string clocks_ = "3 GHz";
  Graph graph_;
  PlanSearchOptions options_;
  internal::SearchKernel kernel_;
  internal::SearchPlan plan_;
  std::vector<int64_t> activations_ = {100, 800};
};

TEST_F(CandidateMemoryTest, ATimeIsAnothersOnlyWhereAllIsEqual) {
  EXPECT_FALSE(Find().has_value());
  Memory().Put(Of(), Row({1e-6, 2e-6}, true));
  Reopen();
  const auto found = Find();
  ASSERT_TRUE(found.has_value() && found->ok());
  EXPECT_THAT(**found, ElementsAre(1e-6, 2e-6));
  const std::vector<std::function<void()>> changes = {
      [&] { kernel_.mutable_check()->mutable_plan()->set_plan_id("p-2"); },
      [&] { kernel_.mutable_check()->mutable_plan()->mutable_kernels(1)->set_source_hash("03"); },
      [&] { kernel_.mutable_sizes(1)->set_values(0, 9); },
      [&] { kernel_.set_weight_bytes(7); },
      [&] { activations_[1] = 801; },
      [&] { machine_.mutable_target()->set_threads(4); },
      [&] { machine_.mutable_target()->set_cpu("znver5"); },
      [&] { machine_.mutable_target()->set_blas("OpenBLAS"); },
      [&] { machine_.set_compiler_version("20"); },
      [&] { machine_.set_driver("NVIDIA H100 PCIe, CUDA 13.0"); },
      [&] { clocks_ = "4 GHz"; }};
  const auto kernel = kernel_;
  const auto machine = machine_;
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i]();
    EXPECT_FALSE(Find().has_value()) << i;
    kernel_ = kernel;
    machine_ = machine;
    clocks_ = "3 GHz";
    activations_ = {100, 800};
    EXPECT_TRUE(Find().has_value()) << i;
  }
  // Neither matters to one kernel alone.
  options_.seed = 7;
  machine_.set_rule_set("others");
  EXPECT_TRUE(Find().has_value());
}

// Both are sm_90a.
TEST_F(CandidateMemoryTest, ChipsOfOneArchitectureShareNoTimes) {
  machine_.mutable_target()->set_cpu("sm_90a");
  machine_.set_driver("NVIDIA H100 PCIe, CUDA 13.0");
  internal::MachineReply limits;
  limits.set_read_bytes_per_second(2e12);
  limits.set_cache_bytes_per_second(4e12);
  limits.set_near_bytes_per_second(8e12);
  limits.set_f32_flops_per_second(5e13);
  Memory().Put(Of(), Row({1e-6, 2e-6}, true));
  Memory().PutLimits(limits);
  machine_.set_driver("NVIDIA H200, CUDA 13.0");
  Reopen();
  EXPECT_FALSE(Find().has_value());
  EXPECT_FALSE(Memory().FindLimits().has_value());
  machine_.set_driver("NVIDIA H100 PCIe, CUDA 13.0");
  EXPECT_TRUE(Find().has_value());
  EXPECT_TRUE(Memory().FindLimits().has_value());
}

TEST_F(CandidateMemoryTest, WhatWasNeverCheckedServesNowhere) {
  Memory().Put(Of(), Row({4e-6, 4e-6}, false));
  EXPECT_FALSE(Find().has_value());  // the first of its task
  SetBest(3e-6);
  EXPECT_TRUE(Find().has_value());
  SetBest(5e-6);
  EXPECT_FALSE(Find().has_value());
  Memory().Put(Of(), Row({4e-6, 4e-6}, true));
  EXPECT_TRUE(Find().has_value());
}

TEST_F(CandidateMemoryTest, KnowsTheMachineOfEqualTimes) {
  EXPECT_FALSE(Memory().FindLimits().has_value());
  EXPECT_FALSE(Memory().FlopsOfTimes().has_value());
  internal::MachineReply limits;
  limits.set_read_bytes_per_second(30e9);
  limits.set_cache_bytes_per_second(90e9);
  limits.set_near_bytes_per_second(200e9);
  limits.set_f32_flops_per_second(400e9);
  Memory().PutLimits(limits);
  Memory().PutFlopsOfTimes(350e9);
  Reopen();
  const auto found = Memory().FindLimits();
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->read_bytes_per_second(), 30e9, 1);
  EXPECT_NEAR(found->cache_bytes_per_second(), 90e9, 1);
  EXPECT_NEAR(found->near_bytes_per_second(), 200e9, 1);
  EXPECT_NEAR(found->f32_flops_per_second(), 400e9, 1);
  EXPECT_NEAR(Memory().FlopsOfTimes().value_or(0), 350e9, 1);
  // Another machine is another matter, and so are other clocks.
  machine_.mutable_target()->set_cpu("znver5");
  EXPECT_FALSE(Memory().FindLimits().has_value());
  EXPECT_FALSE(Memory().FlopsOfTimes().has_value());
  machine_.mutable_target()->clear_cpu();
  clocks_ = "4 GHz";
  EXPECT_FALSE(Memory().FindLimits().has_value());
  // Ignores numbers that are no limits.
  clocks_ = "3 GHz";
  limits.set_f32_flops_per_second(0);
  Memory().PutLimits(limits);
  EXPECT_FALSE(Memory().FindLimits().has_value());
  Memory().PutFlopsOfTimes(0);
  EXPECT_FALSE(Memory().FlopsOfTimes().has_value());
}

TEST_F(CandidateMemoryTest, SizesCountByTheirWeights) {
  SetBest(3e-6);
  EXPECT_TRUE(FasterThanBest({1e-6, 4e-6}, kernel_));
  for (double weight : {1.0, 9.0}) kernel_.add_size_weights(weight);
  EXPECT_FALSE(FasterThanBest({1e-6, 4e-6}, kernel_));
}

TEST_F(CandidateMemoryTest, AKernelThatFailsIsNotTriedAgain) {
  for (const FailureKind kind :
       {FailureKind::kCompile, FailureKind::kCheck, FailureKind::kMeasure}) {
    const std::string name(FailureKindName(kind));
    kernel_.mutable_check()->set_graph_text(name);  // another kernel each time
    kernel_.mutable_check()->mutable_plan()->set_plan_id(name);
    Memory().PutFailure(Of(), kind, absl::InternalError(name));
    Reopen();
    const auto found = Find();
    ASSERT_TRUE(found.has_value()) << name;
    EXPECT_EQ(found->status(), absl::InternalError(name));
    // Whether it is right does not hang on sizes; how it fares when it is measured does.
    kernel_.mutable_sizes(0)->set_values(0, 2);
    EXPECT_EQ(Find().has_value(), kind != FailureKind::kMeasure) << name;
    kernel_.mutable_sizes(0)->set_values(0, 1);
    machine_.set_compiler_version("20");
    EXPECT_FALSE(Find().has_value()) << name;
    machine_.set_compiler_version("19.1.7");
    // A library proposes by chip and driver.
    machine_.set_driver("NVIDIA H200, CUDA 13.0");
    EXPECT_FALSE(Find().has_value()) << name;
    machine_.clear_driver();
  }
}

TEST_F(CandidateMemoryTest, WhatIsNotTheCandidatesFaultIsForgotten) {
  for (const absl::Status& status :
       {absl::CancelledError("stop"), absl::AbortedError("no gaps"),
        absl::UnavailableError("no child"), absl::FailedPreconditionError("no baseline"),
        NamedKernel({}, absl::FailedPreconditionError("another version of the library")),
        NamedKernel({}, absl::UnavailableError("the worker was killed"))}) {
    for (const FailureKind kind : {FailureKind::kCompile, FailureKind::kMeasure}) {
      Memory().PutFailure(Of(), kind, status);
      Memory().PutFailure(plan_, {kind, status});
    }
    EXPECT_FALSE(Find().has_value()) << status;
    EXPECT_FALSE(Memory().FindFailure(plan_).has_value()) << status;
  }
}

TEST_F(CandidateMemoryTest, APlanThatFailsIsNotTriedAgain) {
  Memory().PutFailure(plan_, {FailureKind::kPlanCheck, absl::DataLossError("wrong")});
  Reopen();
  const auto found = Memory().FindFailure(plan_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->kind, FailureKind::kPlanCheck);
  EXPECT_EQ(found->status, absl::DataLossError("wrong"));
  PlanKey key;
  key.graph_hash = CanonicalHash(graph_);
  EXPECT_THAT(cache_->Explain(key).steps(),
              ::testing::Contains(HasSubstr("plan p-whole of form 7: a_rule: plan_check")));
  const std::vector<std::function<void()>> changes = {
      [&] { plan_.mutable_plan()->set_plan_id("p-other"); },
      [&] { plan_.mutable_sizes(0)->set_values(0, 9); },
      [&] { options_.seed = 7; },
      [&] { options_.approximate = true; },
      [&] { machine_.set_rule_set("others"); },
      [&] { machine_.mutable_target()->set_threads(4); }};
  const auto plan = plan_;
  const auto machine = machine_;
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i]();
    EXPECT_FALSE(Memory().FindFailure(plan_).has_value()) << i;
    plan_ = plan;
    machine_ = machine;
    options_ = {};
  }
}

}  // namespace
}  // namespace athanor
