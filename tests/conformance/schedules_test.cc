// Every value of every schedule parameter gives a kernel with the reference evaluator's values.
// Runs schedules of small one-kernel graphs until each value has run with each way to read the
// columns, at sizes of 0, 1, 2, primes and more than a panel, with NaN and infinities among the
// operands.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/kernels/task.h"
#include "gtest/gtest.h"
#include "runtime/cpu/blas.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/scheduled.h"

namespace athanor {
namespace {

struct Case {
  const char* name;
  const char* dims;  // a letter each
  const char* body;
};

constexpr ThreeSizes kSizes[] = {{1, 1, 1},   {2, 0, 3},     {0, 5, 7},
                                 {5, 67, 83}, {17, 18, 128}, {40, 100, 211}};

constexpr Case kContractions[] = {
    {"AnySizes", "bst", R"(%0 = Input "x" : f32[b, s] %1 = Input "w" : f32[s, t]
       %2 = Contract(%0, %1) {spec="bk,kn->bn"} output "y" = %2)"},
    {"RowsKnown", "t", R"(%0 = Input "x" : f32[1, 1031] %1 = Input "w" : f32[1031, t]
       %2 = Contract(%0, %1) {spec="bk,kn->bn"} output "y" = %2)"},
    {"DotProducts", "bst", R"(%0 = Input "x" : f32[b, s] %1 = Input "w" : f32[t, s]
       %2 = Contract(%0, %1) {spec="bk,nk->bn"} output "y" = %2)"},
    {"OneColumn", "t", R"(%0 = Input "x" : f32[t, 45] %1 = Parameter "w" : f32[45, 1]
       %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Tanh(%2) output "y" = %3)"},
    {"Batched", "bst", R"(%0 = Input "x" : f64[3, b, s] %1 = Input "w" : f64[3, s, 2, t]
       %2 = Contract(%0, %1) {spec="abk,akcn->abcn"} output "y" = %2)"},
    {"Views", "bst", R"(%0 = Input "x" : f32[b, s] %1 = Input "w" : f32[t, s]
       %2 = IndexMap(%1) {map=map[s, t]($1, $0)} %3 = Contract(%0, %2) {spec="bk,kn->bn"}
       %4 = IndexMap(%3) {map=map[t, b]($1, $0)} output "y" = %4)"},
    {"Weight", "b", R"(%0 = Input "x" : f32[b, 40] %1 = Parameter "w" : f32[40, 150]
       %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Parameter "o" : f32[150]
       %4 = IndexMap(%3) {map=map[b, 150]($1)} %5 = Add(%2, %4) %6 = Tanh(%5) output "y" = %6)"},
    {"Narrow", "bst", R"(%0 = Input "x" : bf16[b, s] %1 = Input "w" : bf16[s, t]
       %2 = Contract(%0, %1) {spec="bk,kn->bn"} output "y" = %2)"},
    {"Half", "bst", R"(%0 = Input "x" : f16[b, s] %1 = Input "w" : f16[t, s]
       %2 = Contract(%0, %1) {spec="bk,nk->bn"} output "y" = %2)"},
    {"Integers", "bst", R"(%0 = Input "x" : i32[b, s] %1 = Input "w" : i32[t, s]
       %2 = Contract(%0, %1) {spec="bk,nk->bn"} %3 = Mul(%2, %2) output "y" = %3)"},
    {"Padded", "bst", R"(%0 = Input "x" : f32[b, s] %1 = Input "w" : f32[t, s]
       %2 = IndexMap(%0) {fill=f32[] {0.5}, map=map[b, s + 3]($0, $1 - 2)}
       %3 = IndexMap(%1) {fill=f32[] {0.25}, map=map[t, s + 3]($0, $1 - 1)}
       %4 = Contract(%2, %3) {spec="bk,nk->bn"} output "y" = %4)"},
    {"Windows", "bt", R"(%0 = Input "x" : f32[2, 3, b, t] %1 = Parameter "w" : f32[13, 3, 3, 2]
       %2 = IndexMap(%0) {fill=f32[] {0}, map=map[2, 3, 3, 2, b, t]($0, $1, $2 + $4 - 1, $3 + $5)}
       %3 = Contract(%2, %1) {spec="ncUVuv,mcUV->nmuv"} %4 = Tanh(%3) output "y" = %4)"},
};

constexpr Case kWalks[] = {
    {"Map", "bt", R"(%0 = Input "x" : f32[b, t] %1 = Input "w" : f32[t]
       %2 = IndexMap(%1) {map=map[b, t]($1)} %3 = Tanh(%0) %4 = Mul(%3, %2) output "y" = %4)"},
    {"PaddedMap", "bt", R"(%0 = Input "x" : bf16[b, t]
       %1 = IndexMap(%0) {fill=bf16[] {0.5}, map=map[b, t + 3]($0, $1 - 2)} %2 = Exp(%1)
       output "y" = %2)"},
    {"Row", "bt", R"(%0 = Input "x" : f32[b, t] %1 = MaxReduce(%0) {axes=[1]}
       %2 = IndexMap(%1) {map=map[b, t]($0)} %3 = Min(%0, %2) %4 = Exp(%3)
       %5 = SumReduce(%4) {axes=[1]} %6 = IndexMap(%5) {map=map[b, t]($0)} %7 = Div(%4, %6)
       output "y" = %7)"},
    {"Point", "bst", R"(%0 = Input "x" : f32[s, b, t] %1 = Input "w" : f32[s, b, t]
       %2 = Mul(%0, %1) %3 = SumReduce(%2) {axes=[0, 2]} output "y" = %3)"},
    {"Windows", "bt", R"(%0 = Input "x" : f32[2, b, t] %1 = Input "w" : f32[2, 3, 3]
       %2 = IndexMap(%0) {fill=f32[] {0.0}, map=map[2, b, t, 3, 3]($0, $1 + $3 - 1, $2 + $4 - 1)}
       %3 = IndexMap(%1) {map=map[2, b, t, 3, 3]($0, $3, $4)} %4 = Mul(%2, %3)
       %5 = SumReduce(%4) {axes=[3, 4]} %6 = Tanh(%5) output "y" = %6)"},
    {"WindowsApart", "bt", R"(%0 = Input "x" : f64[b, 2*b + 1, 3*t] %1 = Input "w" : f64[3, 2]
       %2 = IndexMap(%0) {fill=f64[] {0.0},
       map=map[b, b, t, 3, 2]($0, 2*$1 + $3 - 2, 3*$2 + 2*$4 - 3)}
       %3 = IndexMap(%1) {map=map[b, b, t, 3, 2]($3, $4)} %4 = Mul(%2, %3)
       %5 = SumReduce(%4) {axes=[3, 4]} output "y" = %5)"},
    {"LargestOfWindows", "bt", R"(%0 = Input "x" : bf16[b, 2*t]
       %1 = IndexMap(%0) {fill=bf16[] {-inf}, map=map[b, t, 5, 3]($0 + $2 - 1, 2*$1 + $3 - 1)}
       %2 = MaxReduce(%1) {axes=[2, 3]} output "y" = %2)"},
    {"LongRows", "bt", R"(%0 = Input "x" : f32[b, 40*t] %1 = Input "w" : f32[b]
       %2 = IndexMap(%1) {map=map[b, 40*t]($0)} %3 = Tanh(%2) %4 = Mul(%3, %0) output "y" = %4)"},
    {"IntegerPoint", "bt", R"(%0 = Input "x" : i32[b, t] %1 = MaxReduce(%0) {axes=[1]}
       output "y" = %1)"},
};

// Splits "contract mr=4 nv=2 in_place" into "in_place mr=4", "in_place nv=2".
std::vector<std::string> ValuesOf(const KernelChoice& choice) {
  const std::string text = ScheduleText(choice);
  std::string columns = "pack";
  for (const char* word : {"ahead", "in_place", "dots", "openblas", "staged", "tensor"}) {
    if (absl::StrContains(text, word)) columns = word;
  }
  std::vector<std::string> values;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    values.push_back(absl::StrCat(columns, " ", word));
  }
  return values;
}

// Returns schedules that together cover all values, those that add several new ones first.
std::vector<KernelChoice> Covering(std::vector<KernelChoice> all, std::mt19937& rng) {
  std::shuffle(all.begin(), all.end(), rng);
  std::set<std::string> covered;
  std::vector<KernelChoice> chosen;
  for (int least : {4, 3, 2, 1}) {
    for (const KernelChoice& choice : all) {
      const std::vector<std::string> values = ValuesOf(choice);
      const auto added = std::count_if(values.begin(), values.end(),
                                       [&](const std::string& v) { return !covered.contains(v); });
      if (added < least) continue;
      covered.insert(values.begin(), values.end());
      chosen.push_back(choice);
    }
  }
  return chosen;
}

class SchedulesTest : public testing::TestWithParam<Case> {
 protected:
  std::mt19937 rng_{11};
};

TEST_P(SchedulesTest, GiveTheSameValues) {
  std::string dims;
  for (const char* d = GetParam().dims; *d != 0; ++d) {
    absl::StrAppend(&dims, "dim ", std::string(1, *d), " in [0, 300]\n");
  }
  auto graph = ParseGraph(absl::StrCat("graph \"\" {\n", dims, GetParam().body, "}"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  Fusion fusion;
  for (NodeId n = 0; n < static_cast<NodeId>(graph->nodes.size()); ++n) {
    if (!graph->node(n).inputs.empty()) fusion.nodes[n] = Fuse::kInline;
  }
  // Scalars come last.
  std::vector<v1::Target> targets = TestTargets();
  for (v1::Target& target : targets) {
    if (target.device() == "cpu") target.set_blas(BlasVersion());
  }
  const size_t wide = std::max<size_t>(targets.size() - 1, 1);
  const Genome genome = ChooseKernels(*graph, targets[0], fusion);
  // Takes the contraction's kernel if there are several; else the one for which the others prepare.
  auto kernel = std::find_if(genome.kernels.begin(), genome.kernels.end(),
                             [](const KernelChoice& k) { return k.anchor >= 0; });
  if (kernel == genome.kernels.end()) --kernel;
  const KernelTask task = CutTask(*graph, MemoryOf(*graph, genome), WeightsOf(*graph), *kernel);
  int run = 0;
  for (const KernelChoice& choice : Covering(Schedules(task, targets[0]), rng_)) {
    ExpectSchedule(task, choice, targets[run++ % wide], kSizes, rng_);
    if (HasFailure()) return;
    if (targets.size() > wide) ExpectSchedule(task, choice, targets.back(), kSizes, rng_);
    if (HasFailure()) return;
  }
  EXPECT_GE(run, 1);
  RecordProperty("schedules", run);
}

INSTANTIATE_TEST_SUITE_P(Walks, SchedulesTest, testing::ValuesIn(kWalks),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Contractions, SchedulesTest, testing::ValuesIn(kContractions),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace athanor
