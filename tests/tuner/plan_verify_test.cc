// A search finds plans that are faster but wrong: each is rejected with its reason before it
// serves, and the search goes on to the right one (lying_tuner.cc).
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/cache/cache.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/child/tuner_process.h"
#include "server/search/kernel_maker.h"
#include "server/search/machine_limits.h"
#include "server/search/plan_verifier.h"
#include "server/search/tuner_plan_search.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] = R"(graph "g" { dim b in [1, 64]
  %0 = Input "x" : f32[b, 32] %1 = Constant {value=f32[] {2.0}} %2 = IndexMap(%1) {map=map[b, 32]()}
  %3 = Mul(%0, %2) %4 = Tanh(%3) output "y" = %4 })";

constexpr char kNear[] = R"(graph "near" { dim b in [1, 64]
  %0 = Input "x" : f32[b, 32] %1 = Tanh(%0) output "y" = %1 })";

class PlanVerifyTest : public TunerTest {
 protected:
  void SetUp() override {
    StartTuner("tests/tuner/lying_tuner");
    cache_ = Cache::Open({.path = ""}, [](absl::string_view) {});
  }

  KernelMaker Maker() { return KernelMaker(cache_.get(), tuner_.get(), machine_); }

  // Returns a serving plan that is right, and so slow that every other plan is faster.
  CompiledPlan Slow(const Graph& graph) {
    CompiledPlan slow;
    auto lowered = tuner_->Lower(graph, machine_.target());
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    slow.plan = lowered->plan();
    for (v1::Kernel& kernel : *slow.plan.mutable_kernels()) {
      kernel.set_source(absl::StrCat(
          absl::StrReplaceAll(kernel.source(),
                              {{"void athanor_kernel(", "static void right_kernel("}}),
          "\nvoid athanor_kernel(void* const* buffers, const i64* sizes, i64 begin, i64 end,"
          " void* scratch, struct KernelError* error) {"
          " for (volatile i64 n = 0; n < 300000; ++n) {}"
          " right_kernel(buffers, sizes, begin, end, scratch, error); }\n"));
      auto object = Maker().Compile(kernel);
      EXPECT_TRUE(object.ok()) << object.status();
      slow.objects.push_back(*std::move(object));
    }
    return slow;
  }

  std::unique_ptr<Cache> cache_;
};

