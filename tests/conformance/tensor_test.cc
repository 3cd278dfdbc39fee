// Schedules of matrix instructions give the reference evaluator's values, on the emulated GPU: each
// dtype of an instruction, copied beside the threads or by them, at sizes of 0, 1, primes, exact
// tiles and a little more, and with infinities and NaN beside what padding hides. Each case has an
// eighth of the schedules, each schedule a case or more; and some whose sums are split.
#include <algorithm>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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
  const char* dims;  // of one letter each
  const char* body;
};

// Chunks of 16 bytes are copied where an extent along memory is 72, 136, 48 or 80.
constexpr Case kCases[] = {
    {"F16Copied", "b", R"(%0 = Input "x" : f16[b, 72] %1 = Input "w" : f16[72, 136]
       %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)"},
    {"F16Loaded", "bst", R"(%0 = Input "x" : f16[b, s] %1 = Input "w" : f16[t, s]
       %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)"},
    {"Bf16OneCopied", "bs", R"(%0 = Input "x" : bf16[b, s] %1 = Input "w" : bf16[s, 136]
       %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)"},
    {"Bf16Batched", "bt", R"(%0 = Input "x" : bf16[3, b, 40] %1 = Input "w" : bf16[3, 2, t, 40]
       %2 = Contract(%0, %1) {spec="abk,actk->abct"} output "y" = %2)"},
    {"F16BothTransposed", "st", R"(%0 = Input "x" : f16[s, 64] %1 = Input "w" : f16[t, s]
       %2 = Contract(%0, %1) {spec="km,nk->mn"} output "y" = %2)"},
    {"I8", "bt", R"(%0 = Input "x" : i8[b, 80] %1 = Input "w" : i8[t, 80]
       %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)"},
    {"I8ToI32", "bst", R"(%0 = Input "x" : i8[b, s] %1 = Input "w" : i8[s, t]
       %2 = Cast(%0) {dtype=i32} %3 = Cast(%1) {dtype=i32}
       %4 = Contract(%2, %3) {spec="mk,kn->mn"} output "y" = %4)"},
    {"U8ToI32", "bt", R"(%0 = Input "x" : u8[b, 48] %1 = Input "w" : u8[t, 48]
       %2 = Cast(%0) {dtype=i32} %3 = Cast(%1) {dtype=i32}
       %4 = Contract(%2, %3) {spec="mk,nk->mn"} output "y" = %4)"},
    {"F16ToF32Epilogue", "bt", R"(%0 = Input "x" : f16[b, 72] %1 = Input "w" : f16[72, t]
       %2 = Input "o" : f32[t] %3 = Cast(%0) {dtype=f32} %4 = Cast(%1) {dtype=f32}
       %5 = Contract(%3, %4) {spec="mk,kn->mn"} %6 = IndexMap(%2) {map=map[b, t]($1)}
       %7 = Add(%5, %6) %8 = Tanh(%7) %9 = IndexMap(%8) {map=map[t, b]($1, $0)}
       output "y" = %9)"},
    // Pieces divide the sums, of which calls may choose none.
    {"F16NoSums", "bs", R"(%0 = Input "x" : f16[s, b, 64] %1 = Input "w" : f16[b, 64, 16]
       %2 = Contract(%0, %1) {spec="mkj,kjn->mn"} output "y" = %2)"},
    {"F16Padded", "bst", R"(%0 = Input "x" : f16[b, s] %1 = Input "w" : f16[t, s]
       %2 = IndexMap(%0) {fill=f16[] {0.5}, map=map[b, s + 3]($0, $1 - 2)}
       %3 = IndexMap(%1) {fill=f16[] {0.25}, map=map[t, s + 3]($0, $1 - 1)}
       %4 = Contract(%2, %3) {spec="bk,nk->bn"} output "y" = %4)"},
};

