// Panels of weights that are wider than tiles: the sums have the same bits in any, and plans for
// different sizes share one packed copy of each weight.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/kernels/task.h"
#include "gtest/gtest.h"
#include "runtime/plan_memory.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

KernelTask LastTask(const Graph& graph, const v1::Target& target, const FusionRules& rules) {
  const Genome genome = ChooseKernels(graph, target, {.rules = rules});
  return CutTask(graph, MemoryOf(graph, genome), WeightsOf(graph), genome.kernels.back());
}

// Draws a product by a weight: columns of less than a vector, of whole and cut off panels, a prime.
std::string Product(std::mt19937& rng) {
  constexpr int kColumns[] = {1, 2, 15, 17, 32, 61, 64, 67, 96, 127, 128, 130, 251, 1024};
  constexpr int kSums[] = {1, 2, 31, 64, 129, 300};
  constexpr const char* kTypes[] = {"f32", "f64", "f16", "bf16", "i32", "i64"};
  const int columns = kColumns[rng() % std::size(kColumns)], sums = kSums[rng() % std::size(kSums)];
  const char* type = kTypes[rng() % std::size(kTypes)];
  const bool transposed = rng() % 2 == 0;
  const std::string w =
      transposed ? absl::StrCat(columns, ", ", sums) : absl::StrCat(sums, ", ", columns);
  return absl::StrCat("graph \"\" {\n dim b in [0, 300]\n %0 = Input \"x\" : ", type, "[b, ", sums,
                      "]\n %1 = Parameter \"w\" : ", type, "[", w,
                      "]\n %2 = Contract(%0, %1) {spec=\"bk,", transposed ? "nk" : "kn",
                      "->bn\"}\n %3 = Mul(%2, %2)\n output \"y\" = %3\n}");
}

TEST(PanelsTest, BitsAreThoseOfPanelsLikeTiles) {
  std::mt19937 rng(3);
  const std::vector<v1::Target> targets = TestTargets();
  for (int i = 0; i < 24; ++i) {
    const std::string text = Product(rng);
    SCOPED_TRACE(text);
    const Graph graph = ParseGraph(text).value();
    const v1::Target& target = targets[i % targets.size()];
    if (target.device() != "cpu") GTEST_SKIP() << "only CPUs have shared panels";
    const KernelTask task = LastTask(graph, target, {.one_panel = i % 2 == 0});
    std::vector<KernelChoice> all = Schedules(task, target);
    std::erase_if(all, [](const KernelChoice& c) {
      const auto* panels = std::get_if<PanelSchedule>(&c.contract);
      return panels == nullptr || panels->columns != ColumnAccess::kAhead;
    });
    ASSERT_FALSE(all.empty());
    KernelChoice wide = all[rng() % all.size()];
    auto& panels = std::get<PanelSchedule>(wide.contract);
    // Also panels that no rule asks for, such as three tiles wide.
    if (panels.panel == 0) panels.panel = panels.nv * static_cast<int>(1 + rng() % 5);
    KernelChoice usual = wide;
    std::get<PanelSchedule>(usual.contract).panel = 0;
    SCOPED_TRACE(ScheduleText(wide));
    const TensorType& type = graph.node(1).type;
    const Tensor weight =
        RandomTensor(type.dtype, {*type.shape[0].constant(), *type.shape[1].constant()}, rng);
    auto got = CompileScheduled(WithSchedule(task, wide, target), {weight}, target);
    ASSERT_TRUE(got.ok()) << got.status();
    auto want = CompileScheduled(WithSchedule(task, usual, target), {weight}, target);
    ASSERT_TRUE(want.ok()) << want.status();
    const int64_t sums = *graph.node(0).type.shape[1].constant();
    for (const int64_t rows : {0, 1, 5, 67}) {
      const Tensor x = RandomTensor(type.dtype, {rows, sums}, rng);
      const auto y = got->Run({x}), same = want->Run({x});
      ASSERT_TRUE(y.ok() && same.ok()) << y.status() << same.status();
      EXPECT_TRUE((*y)[0].bytes == (*same)[0].bytes) << rows << " rows";
    }
  }
}

// A layer's products: of keys, whose columns are few for wide tiles in a box of one row; of what
// the layer adds; and of a weight that is stored in four bits.
Graph Layer(const std::string& rows) {
  return ParseGraph(absl::StrCat("graph \"\" {\n dim t in ", rows, R"(
    %0 = Input "x" : f32[t, 576]
    %1 = Parameter "k" : f32[192, 576]
    %2 = Parameter "o" : f32[576, 192]
    %3 = Parameter "up" : u8[1536, 288]
    %4 = Parameter "scale" : f32[1536, 18]
    %5 = Contract(%0, %1) {spec="bk,nk->bn"}
    %6 = Tanh(%5)
    %7 = Contract(%6, %2) {spec="bk,nk->bn"}
    %8 = Add(%0, %7)
    %9 = Dequantize(%3, %4) {axis=1, bits=4, block=32, dtype=f32}
    %10 = Contract(%8, %9) {spec="bk,nk->bn"}
    output "y" = %10
  })"))
      .value();
}

// Returns the bytes of weights that plans for both boxes hold together.
int64_t HeldBytes(const FusionRules& rules, std::set<std::string>* tiles) {
  v1::Target target;
  target.set_device("cpu");
  target.set_vector_bytes(64);
  target.set_vector_registers(32);
  target.set_l1_bytes(32 << 10);
  target.set_l2_bytes(1 << 20);
  target.set_threads(2);
  const ParameterHashes hashes = {{"k", "K"}, {"o", "O"}, {"up", "U"}, {"scale", "S"}};
  std::map<std::string, int64_t> held;  // by key
  for (const char* rows : {"[1, 1]", "[65, 512]"}) {
    const absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(Layer(rows), target, rules);
    if (!plan.ok()) {
      ADD_FAILURE() << plan.status();
      continue;
    }
    for (const char* nv : {"nv=1", "nv=2", "nv=4"}) {
      if (absl::StrContains(plan->genome(), absl::StrCat(" ", nv, " "))) {
        tiles->insert(absl::StrCat(rows, " ", nv));
      }
    }
    const absl::StatusOr<PlanMemory> memory = MemoryOf(*plan, hashes, /*host_memory=*/true);
    if (!memory.ok()) {
      ADD_FAILURE() << memory.status();
      continue;
    }
    for (const PlanMemory::Weight& weight : memory->weights) {
      EXPECT_FALSE(weight.key.empty());
      held[weight.key] = weight.bytes;
    }
  }
  int64_t bytes = 0;
  for (const auto& [key, size] : held) bytes += size;
  return bytes;
}

TEST(PanelsTest, BoxesShareOneCopy) {
  constexpr int64_t kWeights = int64_t{4} * 576 * (192 + 192 + 1536);
  std::set<std::string> tiles;
  EXPECT_LE(HeldBytes({.one_panel = true}, &tiles), kWeights * 105 / 100);
  // Not because tiles of both boxes are alike: without the option they hold a second copy.
  EXPECT_TRUE(tiles.contains("[1, 1] nv=2")) << *tiles.begin();
  EXPECT_TRUE(tiles.contains("[65, 512] nv=4"));
  EXPECT_GT(HeldBytes({}, &tiles), kWeights * 105 / 100);
}

}  // namespace
}  // namespace athanor
