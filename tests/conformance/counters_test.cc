// Pins what kernels ask of a GPU's memory, by the emulator's counters: sectors of 32 bytes that
// loads and stores touch, turns of shared memory's banks, barriers. Of each kernel kind there is a
// case or more, by the baseline's schedule or one that the case names. No time is measured: a
// lowering that stops coalescing shows here all the same.
//
// testdata/counters.txt has them; a change there is one of speed, for better or worse. To write it
// anew, run the test with ATHANOR_GOLDEN_OUT=<folder>.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"
#include "gtest/gtest.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/harness.h"
#include "tests/emulator/counters_testing.h"

namespace athanor {
namespace {

struct Case {
  const char* name;
  const char* body;
  const char* schedule = "";  // empty: the baseline's
};

constexpr char kProduct[] = R"(%0 = Input "x" : f32[128, 64] %1 = Input "w" : f32[64, 128]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)";
constexpr char kTurnedProduct[] = R"(%0 = Input "x" : f32[128, 64] %1 = Input "w" : f32[128, 64]
    %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)";
constexpr char kF64Product[] = R"(%0 = Input "x" : f64[128, 64] %1 = Input "w" : f64[64, 128]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)";
constexpr char kF16Product[] = R"(%0 = Input "x" : f16[128, 64] %1 = Input "w" : f16[64, 128]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)";
constexpr char kTurnedF16Product[] =
    R"(%0 = Input "x" : f16[128, 64] %1 = Input "w" : f16[128, 64]
    %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)";
constexpr char kI8Product[] = R"(%0 = Input "x" : i8[128, 64] %1 = Input "w" : i8[128, 64]
    %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)";
constexpr char kEdges[] = R"(%0 = Input "x" : f32[70, 37] %1 = Input "w" : f32[37, 150]
    %2 = Input "o" : f32[150] %3 = Contract(%0, %1) {spec="mk,kn->mn"}
    %4 = IndexMap(%2) {map=map[70, 150]($1)} %5 = Add(%3, %4) %6 = Tanh(%5) output "y" = %6)";
constexpr char kFewRows[] = R"(%0 = Input "x" : f32[4, 256] %1 = Input "w" : f32[256, 128]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)";
constexpr char kDots[] = R"(%0 = Input "x" : f32[4, 256] %1 = Input "w" : f32[32, 256]
    %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)";
constexpr char kWindows[] =
    R"(%0 = Input "x" : f32[2, 8, 12, 12] %1 = Parameter "w" : f32[16, 8, 3, 3]
    %2 = IndexMap(%0) {fill=f32[] {0}, map=map[2, 8, 3, 3, 12, 12]($0, $1, $2 + $4 - 1, $3 + $5 - 1)}
    %3 = Contract(%2, %1) {spec="ncUVuv,mcUV->nmuv"} output "y" = %3)";
constexpr char kMap[] = R"(%0 = Input "x" : f32[64, 100] %1 = Input "w" : f32[100]
    %2 = IndexMap(%1) {map=map[64, 100]($1)} %3 = Mul(%0, %2) output "y" = %3)";
constexpr char kRow[] = R"(%0 = Input "x" : f32[64, 200] %1 = Exp(%0) %2 = SumReduce(%1) {axes=[1]}
    %3 = IndexMap(%2) {map=map[64, 200]($0)} %4 = Div(%1, %3) output "y" = %4)";
constexpr char kLongRow[] = R"(%0 = Input "x" : f32[8, 2000] %1 = Exp(%0)
    %2 = SumReduce(%1) {axes=[1]} %3 = IndexMap(%2) {map=map[8, 2000]($0)} %4 = Div(%1, %3)
    output "y" = %4)";
constexpr char kPoint[] = R"(%0 = Input "x" : f32[64, 200] %1 = SumReduce(%0) {axes=[1]}
    output "y" = %1)";

