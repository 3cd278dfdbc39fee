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
#include "absl/strings/str_join.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/kernels/task.h"
#include "gtest/gtest.h"
#include "runtime/memory/plan_memory.h"
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

struct Stored {
  const char* name;
  std::vector<const char*> parameters;  // types
  std::vector<const char*> weight;      // the nodes behind; the last one is f32[83, 64]
};

// Weights that are stored otherwise than they are multiplied are packed from what is stored, in one
// step.
TEST(PanelsTest, PacksComputeStoredWeights) {
  const Stored all[] = {
      {"f16", {"f16[83, 64]"}, {"Cast(%1) {dtype=f32}"}},
      {"bf16, transposed",
       {"bf16[64, 83]"},
       {"Cast(%1) {dtype=f32}", "IndexMap(%2) {map=map[83, 64]($1, $0)}"}},
      {"bytes by row", {"i8[83, 64]", "f32[83]"}, {"Dequantize(%1, %2) {axis=0, dtype=f32}"}},
      {"four bits by block",
       {"u8[83, 32]", "f32[83, 2]", "u8[83, 2]"},
       {"Dequantize(%1, %2, %3) {axis=1, bits=4, block=32, dtype=f32}"}},
      {"padded",
       {"f16[80, 61]"},
       {"Cast(%1) {dtype=f32}", "IndexMap(%2) {fill=f32[] {2}, map=map[83, 64]($0 - 2, $1)}"}},
  };
  std::mt19937 rng(5);
  for (const Stored& stored : all) {
    SCOPED_TRACE(stored.name);
    std::string text = "graph \"\" { dim b in [0, 300] %0 = Input \"x\" : f32[b, 64]\n";
    int last = 0;
    for (const char* type : stored.parameters) {
      ++last;
      absl::StrAppend(&text, "%", last, " = Parameter \"w", last, "\" : ", type, "\n");
    }
    for (const char* node : stored.weight) absl::StrAppend(&text, "%", ++last, " = ", node, "\n");
    absl::StrAppend(&text, "%", last + 1, " = Contract(%0, %", last,
                    ") {spec=\"bk,nk->bn\"} output \"y\" = %", last + 1, " }");
    const absl::StatusOr<Graph> graph = ParseGraph(text);
    ASSERT_TRUE(graph.ok()) << graph.status();
    std::vector<Tensor> parameters;
    for (const NodeId n : graph->ParameterIds()) {
      const TensorType& type = graph->node(n).type;
      std::vector<int64_t> shape;
      for (const Expr& e : type.shape) shape.push_back(*e.constant());
      parameters.push_back(RandomTensor(type.dtype, shape, rng));
    }
    if (DTypeBytes(parameters[0].dtype) == 1) {  // all bits of what is packed in bytes
      for (auto& byte : parameters[0].bytes) byte = static_cast<uint8_t>(rng());
    }
    for (const v1::Target& target : TestTargets()) {
      auto compiled = Compile(*graph, parameters, target);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      if (target.device() == "cpu") EXPECT_EQ(compiled->plan().prepare_size(), 1);
    }
    for (const int64_t rows : {1, 5, 67}) {
      ExpectMatchesReference(*graph, {RandomTensor(DType::kF32, {rows, 64}, rng)}, parameters,
                             /*slack=*/10);
    }
  }
}

// A weight of coordinates is packed, and others compute it where they read it.
TEST(PanelsTest, CoordinatesAreNoMemory) {
  const Graph graph = ParseGraph(R"(graph "" { %0 = Input "x" : f32[64, 64]
    %1 = Iota {shape=shape[64, 64], axis=1, dtype=f32}
    %2 = Contract(%0, %1) {spec="mk,kn->mn"} %3 = Add(%2, %1) output "y" = %3 })")
                          .value();
  std::mt19937 rng(9);
  ExpectMatchesReference(graph, {RandomTensor(DType::kF32, {64, 64}, rng)}, {}, /*slack=*/10);
}

// Draws a product by a weight that a chain of ops makes of what is stored, as text, and adds the
// stored tensors. At times another output reads a value of the chain.
std::string ChainText(std::mt19937& rng, std::vector<Tensor>* parameters) {
  constexpr DType kStored[] = {DType::kU8,   DType::kI8,  DType::kI32,
                               DType::kBF16, DType::kF16, DType::kF32};
  std::string text = "graph \"\" { dim b in [0, 300] %0 = Input \"x\" : f32[b, 37]\n";
  int last = 0;
  const auto add = [&](const auto&... parts) {
    absl::StrAppend(&text, "%", ++last, " = ", parts..., "\n");
    return absl::StrCat("%", last);
  };
  const auto stored = [&](DType type, std::vector<int64_t> shape) {
    parameters->push_back(RandomTensor(type, shape, rng));
    return add("Parameter \"w", parameters->size(), "\" : ", std::string(DTypeName(type)), "[",
               absl::StrJoin(shape, ", "), "]");
  };
  int64_t rows = 1 + static_cast<int64_t>(rng() % 90), columns = 37;
  bool turned = false;  // the sums are its rows
  std::string w = stored(kStored[rng() % std::size(kStored)], {rows, columns});
  w = add("Cast(", w, ") {dtype=f32}");
  std::vector<std::string> values = {w};
  for (int left = static_cast<int>(rng() % 7); left > 0; --left) {
    const auto map = [&](const std::string& of, const char* fill, auto... at) {
      return add("IndexMap(", of, ") {", fill, "map=map[", rows, ", ", columns, "](", at..., ")}");
    };
    switch (rng() % 7) {
      case 0:
        w = add("Add(", w, ", ", w, ")");
        break;
      case 1:
        w = add("Mul(", w, ", ", map(stored(DType::kF32, {rows}), "", "$0"), ")");
        break;
      case 2:
        w = map(w, "", "$0, ", columns - 1, " - $1");
        break;
      case 3:
        (turned ? columns : rows) += 3;
        w = map(w, "fill=f32[] {0.5}, ", turned ? "$0, $1 - 1" : "$0 - 1, $1");
        break;
      case 4:
        w = add("Round(", w, ")");
        break;
      case 5:
        w = add("Cast(", add("Cast(", w, ") {dtype=f16}"), ") {dtype=f32}");
        break;
      default:
        turned = !turned;
        std::swap(rows, columns);
        w = map(w, "", "$1, $0");
        break;
    }
    values.push_back(w);
  }
  const std::string y = add("Contract(%0, ", w, ") {spec=\"bk,", turned ? "kn" : "nk", "->bn\"}");
  absl::StrAppend(&text, "output \"y\" = ", y);
  if (rng() % 3 == 0) absl::StrAppend(&text, " output \"z\" = ", values[rng() % values.size()]);
  return absl::StrCat(text, " }");
}

TEST(PanelsTest, PacksComputeRandomChains) {
  std::mt19937 rng(8);
  int alone = 0;
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    std::vector<Tensor> parameters;
    const std::string text = ChainText(rng, &parameters);
    SCOPED_TRACE(text);
    const absl::StatusOr<Graph> graph = ParseGraph(text);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto compiled = Compile(*graph, parameters);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    if (compiled->plan().prepare_size() == 1) ++alone;
    ExpectMatchesReference(*graph, {RandomTensor(DType::kF32, {5, 37}, rng)}, parameters,
                           /*slack=*/10);
  }
  EXPECT_GE(alone, 6);
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