TEST_F(PlanVerifyTest, OnlyTheRightPlanIsFound) {
  const Graph graph = *ParseGraph(kModel);
  MachineLimits limits{internal::MachineReply()};
  TunerPlanSearch search(1, graph, Slow(graph), Maker(), tuner_.get(), machine_, &limits, {});
  std::string found;
  bool stopped = false;
  for (int steps = 0; steps < 500 && !stopped; ++steps) {
    auto step = search.Next();
    ASSERT_TRUE(step.ok()) << step.status();
    stopped = step->stop.has_value();
    if (!step->found) continue;
    EXPECT_EQ(found, "") << "also found " << step->found->plan.plan_id();
    found = step->found->plan.plan_id();
    search.Taken(absl::OkStatus());
  }
  EXPECT_TRUE(stopped);
  EXPECT_EQ(found, "p-right");
  EXPECT_EQ(search.progress().plans_measured(), 4);
  EXPECT_EQ(search.progress().plans_taken(), 1);
  EXPECT_EQ(search.progress().plans_failed(), 3);
  EXPECT_EQ(tuner_->starts(), 3);  // the plan that ends the tuner is checked twice

  std::map<std::string, v1::SearchFailure> failures;  // keyed by plan
  for (const v1::SearchFailure& f : search.progress().failures()) failures[f.plan_id()] = f;
  ASSERT_EQ(failures.size(), 3);
  const v1::SearchFailure& scaled = failures["p-scaled"];
  EXPECT_EQ(scaled.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(scaled.about(), HasSubstr("plan of form 7: a_rule, with "));
  EXPECT_THAT(scaled.message(), AllOf(HasSubstr("output \"y\" at b="), HasSubstr("error is"),
                                      HasSubstr("the baseline")));
  const v1::SearchFailure& special = failures["p-special"];
  EXPECT_EQ(special.code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_THAT(special.message(), HasSubstr("SIGILL"));
  const v1::SearchFailure& lost = failures["p-lost"];
  EXPECT_EQ(lost.code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_THAT(lost.message(), HasSubstr("checking a plan"));
}

// A plan that failed is not tried again by the next search on the same cache.
TEST_F(PlanVerifyTest, WhatFailedIsNotTriedAgain) {
  const std::string path = FreshFolder() + "/cache.db";
  const Graph graph = *ParseGraph(kModel);
  for (const bool again : {false, true}) {
    cache_ =
        Cache::Open({.path = path}, [](absl::string_view) {});  // opened as another server does
    const int64_t starts = tuner_->starts();
    MachineLimits limits{internal::MachineReply()};
    TunerPlanSearch search(again ? 2 : 1, graph, Slow(graph), Maker(), tuner_.get(), machine_,
                           &limits, {});
    std::string found;
    for (int steps = 0; steps < 500; ++steps) {
      auto step = search.Next();
      ASSERT_TRUE(step.ok()) << step.status();
      if (step->stop) break;
      if (!step->found) continue;
      found = step->found->plan.plan_id();
      search.Taken(absl::OkStatus());
    }
    EXPECT_EQ(found, "p-right");
    const v1::SearchProgress& progress = search.progress();
    EXPECT_EQ(progress.plans_measured(), again ? 1 : 4);
    EXPECT_EQ(progress.plans_failed(), 3);
    EXPECT_EQ(progress.failures_from_cache(), again ? 3 : 0);
    ASSERT_EQ(progress.failures_size(), 3);
    for (const v1::SearchFailure& failure : progress.failures()) {
      EXPECT_EQ(failure.from_cache(), again);
      const bool wrong = failure.plan_id() == "p-scaled";
      EXPECT_EQ(failure.code(), static_cast<int>(wrong ? absl::StatusCode::kDataLoss
                                                       : absl::StatusCode::kInternal));
    }
    if (again) EXPECT_EQ(tuner_->starts(), starts);  // "p-lost" ends no child any more
  }
}

// The reference plan is made like any baseline: plain if one of its kernels is wrong.
TEST_F(PlanVerifyTest, AReferenceWhoseKernelIsWrongIsMadePlain) {
  for (const bool plain_helps : {true, false}) {
    Graph graph = *ParseGraph(kModel);
    graph.name = plain_helps ? "wrong unless plain" : "wrong";
    for (const uint64_t session : {1, 2}) {
      MachineLimits limits{internal::MachineReply()};
      TunerPlanSearch search(session, graph, Slow(graph), Maker(), tuner_.get(), machine_, &limits,
                             {});
      std::string found;
      for (int steps = 0; steps < 500; ++steps) {
        auto step = search.Next();
        ASSERT_TRUE(step.ok()) << step.status();
        if (step->stop) break;
        if (!step->found) continue;
        found = step->found->plan.plan_id();
        search.Taken(absl::OkStatus());
      }
      EXPECT_EQ(found, plain_helps ? "p-right" : "");
      const v1::SearchProgress& progress = search.progress();
      EXPECT_EQ(progress.plans_failed(), plain_helps ? 3 : 4);
      if (plain_helps) break;
      // These plans were not at fault, so the next search tries them again.
      EXPECT_EQ(progress.failures_from_cache(), 0);
      EXPECT_EQ(progress.plans_measured(), 4);
      for (const v1::SearchFailure& failure : progress.failures()) {
        EXPECT_EQ(failure.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
        EXPECT_THAT(failure.message(), HasSubstr("no baseline to compare with"));
      }
    }
  }
}

TEST_F(PlanVerifyTest, ACheckThatWasCutShortIsAskedForAgain) {
  Graph graph = *ParseGraph(kModel);
  graph.name = "late and wrong";
  const CompiledPlan plan = Slow(graph);
  PlanVerifier verifier(graph, Maker(), tuner_.get(), target_, /*seed=*/1, /*approximate=*/false);
  int cut_short = 0;
  for (bool prepared = false; !prepared;) {
    const absl::StatusOr<bool> done = verifier.Prepare();
    if (!done.ok()) {
      ASSERT_EQ(done.status().code(), absl::StatusCode::kAborted) << done.status();
      ++cut_short;
    }
    prepared = done.ok() && *done;
  }
  EXPECT_GE(cut_short, 2);
  google::protobuf::RepeatedPtrField<internal::Sizes> sizes;
  sizes.Add()->add_values(3);
  EXPECT_EQ(verifier.Verify(plan, sizes).code(), absl::StatusCode::kFailedPrecondition);
}

// Covers a search near limits that were measured too low, and one near limits that hold.
TEST_F(PlanVerifyTest, AStopAtTheRooflineIsForLimitsThatHold) {
  const struct {
    double known;
    v1::CompileJob::StopReason stop;
  } rows[] = {{1e3, v1::CompileJob::STOP_EXHAUSTED}, {1e18, v1::CompileJob::STOP_ROOFLINE}};
  for (const auto& row : rows) {
    internal::MachineReply known;
    known.set_read_bytes_per_second(row.known);
    known.set_cache_bytes_per_second(row.known);
    known.set_near_bytes_per_second(row.known);
    known.set_f32_flops_per_second(row.known);
    MachineLimits limits([] { return MachineLimits::Clock::time_point(); });  // never due
    ASSERT_TRUE(limits.Get([&] { return known; }).ok());
    const Graph graph = *ParseGraph(kNear);
    TunerPlanSearch search(1, graph, Slow(graph), Maker(), tuner_.get(), machine_, &limits, {});
    std::optional<v1::CompileJob::StopReason> stop;
    for (int steps = 0; steps < 10 && !stop; ++steps) {
      auto step = search.Next();
      ASSERT_TRUE(step.ok()) << step.status();
      stop = step->stop;
    }
    EXPECT_EQ(stop, row.stop) << row.known;
  }
}

}  // namespace
}  // namespace athanor
