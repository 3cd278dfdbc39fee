// Schedules that are calls of a GPU's library give the reference evaluator's values, on the
// emulated GPU: each dtype and each proposal of the emulated library, below, at and between the
// ways of rows that calls choose, for batches, biases, views and casts.
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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
  // Proposals of all workspaces: two, four and four of the emulator, fewer where matrices are
  // unaligned or a batch.
  int proposals;
};

constexpr Case kCases[] = {
    {"F32", R"(dim b in [0, 300] %0 = Input "x" : f32[b, 20] %1 = Parameter "w" : f32[20, 24]
       %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
     10},
    {"F64", R"(dim b in [0, 300] %0 = Input "x" : f64[b, 20] %1 = Input "w" : f64[24, 20]
       %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)",
     10},
    {"F16Swapped", R"(%0 = Input "x" : f16[72, 24] %1 = Input "w" : f16[24, 16]
       %2 = Contract(%0, %1) {spec="mk,kn->nm"} output "y" = %2)",
     10},
    {"Bf16Unaligned", R"(dim b in [0, 300] %0 = Input "x" : bf16[b, 30]
       %1 = IndexMap(%0) {map=map[b, 21]($0, $1 + 3)} %2 = Input "w" : bf16[21, 13]
       %3 = Contract(%1, %2) {spec="mk,kn->mn"} output "y" = %3)",
     5},
    {"F16ToF32Bias", R"(dim b in [0, 300] %0 = Input "x" : f16[b, 16] %1 = Input "w" : f16[16, 24]
       %2 = Input "o" : f32[24] %3 = Cast(%0) {dtype=f32} %4 = Cast(%1) {dtype=f32}
       %5 = Contract(%3, %4) {spec="mk,kn->mn"} %6 = IndexMap(%2) {map=map[b, 24]($1)}
       %7 = Add(%5, %6) output "y" = %7)",
     10},
    {"F32Batched", R"(%0 = Input "x" : f32[3, 8, 20] %1 = Input "w" : f32[3, 12, 20]
       %2 = Contract(%0, %1) {spec="bmk,bnk->bmn"}
       %3 = IndexMap(%2) {map=map[24, 12](floordiv($0, 8), $0 - 8*floordiv($0, 8), $1)}
       output "y" = %3)",
     8},
    {"OneNodeAsBoth", R"(%0 = Input "x" : f32[24, 24]
       %1 = Contract(%0, %0) {spec="mk,kn->mn"} output "y" = %1)",
     10},
};

constexpr ThreeSizes kSizes[] = {{1, 1, 1},  {0, 1, 1},  {31, 1, 1},
                                 {32, 1, 1}, {47, 1, 1}, {300, 1, 1}};

class CallsTest : public testing::TestWithParam<Case> {};

TEST_P(CallsTest, GiveTheReferencesValues) {
  const absl::StatusOr<Graph> graph =
      ParseGraph(absl::StrCat("graph \"\" { ", GetParam().body, "}"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  v1::Target target = TestTargets({0})[0];
  ASSERT_EQ(target.device(), "cuda");
  target.set_blas("cuBLASLt of the emulator");
  // One kernel computes it all: casts of operands too, which others may compute in a plan.
  KernelChoice one{.root = graph->outputs[0].node, .kind = KernelKind::kContract};
  for (NodeId n = 0; n <= one.root; ++n) {
    if (graph->node(n).op == Op::kContract) one.anchor = n;
  }
  const KernelTask task = CutTask(*graph, MemoryOf(*graph, {{one}}), WeightsOf(*graph), one);
  std::vector<Tensor> parameters;
  for (NodeId n : task.graph.ParameterIds()) {
    parameters.push_back(Tensor::Zeros(task.graph.node(n).type.dtype,
                                       ConcreteShape(task.graph.node(n).type.shape, {}).value()));
  }
  std::mt19937 rng(31);
  int run = 0;
  for (const KernelChoice& choice : Schedules(task, target)) {
    if (!IsCall(choice)) continue;
    const absl::Status known =
        CompileScheduled(WithSchedule(task, choice, target), parameters, target).status();
    if (absl::IsInvalidArgument(known)) continue;  // the library proposes fewer
    ExpectSchedule(task, choice, target, kSizes, rng);
    if (HasFailure()) return;
    ++run;
  }
  EXPECT_EQ(run, GetParam().proposals);
}

INSTANTIATE_TEST_SUITE_P(Contractions, CallsTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace athanor
