// Every schedule that stages both operands of a contraction in a GPU's shared memory gives the
// reference evaluator's values, on the emulated GPU: at sizes of 0, 1, primes, exact tiles and a
// little more, of each kind of dtype, and with infinities and NaN beside what padding hides. So do
// some whose sums are split.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/scheduled.h"

namespace athanor {
namespace {

struct Case {
  const char* name;
  const char* body;
};

constexpr Case kCases[] = {
    {"F32", R"(%0 = Input "x" : f32[b, s] %1 = Input "w" : f32[s, t]
       %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)"},
    {"BothTransposed", R"(%0 = Input "x" : f32[s, b] %1 = Input "w" : f32[t, s]
       %2 = Contract(%0, %1) {spec="km,nk->mn"} output "y" = %2)"},
    {"F64Batched", R"(%0 = Input "x" : f64[3, b, s] %1 = Input "w" : f64[3, s, 2, t]
       %2 = Contract(%0, %1) {spec="abk,akcn->abcn"} output "y" = %2)"},
    {"F16", R"(%0 = Input "x" : f16[b, s] %1 = Input "w" : f16[t, s]
       %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)"},
    {"Bf16", R"(%0 = Input "x" : bf16[b, s] %1 = Input "w" : bf16[s, t]
       %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)"},
    {"I32", R"(%0 = Input "x" : i32[b, s] %1 = Input "w" : i32[t, s]
       %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)"},
    {"Epilogue", R"(%0 = Input "x" : f32[b, s] %1 = Input "w" : f32[s, t] %2 = Input "o" : f32[t]
       %3 = Contract(%0, %1) {spec="mk,kn->mn"} %4 = IndexMap(%2) {map=map[b, t]($1)}
       %5 = Add(%3, %4) %6 = Tanh(%5) %7 = IndexMap(%6) {map=map[t, b]($1, $0)}
       output "y" = %7)"},
    // Pieces divide the sums, of which calls may choose none.
    {"NoSums", R"(%0 = Input "x" : f32[b, s, 32] %1 = Input "w" : f32[s, 32, t]
       %2 = Contract(%0, %1) {spec="mkj,kjn->mn"} output "y" = %2)"},
    {"Padded", R"(%0 = Input "x" : f32[b, s] %1 = Input "w" : f32[t, s]
       %2 = IndexMap(%0) {fill=f32[] {0.5}, map=map[b, s + 3]($0, $1 - 2)}
       %3 = IndexMap(%1) {fill=f32[] {0.25}, map=map[t, s + 3]($0, $1 - 1)}
       %4 = Contract(%2, %3) {spec="bk,nk->bn"} output "y" = %4)"},
    {"Windows", R"(%0 = Input "x" : f32[1, 3, b, t] %1 = Input "w" : f32[s, 3, 3, 2]
       %2 = IndexMap(%0) {fill=f32[] {0}, map=map[1, 3, 3, 2, b, t]($0, $1, $2 + $4 - 1, $3 + $5)}
       %3 = Contract(%2, %1) {spec="ncUVuv,mcUV->nmuv"} %4 = Tanh(%3) output "y" = %4)"},
};

constexpr ThreeSizes kSizes[] = {{1, 1, 1},  {2, 0, 3},     {0, 5, 7},     {3, 4, 0},
                                 {5, 67, 3}, {64, 32, 128}, {67, 17, 131}, {31, 33, 61}};

constexpr ThreeSizes kSplitSizes[] = {{1, 1, 1},  {2, 0, 3},    {0, 5, 7},    {3, 4, 0},
                                      {3, 67, 5}, {70, 20, 33}, {300, 12, 5}, {1, 300, 3}};

class StagedTest : public testing::TestWithParam<Case> {
 protected:
  // Runs the case by these schedules.
  void Expect(const std::vector<TileSchedule>& schedules, absl::Span<const ThreeSizes> sizes);
  static absl::StatusOr<Graph> TheGraph() {
    return ParseGraph(absl::StrCat("graph \"\" { dim b in [0, 300] dim s in [0, 300] ",
                                   "dim t in [0, 300] ", GetParam().body, "}"));
  }
  std::mt19937 rng_{17};
};

void StagedTest::Expect(const std::vector<TileSchedule>& schedules,
                        absl::Span<const ThreeSizes> sizes) {
  const absl::StatusOr<Graph> graph = TheGraph();
  ASSERT_TRUE(graph.ok()) << graph.status();
  Fusion fusion;
  NodeId anchor = -1;
  for (NodeId n = 0; n < static_cast<NodeId>(graph->nodes.size()); ++n) {
    if (!graph->node(n).inputs.empty()) fusion.nodes[n] = Fuse::kInline;
    if (graph->node(n).op == Op::kContract) anchor = n;
  }
  const v1::Target target = TestTargets({0})[0];
  ASSERT_EQ(target.device(), "cuda");
  const Genome genome = ChooseKernels(*graph, target, fusion);
  // Others compute what the contraction's kernel reads.
  const auto kernel = std::find_if(genome.kernels.begin(), genome.kernels.end(),
                                   [&](const KernelChoice& k) { return k.anchor == anchor; });
  ASSERT_NE(kernel, genome.kernels.end());
  const KernelTask task = CutTask(*graph, MemoryOf(*graph, genome), WeightsOf(*graph), *kernel);
  int run = 0;
  for (TileSchedule s : schedules) {
    s.swap = run++ % 3 == 2;
    KernelChoice choice = task.choice;
    choice.contract = s;
    choice.team = 128;
    ExpectSchedule(task, choice, target, sizes, rng_);
    if (HasFailure()) return;
  }
}

TEST_P(StagedTest, GivesTheReferencesValues) {
  const absl::StatusOr<Graph> graph = TheGraph();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto contract = std::find_if(graph->nodes.begin(), graph->nodes.end(),
                                     [](const Node& n) { return n.op == Op::kContract; });
  const std::vector<TileSchedule> all =
      StagedSchedules(DTypeBytes(AccumulatorOf(contract->type.dtype)));
  EXPECT_GE(all.size(), 4);
  Expect(all, kSizes);
}

// Late items have no sums where there are few, and all have none where there are none.
TEST_P(StagedTest, SplitSumsGiveTheReferencesValues) {
  std::vector<TileSchedule> all;
  for (const auto& [nv, split] : {std::pair(4, 2), {8, 3}, {4, 16}}) {
    all.push_back({.mr = 4, .nv = nv, .kc = 8, .split = split});
  }
  Expect(all, kSplitSizes);
}

// Products one behind the other in a plan, two of them of one kernel: each launch finds its own
// counters at zero, in call after call, also where no call has more than one tile.
TEST(StagedPlanTest, SplitsTheSumsOfSeveralProducts) {
  for (const int64_t most : {30, 90}) {
    const absl::StatusOr<Graph> graph =
        ParseGraph(absl::StrCat("graph \"\" { dim b in [0, ", most, R"(] %0 = Input "x" : f32[b, 80]
        %1 = Parameter "u" : f32[80, 64] %2 = Parameter "w" : f32[64, 64]
        %3 = Contract(%0, %1) {spec="mk,kn->mn"} %4 = Tanh(%3)
        %5 = Contract(%4, %2) {spec="mk,kn->mn"} %6 = Contract(%5, %2) {spec="mk,kn->mn"}
        %7 = Contract(%6, %2) {spec="mk,kn->mn"} %8 = Add(%7, %4)
        %9 = IndexMap(%8) {map=map[64, b]($1, $0)} output "y" = %9 })"));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const v1::Target target = TestTargets({0})[0];
    Genome genome = ChooseKernels(*graph, target);
    for (KernelChoice& kernel : genome.kernels) {
      if (kernel.kind != KernelKind::kContract) continue;
      TileSchedule tile = StagedSchedules(/*bytes=*/4)[0];
      tile.split = 3;
      kernel.contract = tile;
      kernel.team = 128;
    }
    std::mt19937 rng(3);
    const std::vector<Tensor> weights = {RandomTensor(DType::kF32, {80, 64}, rng, 0.1),
                                         RandomTensor(DType::kF32, {64, 64}, rng, 0.1)};
    absl::StatusOr<Compiled> compiled = CompileScheduled({*graph, genome}, weights, target);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    int counters = 0;
    for (const v1::Buffer& buffer : compiled->plan().buffers()) counters += buffer.zeroed();
    EXPECT_EQ(counters, 4);
    EXPECT_LT(compiled->plan().kernels_size(), compiled->plan().run_size());
    for (const int64_t rows : {int64_t{7}, int64_t{0}, most, int64_t{1}, most - 1}) {
      const Tensor x = RandomTensor(DType::kF32, {rows, 80}, rng);
      const auto got = compiled->Run({x});
      ASSERT_TRUE(got.ok()) << got.status();
      const auto want = Evaluate(*graph, {x, weights[0], weights[1]});
      ASSERT_TRUE(want.ok()) << want.status();
      const absl::Status same = CompareTensors((*got)[0], (*want)[0], 2e-5, 2e-5);
      EXPECT_TRUE(same.ok()) << same << " at " << rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Contractions, StagedTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace athanor