constexpr Case kCases[] = {
    {"map", kMap},
    {"map of waves", kMap, "map elements=32 unroll=1 team=32"},
    {"map, four elements a thread", kMap, "map elements=4 unroll=1"},
    {"map, transposed", R"(%0 = Input "x" : f32[64, 96]
       %1 = IndexMap(%0) {map=map[96, 64]($1, $0)} output "y" = %1)"},
    {"map, f16", R"(%0 = Input "x" : f16[64, 100] %1 = Exp(%0) output "y" = %1)"},
    {"gather of rows", R"(%0 = Input "x" : f32[50, 64] %1 = Input "i" : i32[40]
       %2 = Gather(%0, %1) {axis=0} output "y" = %2)"},
    {"sum of columns", R"(%0 = Input "x" : f32[64, 200] %1 = SumReduce(%0) {axes=[0]}
       output "y" = %1)"},
    {"row", kRow},
    {"row of blocks", kLongRow, "row unroll=1 team=128"},
    {"row, one thread", kRow, "row unroll=1"},
    {"point", kPoint},
    {"point, one thread", kPoint, "point unroll=1"},
    {"contract in place", kFewRows},
    {"contract of a weight in panels",
     R"(%0 = Input "x" : f32[4, 256] %1 = Parameter "w" : f32[128, 256]
       %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)"},
    {"contract of dots", kDots},
    {"contract packed", kTurnedProduct, "contract mr=8 nv=2 rows=8 panels=1 kc=24 team=32"},
    {"contract of windows", kWindows},
    {"contract staged", kProduct, "contract mr=8 nv=8 rows=64 panels=1 kc=16 staged team=128"},
    {"contract staged, small", kProduct,
     "contract mr=4 nv=4 rows=32 panels=1 kc=32 staged team=128"},
    {"contract staged along the sums", kTurnedProduct,
     "contract mr=8 nv=8 rows=64 panels=1 kc=16 staged team=128"},
    {"contract staged, f64", kF64Product,
     "contract mr=8 nv=4 rows=64 panels=1 kc=8 staged team=128"},
    {"contract staged, f16", kF16Product,
     "contract mr=8 nv=8 rows=64 panels=1 kc=16 staged team=128"},
    {"contract staged, edges and an epilogue", kEdges,
     "contract mr=8 nv=8 rows=64 panels=1 kc=16 staged team=128"},
    {"contract staged, windows", kWindows,
     "contract mr=4 nv=8 rows=32 panels=1 kc=16 swap staged team=128"},
    {"contract of matrix instructions", kF16Product,
     "contract mr=4 nv=4 rows=128 panels=1 kc=32 tensor team=128"},
    {"contract of matrix instructions, copied ahead", kF16Product,
     "contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor stages=3 team=128"},
    {"contract of matrix instructions along the sums", kTurnedF16Product,
     "contract mr=2 nv=4 rows=64 panels=1 kc=32 tensor stages=3 team=128"},
    {"contract of matrix instructions, i8", kI8Product,
     "contract mr=2 nv=4 rows=64 panels=1 kc=64 tensor stages=2 team=128"},
    {"contract staged, split sums", kProduct,
     "contract mr=4 nv=4 rows=32 panels=1 kc=8 staged split=4 team=128"},
    {"contract of matrix instructions, split sums", kTurnedF16Product,
     "contract mr=1 nv=4 rows=32 panels=1 kc=32 tensor stages=2 split=2 team=128"},
    {"attention", R"(%0 = Input "q" : f32[2, 64, 32] %1 = Attention(%0, %0, %0) output "y" = %1)"},
    {"scatter of rows", R"(%0 = Input "x" : f32[20, 64] %1 = Input "i" : i32[8]
       %2 = Input "v" : f32[8, 64] %3 = Scatter(%0, %1, %2) {axis=0, mode="add"}
       output "y" = %3)"},
    {"scatter along rows", R"(%0 = Input "x" : f32[20, 64] %1 = Input "i" : i32[8]
       %2 = Input "v" : f32[20, 8] %3 = Scatter(%0, %1, %2) {axis=1, mode="add"}
       output "y" = %3)"},
    {"top-k", R"(%0 = Input "x" : f32[40, 50] %1 = TopK(%0) {axis=1, k=shape[3]}
       output "y" = %1)"},
};

// Runs a case's kernel; returns its schedule and what the device counted.
std::string Counted(const Case& c) {
  const absl::StatusOr<Graph> graph = ParseGraph(absl::StrCat("graph \"\" { ", c.body, " }"));
  EXPECT_TRUE(graph.ok()) << graph.status();
  const v1::Target target = TestTargets()[0];
  Fusion fusion;  // one kernel
  for (NodeId n = 0; n < static_cast<NodeId>(graph->nodes.size()); ++n) {
    if (!graph->node(n).inputs.empty()) fusion.nodes[n] = Fuse::kInline;
  }
  const Genome genome = ChooseKernels(*graph, target, fusion);
  EXPECT_EQ(genome.kernels.size(), 1);
  const KernelTask task =
      CutTask(*graph, MemoryOf(*graph, genome), WeightsOf(*graph), genome.kernels.back());
  KernelChoice choice = task.choice;
  if (*c.schedule != '\0') {
    const absl::StatusOr<KernelChoice> parsed = ParseSchedule(c.schedule);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    choice = *parsed;
    choice.root = task.choice.root;
    choice.anchor = task.choice.anchor;
  }
  std::mt19937 rng(7);
  std::vector<Tensor> parameters, inputs;
  const auto random = [&](NodeId id) {
    const TensorType& type = task.graph.node(id).type;
    std::vector<int64_t> shape;
    for (const Expr& e : type.shape) shape.push_back(*e.constant());
    return IsFloat(type.dtype) ? RandomTensor(type.dtype, shape, rng)
                               : RandomIndices(type.dtype, shape, 20, rng);
  };
  for (NodeId n : task.graph.ParameterIds()) parameters.push_back(random(n));
  for (NodeId n : task.graph.InputIds()) inputs.push_back(random(n));
  auto compiled = CompileScheduled(WithSchedule(task, choice, target), parameters, target);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return "";
  const auto outputs = compiled->Run(inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return absl::StrCat(ScheduleText(choice), "\n",
                      emulator::CountersText(emulator::CountersOf(TestGpuLibrary())));
}

TEST(CountersTest, AreThoseOfTheGoldenFile) {
  std::string got;
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    absl::StrAppend(&got, "# ", c.name, "\n", Counted(c), "\n");
  }
  if (const char* const folder = std::getenv("ATHANOR_GOLDEN_OUT")) {
    std::ofstream(absl::StrCat(folder, "/counters.txt")) << got;
  }
  std::ifstream file("tests/conformance/testdata/counters.txt");
  std::stringstream golden;
  golden << file.rdbuf();
  // By kernels, so that a failure shows which one.
  const std::vector<std::string> is = absl::StrSplit(got, "\n\n");
  const std::vector<std::string> was = absl::StrSplit(golden.str(), "\n\n");
  for (size_t i = 0; i < std::max(is.size(), was.size()); ++i) {
    EXPECT_EQ(i < is.size() ? is[i] : "", i < was.size() ? was[i] : "");
  }
}

}  // namespace
}  // namespace athanor
