// Every schedule that stages both operands of a contraction in a GPU's shared memory gives the
// reference evaluator's values, on the emulated GPU: at sizes of 0, 1, primes, exact tiles and a
// little more, of each kind of dtype, and with infinities and NaN beside what padding hides.
#include <algorithm>
#include <limits>
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
    {"Padded", R"(%0 = Input "x" : f32[b, s] %1 = Input "w" : f32[t, s]
       %2 = IndexMap(%0) {fill=f32[] {0.5}, map=map[b, s + 3]($0, $1 - 2)}
       %3 = IndexMap(%1) {fill=f32[] {0.25}, map=map[t, s + 3]($0, $1 - 1)}
       %4 = Contract(%2, %3) {spec="bk,nk->bn"} output "y" = %4)"},
};

constexpr int64_t kSizes[][3] = {{1, 1, 1},  {2, 0, 3},     {0, 5, 7},     {3, 4, 0},
                                 {5, 67, 3}, {64, 32, 128}, {67, 17, 131}, {31, 33, 61}};

class StagedTest : public testing::TestWithParam<Case> {
 protected:
  Tensor Random(const Node& node, const int64_t (&sizes)[3]) {
    const Expr::Env env = {{"b", sizes[0]}, {"s", sizes[1]}, {"t", sizes[2]}};
    std::vector<int64_t> shape;
    for (const Expr& e : node.type.shape) shape.push_back(e.Evaluate(env).value());
    Tensor t = RandomTensor(node.type.dtype, shape, rng_);
    if (!IsFloat(node.type.dtype) || t.elements() < 20) return t;
    for (const double v :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      StoreScalar(t, static_cast<int64_t>(rng_() % t.elements()),
                  Scalar::Float(node.type.dtype, v));
    }
    return t;
  }

  std::mt19937 rng_{17};
};

TEST_P(StagedTest, GivesTheReferencesValues) {
  auto graph = ParseGraph(absl::StrCat("graph \"\" { dim b in [0, 300] dim s in [0, 300] ",
                                       "dim t in [0, 300] ", GetParam().body, "}"));
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
  const int bytes = DTypeBytes(AccumulatorOf(graph->node(anchor).type.dtype));
  int run = 0;
  for (ContractSchedule s : StagedSchedules(bytes)) {
    s.swap = run++ % 3 == 2;
    KernelChoice choice = task.choice;
    choice.contract = s;
    choice.team = 128;
    SCOPED_TRACE(ScheduleText(choice));
    auto compiled = CompileScheduled(WithSchedule(task, choice, target), {}, target);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    for (const auto& sizes : kSizes) {
      std::vector<Tensor> inputs;
      for (NodeId n : task.graph.InputIds()) inputs.push_back(Random(task.graph.node(n), sizes));
      auto want = Evaluate(task.graph, inputs);
      ASSERT_TRUE(want.ok()) << want.status();
      auto got = compiled->Run(inputs);
      ASSERT_TRUE(got.ok()) << got.status();
      const DType t = (*want)[0].dtype;
      const double bound = t == DType::kF64    ? 1e-12
                           : t == DType::kF16  ? 1e-2
                           : t == DType::kBF16 ? 6e-2
                                               : 2e-4;
      const absl::Status same = CompareTensors((*got)[0], (*want)[0], bound, bound);
      ASSERT_TRUE(same.ok()) << same << " at " << sizes[0] << ", " << sizes[1] << ", " << sizes[2];
    }
  }
  EXPECT_GE(run, 4);
}

INSTANTIATE_TEST_SUITE_P(Contractions, StagedTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace athanor
