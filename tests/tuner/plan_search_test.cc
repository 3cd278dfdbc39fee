// Runs the whole search with real kernels in a real child process: it finds a plan that is right
// and faster, and survives the loss of its child.
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/cache/cache.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/search/kernel_maker.h"
#include "server/search/machine_limits.h"
#include "server/search/tuner_plan_search.h"
#include "tests/tuner/paged_decoder.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

constexpr char kModel[] = R"(graph "g" { dim b in [1, 256]
  %0 = Input "x" : f32[b, 512] %1 = Parameter "w0" : f32[512, 512]
  %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Tanh(%2)
  %4 = Parameter "w1" : f32[512, 512] %5 = Contract(%3, %4) {spec="bk,kn->bn"} %6 = Tanh(%5)
  output "y" = %6 })";

internal::MachineReply Limits(double all) {
  internal::MachineReply limits;
  limits.set_read_bytes_per_second(all);
  limits.set_cache_bytes_per_second(all);
  limits.set_near_bytes_per_second(all);
  limits.set_f32_flops_per_second(all);
  return limits;
}

class PlanSearchTest : public TunerTest {
 protected:
  void SetUp() override {
    TunerTest::SetUp();
    if (HasFatalFailure()) return;
    cache_ = Cache::Open({.path = ""}, [](absl::string_view) {});
    graph_ = *ParseGraph(kModel);
  }

  KernelMaker Maker() { return KernelMaker(cache_.get(), tuner_.get(), machine_); }

  // The baseline with every kernel's schedule as it is.
  CompiledPlan Baseline() {
    CompiledPlan baseline;
    auto lowered = tuner_->Lower(graph_, machine_.target());
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    baseline.plan = lowered->plan();
    for (const v1::Kernel& kernel : baseline.plan.kernels()) {
      auto object = Maker().Compile(kernel);
      EXPECT_TRUE(object.ok()) << object.status();
      baseline.objects.push_back(*std::move(object));
    }
    return baseline;
  }

  std::unique_ptr<PlanSearch> NewSearch(int64_t candidates, MachineLimits* limits = nullptr) {
    return NewSearch(candidates, limits, Baseline());
  }
  std::unique_ptr<PlanSearch> NewSearch(int64_t candidates, MachineLimits* limits,
                                        CompiledPlan serving) {
    // To such limits a contraction in pieces is as good as a whole one: it would be tried, and take
    // seconds where others have the cores.
    const PlanSearchOptions options{
        .seed = 1, .max_candidates = candidates, .disabled_rules = {"decompose"}};
    return std::make_unique<TunerPlanSearch>(++searches_, graph_, std::move(serving), Maker(),
                                             tuner_.get(), machine_,
                                             limits == nullptr ? &unreachable_ : limits, options);
  }

  // Limits out of reach, so that the machine's load does not decide when the search ends.
  MachineLimits unreachable_{Limits(1e18)};
  std::unique_ptr<Cache> cache_;
  Graph graph_;
  uint64_t searches_ = 0;
};

TEST_F(PlanSearchTest, TheMachineIsMeasured) {
  const auto limits = tuner_->Machine(machine_.target(), 2);
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_GT(limits->read_bytes_per_second(), 1e8);
  EXPECT_GT(limits->cache_bytes_per_second(), 1e8);
  EXPECT_GT(limits->near_bytes_per_second(), 1e8);
  EXPECT_GT(limits->f32_flops_per_second(), 1e8);
}

// As on a busy machine: limits are not due to be measured, but the first kernels beat them.
TEST_F(PlanSearchTest, LimitsThatKernelsBeatAreMeasuredAgain) {
  MachineLimits low([] { return MachineLimits::Clock::time_point(); });
  ASSERT_TRUE(low.Get([] { return Limits(1e5); }).ok());
  std::unique_ptr<PlanSearch> search = NewSearch(12, &low);
  bool stopped = false;
  for (int steps = 0; steps < 200 && !stopped; ++steps) {
    auto step = search->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    stopped = step->stop.has_value();
    if (step->found) search->Taken(absl::OkStatus());
  }
  EXPECT_TRUE(stopped);
  const auto known = low.Get([] { return absl::InternalError("not due"); });
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_GT(known->f32_flops_per_second(), 1e8);
  // A kernel has 524,288 multiply-adds per row, which the first limits would stretch to hours.
  const v1::SearchProgress& progress = search->progress();
  ASSERT_GT(progress.tasks_size(), 0);
  for (double seconds : progress.tasks(0).roofline_seconds()) EXPECT_LT(seconds, 1);
  const auto costs = search->Costs(Baseline());
  ASSERT_TRUE(costs.ok()) << costs.status();
  for (const v1::StepCost& step : costs->at(0).steps()) EXPECT_LT(step.roofline_seconds(), 1);
}

