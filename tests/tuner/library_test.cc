// Runs contractions that call OpenBLAS with a real tuner process: each block size of each task is
// compiled, loaded and checked in the confined process, with guard pages around its operands, at
// small sizes and sampled at real ones.
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/plan_builder.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "gtest/gtest.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

class LibraryTest : public TunerTest {
 protected:
  // Checks the graph's contraction with everything after it. Returns how many schedules ran.
  int CheckAll(const std::string& body) {
    auto graph = ParseGraph(absl::StrCat("graph \"g\" { ", body, " }"));
    EXPECT_TRUE(graph.ok()) << graph.status();
    if (!graph.ok()) return 0;
    const Genome genome = ChooseKernels(*graph, target_);
    EXPECT_EQ(genome.kernels.size(), 1) << "one kernel is expected";
    const KernelTask task =
        CutTask(*graph, MemoryOf(*graph, genome), WeightsOf(*graph), genome.kernels.back());
    int run = 0;
    for (const KernelChoice& choice : Schedules(task, target_)) {
      if (!IsLibraryProduct(choice)) continue;
      const absl::Status right = Check(task, choice);
      EXPECT_TRUE(right.ok()) << ScheduleText(choice) << ": " << right;
      ++run;
    }
    return run;
  }

  absl::Status Check(const KernelTask& task, const KernelChoice& choice) {
    auto request = PlanBuilder(target_).Check(task, choice);
    if (!request.ok()) return request.status();
    for (const v1::Kernel& kernel : request->plan().kernels()) {
      EXPECT_TRUE(absl::StrContains(kernel.name(), "openblas")) << kernel.name();
      auto object = tuner_->Compile(kernel.source(), target_);
      if (!object.ok()) return object.status();
      request->add_objects(*std::move(object));
    }
    request->set_seed(5);
    return tuner_->Check(*request);
  }
};

TEST_F(LibraryTest, TheTargetNamesItsVersion) {
  EXPECT_TRUE(absl::StartsWith(target_.blas(), "OpenBLAS ")) << target_.blas();
}

TEST_F(LibraryTest, IntoTheResult) {
  EXPECT_GE(CheckAll(R"(dim m in [0, 700] dim n in [0, 300] dim k in [0, 400]
    %0 = Input "x" : f32[m, k] %1 = Input "w" : f32[k, n]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)"),
            4);
}

TEST_F(LibraryTest, AWeightTransposedAndAnEpilogue) {
  EXPECT_GE(
      CheckAll(R"(dim m in [1, 500] %0 = Input "x" : f32[m, 257] %1 = Parameter "w" : f32[131, 257]
    %2 = Contract(%0, %1) {spec="mk,nk->mn"} %3 = Input "r" : f32[m, 131] %4 = Add(%2, %3)
    %5 = Tanh(%4) output "y" = %5)"),
      4);
}

TEST_F(LibraryTest, HeadsInDoublePrecision) {
  EXPECT_GE(CheckAll(R"(dim b in [0, 6] dim s in [1, 97]
    %0 = Input "q" : f64[b, s, 3, 64] %1 = Input "k" : f64[b, s, 3, 64]
    %2 = Contract(%0, %1) {spec="bihd,bjhd->bhij"} output "y" = %2)"),
            2);
}

}  // namespace
}  // namespace athanor