constexpr ThreeSizes kSizes[] = {{1, 1, 1},  {2, 0, 3},      {0, 5, 7},     {3, 4, 0},
                                 {5, 67, 3}, {64, 128, 128}, {67, 17, 131}, {129, 200, 33}};

Graph WithDims(const Case& c) {
  std::string text = "graph \"\" {";
  for (const char dim : absl::string_view(c.dims)) {
    absl::StrAppend(&text, " dim ", std::string(1, dim), " in [0, 300]");
  }
  const absl::StatusOr<Graph> graph = ParseGraph(absl::StrCat(text, " ", c.body, "}"));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.value_or(Graph());
}

constexpr ThreeSizes kSplitSizes[] = {{1, 1, 1},   {2, 0, 3},     {0, 5, 7},
                                      {3, 300, 5}, {70, 129, 33}, {300, 40, 300}};

class TensorTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override;
  // Runs the case by a schedule.
  void Expect(const TileSchedule& schedule, absl::Span<const ThreeSizes> sizes) {
    KernelChoice choice = task_->choice;
    choice.contract = schedule;
    ExpectSchedule(*task_, choice, target_, sizes, rng_);
  }

  std::mt19937 rng_{29};
  v1::Target target_;
  std::optional<KernelTask> task_;
  std::vector<TileSchedule> all_;  // of matrix instructions
};

void TensorTest::SetUp() {
  const Graph graph = WithDims(kCases[GetParam()]);
  ASSERT_FALSE(graph.nodes.empty());
  target_ = TestTargets({0})[0];
  ASSERT_EQ(target_.device(), "cuda");
  target_.set_cpu("sm_80");
  // One kernel computes it all, casts of operands too.
  KernelChoice one{.root = static_cast<NodeId>(graph.nodes.size()) - 1,
                   .kind = KernelKind::kContract,
                   .team = 128};
  for (NodeId n = 0; n <= one.root; ++n) {
    if (graph.node(n).op == Op::kContract) one.anchor = n;
  }
  task_ = CutTask(graph, MemoryOf(graph, {{one}}), WeightsOf(graph), one);
  all_ = TensorSchedules(task_->graph, task_->choice.anchor, target_);
  ASSERT_GE(all_.size(), 28);
}

TEST_P(TensorTest, GivesTheReferencesValues) {
  constexpr size_t kShare = 8;
  for (size_t i = GetParam() % kShare; i < all_.size(); i += kShare) {
    TileSchedule s = all_[i];
    s.swap = i / kShare % 3 == 2;
    Expect(s, kSizes);
    if (HasFailure()) return;
  }
}