// Searches a graph with states at sizes of calls; all plans have one signature.
TEST_F(PlanSearchTest, PlansOfADecoderKeepTheOrderOfItsSums) {
  graph_ = *ParseGraph(kPagedDecoder);
  const CompiledPlan baseline = Baseline();
  ASSERT_EQ(baseline.plan.signature().size(), 16u);
  std::unique_ptr<PlanSearch> search = NewSearch(30, nullptr, baseline);
  bool stopped = false;
  for (int steps = 0; steps < 200 && !stopped; ++steps) {
    auto step = search->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    stopped = step->stop.has_value();
    if (!step->found) continue;
    EXPECT_EQ(step->found->plan.signature(), baseline.plan.signature());
    search->Taken(absl::OkStatus());
  }
  EXPECT_TRUE(stopped);
  const v1::SearchProgress& progress = search->progress();
  EXPECT_GE(progress.candidates(), 2);
  EXPECT_EQ(progress.candidates_failed(), 0) << progress.ShortDebugString();
  ASSERT_EQ(progress.sizes_size(), 2);
  EXPECT_THAT(progress.sizes(0), ::testing::HasSubstr("T=1"));
  EXPECT_THAT(progress.sizes(1), ::testing::HasSubstr("T=64"));
  EXPECT_THAT(progress.sizes(1), ::testing::Not(::testing::HasSubstr("N=4096")));
}

TEST_F(PlanSearchTest, PlansFoundAreRight) {
  std::unique_ptr<PlanSearch> search = NewSearch(24);
  std::vector<absl::StatusOr<std::string>> pictures;
  bool stopped = false;
  for (int steps = 0; steps < 200 && !stopped; ++steps) {
    auto step = search->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    stopped = step->stop.has_value();
    for (auto& picture : search->TakePictures()) pictures.push_back(std::move(picture));
    if (!step->found) continue;
    // Compares the whole plan with the reference evaluator.
    internal::CheckRequest whole;
    *whole.mutable_plan() = step->found->plan;
    for (const KernelObject& object : step->found->objects) whole.add_objects(object.object);
    whole.set_graph_text(kModel);
    for (int64_t b : {1, 7}) whole.add_sizes()->add_values(b);
    EXPECT_TRUE(tuner_->Check(whole).ok()) << tuner_->Check(whole);
    EXPECT_EQ(step->found->plan.kind(), "search");
    search->Taken(absl::OkStatus());
  }
  EXPECT_TRUE(stopped);
  const v1::SearchProgress& progress = search->progress();
  EXPECT_GE(progress.candidates(), 2);
  EXPECT_EQ(progress.candidates_failed(), 0) << progress.ShortDebugString();
  EXPECT_EQ(progress.sizes_size(), 3);
  ASSERT_GE(progress.tasks_size(), 1);
  EXPECT_EQ(progress.tasks(0).seconds_size(), 3);
  // Divides two sums, which for the baseline differ by rounding alone.
  EXPECT_LE(progress.predicted(), 1 + 1e-9);
  EXPECT_LE(progress.best(), 1);
  // Lists each region once.
  EXPECT_GT(progress.regions_size(), 0);
  ASSERT_EQ(pictures.size(), static_cast<size_t>(progress.regions_size()));
  for (const auto& picture : pictures) {
    ASSERT_TRUE(picture.ok()) << picture.status();
    EXPECT_EQ(picture->substr(0, 16), "digraph egraph {");
  }
}