// Late items have no sums where there are few, and all have none where there are none. Each case
// has its number of stages, and another tile's.
TEST_P(TensorTest, SplitSumsGiveTheReferencesValues) {
  for (const auto& [mr, split] : {std::pair(1, 4), {2, 3}}) {
    const int stages = (static_cast<int>(GetParam()) + mr) % 4 + 1;
    const auto s = std::find_if(all_.begin(), all_.end(), [mr = mr, stages](const TileSchedule& s) {
      return s.mr == mr && s.stages == stages;
    });
    ASSERT_NE(s, all_.end());
    TileSchedule with = *s;
    with.split = split;
    Expect(with, kSplitSizes);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Contractions, TensorTest, testing::Range(size_t{0}, std::size(kCases)),
                         [](const auto& info) { return std::string(kCases[info.param].name); });

// Products of casts, in plans as they are made without a search.
constexpr Case kPlans[] = {
    {"I8ToI32", "b", R"(%0 = Input "x" : i8[b, 80] %1 = Parameter "w" : i8[80, 72]
       %2 = Cast(%0) {dtype=i32} %3 = Cast(%1) {dtype=i32}
       %4 = Contract(%2, %3) {spec="mk,kn->mn"} output "y" = %4)"},
    {"U8ToI32AndOn", "b", R"(%0 = Input "x" : u8[b, 64] %1 = Parameter "w" : u8[96, 64]
       %2 = Parameter "s" : f32[96] %3 = Cast(%0) {dtype=i32} %4 = Cast(%1) {dtype=i32}
       %5 = Contract(%3, %4) {spec="mk,nk->mn"} %6 = Cast(%5) {dtype=f32}
       %7 = IndexMap(%2) {map=map[b, 96]($1)} %8 = Mul(%6, %7) output "y" = %8)"},
    {"F16ToF32", "bt", R"(%0 = Input "x" : f16[b, 64] %1 = Input "w" : f16[t, 64]
       %2 = Cast(%0) {dtype=f32} %3 = Cast(%1) {dtype=f32}
       %4 = Contract(%2, %3) {spec="mk,nk->mn"} output "y" = %4)"},
    {"Bf16ToF32Batched", "b",
     R"(%0 = Input "x" : bf16[3, b, 40] %1 = Parameter "w" : bf16[3, 40, 48]
       %2 = Cast(%0) {dtype=f32} %3 = Cast(%1) {dtype=f32}
       %4 = Contract(%2, %3) {spec="abk,akn->abn"} output "y" = %4)"},
};

class TensorPlanTest : public testing::TestWithParam<Case> {};

TEST_P(TensorPlanTest, HasCastsOfOperandsInOneKernel) {
  const Graph graph = WithDims(GetParam());
  v1::Target target = TestTargets({0})[0];
  target.set_cpu("sm_80");
  std::mt19937 rng(31);
  for (const int64_t size : {1, 37, 200}) {
    Expr::Env dims;
    for (const Dim& dim : graph.dims) dims[dim.name] = size;
    std::vector<Tensor> inputs, parameters, all;
    for (const Node& node : graph.nodes) {
      if (!IsDeclared(node.op)) continue;
      all.push_back(RandomTensor(node.type.dtype, *ConcreteShape(node.type.shape, dims), rng));
      (IsInput(node.op) ? inputs : parameters).push_back(all.back());
    }
    absl::StatusOr<Compiled> compiled = Compile(graph, parameters, target);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(compiled->plan().prepare_size(), 0);
    ASSERT_EQ(compiled->plan().run_size(), 1) << compiled->plan().genome();
    EXPECT_TRUE(absl::StrContains(compiled->plan().genome(), " tensor "))
        << compiled->plan().genome();
    const absl::StatusOr<std::vector<Tensor>> want = Evaluate(graph, all, &dims);
    ASSERT_TRUE(want.ok()) << want.status();
    const absl::StatusOr<std::vector<Tensor>> got = compiled->Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    const double error = IsFloat((*want)[0].dtype) ? 2e-5 : 0;
    const absl::Status same = CompareTensors((*got)[0], (*want)[0], error, error);
    EXPECT_TRUE(same.ok()) << same;
  }
}

// Whatever else a search may choose of such a kernel reads casts of operands too.
TEST_P(TensorPlanTest, IsRightByOtherSchedules) {
  const Graph graph = WithDims(GetParam());
  v1::Target target = TestTargets({0})[0];
  target.set_cpu("sm_80");
  const Genome genome = ChooseKernels(graph, target);
  ASSERT_EQ(genome.kernels.size(), 1);
  const KernelTask task =
      CutTask(graph, MemoryOf(graph, genome), WeightsOf(graph), genome.kernels[0]);
  std::mt19937 rng(37);
  std::set<std::pair<int, int>> seen;
  for (const KernelChoice& c : Schedules(task, target)) {
    if (IsTensor(c.contract)) continue;
    if (!seen.emplace(WayOf(c.contract), c.team).second) continue;
    constexpr ThreeSizes kFew[] = {{5, 67, 3}, {67, 17, 131}};
    ExpectSchedule(task, c, target, kFew, rng);
    if (HasFailure()) return;
  }
  EXPECT_GE(seen.size(), 3);
}

INSTANTIATE_TEST_SUITE_P(Products, TensorPlanTest, testing::ValuesIn(kPlans),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace athanor