// The second search repeats the first one's steps, without its recipes, and measures no kernel;
// plans that may serve are measured whole again.
TEST_F(PlanSearchTest, TimesOfAnEarlierSearchAreNotMeasuredAgain) {
  const std::string path = FreshFolder() + "/cache.db";
  v1::SearchProgress first;
  CompiledPlan serving;
  for (int round = 0; round < 3; ++round) {
    cache_ = Cache::Open({.path = path}, [](absl::string_view) {});
    ASSERT_TRUE(cache_->ExecuteForTest("DELETE FROM recipes").ok());
    if (round < 2) serving = Baseline();  // round 2 starts from the plan that was found
    std::unique_ptr<PlanSearch> search = NewSearch(24, nullptr, serving);
    bool stopped = false;
    for (int steps = 0; steps < 200 && !stopped; ++steps) {
      auto step = search->Next();
      ASSERT_TRUE(step.ok()) << step.status();
      stopped = step->stop.has_value();
      if (!step->found) continue;
      serving = *step->found;
      search->Taken(absl::OkStatus());
    }
    EXPECT_TRUE(stopped);
    const v1::SearchProgress& progress = search->progress();
    const int64_t measured = cache_->work().candidates_measured - progress.plans_measured();
    if (round == 0) {
      first = progress;
      EXPECT_GE(measured, 2);
      EXPECT_EQ(progress.candidates_from_cache(), 0);
    } else {
      EXPECT_EQ(measured, 0) << progress.ShortDebugString();
      EXPECT_GE(progress.candidates_from_cache(), 2);
      EXPECT_EQ(progress.candidates(), first.candidates());
      ASSERT_EQ(progress.tasks_size(), first.tasks_size());
      for (int i = 0; i < progress.tasks_size(); ++i) {
        EXPECT_EQ(progress.tasks(i).schedule(), first.tasks(i).schedule());
      }
    }
  }
}

TEST_F(PlanSearchTest, ALostChildCostsItsCandidate) {
  std::unique_ptr<PlanSearch> search = NewSearch(16);
  bool stopped = false;
  int kills = 0;
  for (int steps = 0; steps < 200 && !stopped; ++steps) {
    if ((steps == 1 || steps == 3 || steps == 7) && tuner_->pid() > 0) {
      kill(tuner_->pid(), SIGKILL);
      ++kills;
    }
    auto step = search->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    stopped = step->stop.has_value();
    if (step->found) search->Taken(absl::OkStatus());
  }
  EXPECT_TRUE(stopped);
  // The machine decides how long the search goes on; the first losses always happen.
  EXPECT_GE(kills, 2);
  EXPECT_GE(tuner_->starts(), 2);
  EXPECT_GE(search->progress().candidates(), 2);
  EXPECT_LE(search->progress().candidates_failed(), kills);
}

TEST_F(PlanSearchTest, FinishEndsIt) {
  std::unique_ptr<PlanSearch> search = NewSearch(0);
  for (int steps = 0; steps < 4; ++steps) ASSERT_TRUE(search->Next().ok());
  search->Finish();
  bool stopped = false;
  for (int steps = 0; steps < 200 && !stopped; ++steps) {
    auto step = search->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    stopped = step->stop.has_value();
    if (step->found) search->Taken(absl::AbortedError("not wanted"));
  }
  EXPECT_TRUE(stopped);
}

// Candidates that a step asked for and no time is left for are not failures.
TEST_F(PlanSearchTest, KernelsThatAreLeftAreNotTried) {
  std::unique_ptr<PlanSearch> search = NewSearch(0);
  ASSERT_TRUE(search->Next().ok());
  const int64_t measured = cache_->work().candidates_measured;
  search->Finish();
  bool stopped = false;
  for (int steps = 0; steps < 20 && !stopped; ++steps) {
    auto step = search->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    stopped = step->stop.has_value();
  }
  EXPECT_TRUE(stopped);
  EXPECT_EQ(cache_->work().candidates_measured, measured);
  EXPECT_EQ(search->progress().candidates_failed(), 0);
  EXPECT_EQ(search->progress().failures_size(), 0);
}

TEST_F(PlanSearchTest, ItStopsWhenItsTimeIsUpAndSaysSoAgain) {
  std::unique_ptr<PlanSearch> search = NewSearch(0);
  ASSERT_TRUE(search->Next().ok());
  search->Until(std::chrono::steady_clock::now());
  for (int again = 0; again < 2; ++again) {
    auto step = search->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(step->stop, v1::CompileJob::STOP_BUDGET);
  }
  EXPECT_EQ(search->Costs(Baseline()).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(search->progress().failures_size(), 0);
  search->Until(std::chrono::steady_clock::time_point::max());
  EXPECT_TRUE(search->Next().ok()) << "nothing was lost";
  EXPECT_GT(tuner_->pid(), 0);
}

}  // namespace
}  // namespace athanor
