// Tests the tiles by which a block of a GPU's threads computes a contraction: which there are, how
// a search walks among them, what they are predicted to cost, and where the rule of thumb takes
// one.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target Gpu() {
  v1::Target t;
  t.set_device("cuda");
  t.set_vector_bytes(1);
  t.set_vector_registers(32);
  t.set_l1_bytes(228 << 10);
  t.set_l2_bytes(50 << 20);
  t.set_threads(132 * 2048);
  return t;
}

v1::Target Cpu() {
  v1::Target t = Gpu();
  t.set_device("cpu");
  t.set_vector_bytes(32);
  t.set_threads(4);
  return t;
}

// Cuts out the last kernel of a graph, with its baseline's schedule.
KernelTask Task(const std::string& body, const v1::Target& target = Gpu()) {
  const absl::StatusOr<Graph> graph = ParseGraph("graph \"\" { " + body + " }");
  EXPECT_TRUE(graph.ok()) << graph.status();
  const Genome genome = ChooseKernels(*graph, target);
  return CutTask(*graph, MemoryOf(*graph, genome), WeightsOf(*graph), genome.kernels.back());
}

// Returns the text of m x k by k x n. Sizes may be the dims d, to 300, and e, to 20.
std::string Product(const std::string& m, const std::string& k, const std::string& n,
                    const std::string& dtype = "f32") {
  return absl::StrCat("dim d in [1, 300] dim e in [1, 20] %0 = Input \"x\" : ", dtype, "[", m, ", ",
                      k, "] %1 = Input \"w\" : ", dtype, "[", k, ", ", n,
                      "] %2 = Contract(%0, %1) {spec=\"mk,kn->mn\"} output \"y\" = %2");
}

v1::Target GpuWithInstructions() {
  v1::Target t = Gpu();
  t.set_cpu("sm_90a");
  return t;
}

bool IsTile(const KernelChoice& c) { return std::holds_alternative<TileSchedule>(c.contract); }
bool IsTensor(const KernelChoice& c) { return IsTensor(c.contract); }
const TileSchedule& TileOf(const KernelChoice& c) { return std::get<TileSchedule>(c.contract); }

std::vector<KernelChoice> TilesOf(const KernelTask& task, const v1::Target& target = Gpu()) {
  std::vector<KernelChoice> tiles;
  for (const KernelChoice& c : Schedules(task, target)) {
    if (IsTile(c)) tiles.push_back(c);
  }
  return tiles;
}

// Returns the shapes of tiles, rows x columns, and the pieces of the sums.
std::set<std::string> Shapes(const std::vector<KernelChoice>& tiles) {
  std::set<std::string> shapes;
  for (const KernelChoice& c : tiles) {
    const TileSchedule& s = TileOf(c);
    shapes.insert(absl::StrCat(TileRows(s), "x", TileColumns(s), "x", s.kc));
  }
  return shapes;
}

TEST(TilesTest, AreInTheSpaceOfABlockOfAGpu) {
  const KernelTask task = Task(Product("512", "512", "512"));
  const std::vector<KernelChoice> tiles = TilesOf(task);
  std::map<bool, int> swaps;
  for (const KernelChoice& c : tiles) {
    EXPECT_EQ(c.team, 128);
    EXPECT_TRUE(FitsStaged(TileOf(c), 4)) << ScheduleText(c);
    if (TileOf(c).split == 1) ++swaps[TileOf(c).swap];
  }
  EXPECT_EQ(Shapes(tiles), (std::set<std::string>{"64x128x8", "64x128x16", "64x64x8", "64x64x16",
                                                  "64x64x32", "32x128x8", "32x128x16", "32x128x32",
                                                  "32x64x8", "32x64x16", "32x64x32"}));
  EXPECT_EQ(swaps, (std::map<bool, int>{{false, 11}, {true, 11}}));
  EXPECT_TRUE(TilesOf(Task(Product("512", "512", "512"), Cpu()), Cpu()).empty());
  // Larger sums leave less room for operands.
  for (const std::string& shape : Shapes(TilesOf(Task(Product("512", "512", "512", "f64"))))) {
    EXPECT_FALSE(absl::StartsWith(shape, "64x128")) << shape;
  }
}

// Returns by how many items tiles of so many columns share their sums.
std::set<int> SplitsOf(const std::vector<KernelChoice>& tiles, int64_t rows, int64_t columns,
                       int64_t kc) {
  std::set<int> splits;
  for (const KernelChoice& c : tiles) {
    const TileSchedule& s = TileOf(c);
    if (TileRows(s) == rows && TileColumns(s) == columns && s.kc == kc) splits.insert(s.split);
  }
  return splits;
}

// There are 132 multiprocessors, each of which may have two items of four steps.
TEST(TilesTest, SplitTheirSumsWhereMultiprocessorsIdle) {
  using Set = std::set<int>;
  const auto splits = [](const std::string& m, const std::string& k, const std::string& n,
                         int64_t kc = 16, int64_t rows = 64, int64_t columns = 64) {
    return SplitsOf(TilesOf(Task(Product(m, k, n))), rows, columns, kc);
  };
  EXPECT_EQ(splits("64", "65536", "64"), (Set{1, 8, 16}));
  EXPECT_EQ(splits("64", "512", "64"), (Set{1, 4, 8}));
  EXPECT_EQ(splits("64", "512", "64", 32), (Set{1, 2, 4}));
  EXPECT_EQ(splits("64", "113", "64"), (Set{1, 2})) << "eight steps, one of them short";
  EXPECT_EQ(splits("64", "112", "64"), Set{1});
  EXPECT_EQ(splits("512", "4096", "512"), (Set{1, 2, 4})) << "64 tiles";
  EXPECT_EQ(splits("512", "4096", "512", 16, 32, 64), (Set{1, 2})) << "128 tiles";
  EXPECT_EQ(splits("8192", "4096", "132"), Set{1});
  // The largest size counts: it is that of the memory.
  EXPECT_EQ(splits("d", "4096", "64"), (Set{1, 8, 16}));
  EXPECT_EQ(splits("d", "4096", "4096"), Set{1});
  const KernelTask batch = Task(
      "%0 = Input \"x\" : f64[40, 64, 4096] %1 = Input \"w\" : f64[40, 4096, 64] "
      "%2 = Contract(%0, %1) {spec=\"amk,akn->amn\"} output \"y\" = %2");
  EXPECT_EQ(SplitsOf(TilesOf(batch), 64, 64, 8), (Set{1, 2, 4})) << "40 tiles";
  // They are few beside all others.
  const std::vector<KernelChoice> all = Schedules(Task(Product("64", "65536", "64")), Gpu());
  const auto split = std::count_if(all.begin(), all.end(), [](const KernelChoice& c) {
    return IsTile(c) && TileOf(c).split > 1;
  });
  EXPECT_EQ(split, 2 * 2 * 6);
  EXPECT_GT(all.size(), 20 * split);
}

TEST(TilesTest, ThatSizesLeaveMostlyEmptyAreNotInTheSpace) {
  const auto shapes = [](const std::string& m, const std::string& k, const std::string& n) {
    std::vector<KernelChoice> tiles = TilesOf(Task(Product(m, k, n)));
    tiles.erase(std::remove_if(tiles.begin(), tiles.end(),
                               [](const KernelChoice& c) { return TileOf(c).swap; }),
                tiles.end());
    return Shapes(tiles);
  };
  using Set = std::set<std::string>;
  EXPECT_EQ(shapes("32", "512", "64"), (Set{"32x64x8", "32x64x16", "32x64x32"}));
  EXPECT_EQ(shapes("16", "16", "32"), (Set{"32x64x8", "32x64x16"}));
  EXPECT_EQ(shapes("33", "8", "65"), (Set{"64x128x8", "64x64x8", "32x128x8", "32x64x8"}));
  EXPECT_EQ(shapes("15", "512", "512"), Set{});
  EXPECT_EQ(shapes("512", "512", "31"), Set{});
  EXPECT_EQ(shapes("512", "3", "512"), Set{});
  // Calls may choose more than they mostly do.
  EXPECT_EQ(shapes("e", "9", "d"), (Set{"32x128x8", "32x128x16", "32x64x8", "32x64x16"}));
}

// A search that has a tile comes to each other one by steps in one parameter, and to schedules of
// blocks that are none.
TEST(TilesTest, AreNeighbours) {
  for (const char* m : {"100", "4000"}) {
    std::vector<KernelChoice> all = Schedules(Task(Product(m, "512", "512")), Gpu());
    std::erase_if(all, [](const KernelChoice& c) { return c.team != 128; });
    std::vector<KernelChoice> open = {*std::find_if(all.begin(), all.end(), IsTile)};
    std::set<std::string> met = {ScheduleText(open[0])};
    int tiles = 0;
    while (!open.empty()) {
      const KernelChoice at = open.back();
      open.pop_back();
      tiles += IsTile(at);
      const std::vector<KernelChoice> near = Neighbours(at, all);
      EXPECT_GE(near.size(), 3) << ScheduleText(at);
      for (const KernelChoice& c : near) {
        if (met.insert(ScheduleText(c)).second) open.push_back(c);
      }
    }
    // Each of the few tiles of 100 rows has two splits.
    EXPECT_EQ(tiles, m == std::string("100") ? 66 : 22) << m;
    EXPECT_EQ(met.size(), all.size()) << m;
  }
}

// Neighbours differ in one parameter, and nothing lies between.
TEST(TilesTest, NeighboursAreTheNearest) {
  const std::vector<KernelChoice> all = Schedules(Task(Product("4000", "512", "512")), Gpu());
  const auto tile = std::find_if(all.begin(), all.end(), [](const KernelChoice& c) {
    return ScheduleText(c) == "contract mr=4 nv=4 rows=32 panels=1 kc=8 staged team=128";
  });
  ASSERT_NE(tile, all.end());
  std::set<std::string> near;
  for (const KernelChoice& c : Neighbours(*tile, all)) near.insert(ScheduleText(c));
  EXPECT_EQ(near, (std::set<std::string>{
                      "contract mr=4 nv=4 rows=32 panels=1 kc=8 swap staged team=128",
                      "contract mr=4 nv=4 rows=32 panels=1 kc=16 staged team=128",
                      "contract mr=8 nv=4 rows=64 panels=1 kc=8 staged team=128",
                      "contract mr=4 nv=8 rows=32 panels=1 kc=8 staged team=128",
                      "contract mr=4 nv=4 rows=4 panels=1 kc=128 team=128",
                  }));
}

class Prices {
 public:
  explicit Prices(const std::string& body)
      : task_(Task(body)), cost_(task_, {}, Gpu(), Machine::Typical(Gpu())) {}

  double Of(int mr, int nv, int64_t kc = 16, int split = 1) const {
    KernelChoice c = task_.choice;
    c.team = 128;
    c.contract = TileSchedule{.mr = mr, .nv = nv, .kc = kc, .split = split};
    return cost_.Predict(c);
  }
  // Returns the text of the schedule that is predicted to be the fastest.
  std::string Best() const {
    const std::vector<KernelChoice> all = Schedules(task_, Gpu());
    return ScheduleText(*std::min_element(all.begin(), all.end(),
                                          [&](const KernelChoice& a, const KernelChoice& b) {
                                            return cost_.Predict(a) < cost_.Predict(b);
                                          }));
  }
  double roofline() const { return cost_.roofline(); }

 private:
  const KernelTask task_;
  const TaskCost cost_;
};

TEST(TilesTest, LargeOnesWinWhereTheyFillTheGpu) {
  const Prices many(
      "%0 = Input \"x\" : f32[8192, 8192] %1 = Input \"w\" : f32[8192, 8192] "
      "%2 = Contract(%0, %1) {spec=\"mk,kn->mn\"} output \"y\" = %2");
  EXPECT_LT(many.Of(8, 8), many.Of(8, 4));
  EXPECT_LT(many.Of(8, 8), many.Of(4, 8));
  EXPECT_LT(many.Of(8, 4), many.Of(4, 4));
  EXPECT_LT(many.Of(4, 8), many.Of(4, 4));
  EXPECT_LT(many.Of(8, 8), 3 * many.roofline());
  EXPECT_TRUE(absl::StartsWith(many.Best(), "contract mr=8 nv=8 rows=64 ")) << many.Best();
}

TEST(TilesTest, SmallOnesWinWhereLargeOnesLeaveMultiprocessorsIdle) {
  const Prices few(Product("256", "4096", "256"));
  EXPECT_GT(few.Of(8, 8), few.Of(8, 4));
  EXPECT_GT(few.Of(8, 8), few.Of(4, 8));
  EXPECT_GT(few.Of(8, 4), few.Of(4, 4));
  EXPECT_GT(few.Of(4, 8), few.Of(4, 4));
}

TEST(TilesTest, SplitSumsWinWhereTilesAreFewAndSumsMany) {
  const Prices few(Product("64", "16384", "64"));
  EXPECT_LT(few.Of(8, 4, 16, 2), few.Of(8, 4));
  EXPECT_LT(few.Of(8, 4, 16, 16), few.Of(8, 4, 16, 2));
  EXPECT_LT(few.Of(8, 4, 16, 16), few.Of(8, 4) / 8);
  EXPECT_TRUE(absl::StrContains(few.Best(), " split=")) << few.Best();
  // What they keep costs more than it spares.
  const Prices short_sums(Product("64", "16", "64"));
  EXPECT_GT(short_sums.Of(8, 4, 16, 2), short_sums.Of(8, 4));
  const Prices many(Product("4096", "4096", "4096"));
  EXPECT_GT(many.Of(8, 8, 16, 2), many.Of(8, 8));
}

TEST(TilesTest, CostMoreOfLargerProducts) {
  double last = 0;
  for (const char* rows : {"64", "640", "6400", "64000"}) {
    const double seconds = Prices(Product(rows, "1024", "1024")).Of(8, 8);
    EXPECT_GE(seconds, last) << rows;
    last = seconds;
  }
  for (const char* sums : {"16", "17", "200", "5000"}) {
    const double seconds = Prices(Product("4096", sums, "1024")).Of(8, 8);
    EXPECT_GE(seconds, last * (*sums == '1' ? 0 : 1)) << sums;
    last = seconds;
  }
  // Sums of nothing are stored all the same: by one thread of four it takes longer.
  KernelTask empty = Task(
      "%0 = Input \"x\" : f32[256, 0] %1 = Input \"w\" : f32[0, 256] "
      "%2 = Contract(%0, %1) {spec=\"mk,kn->mn\"} output \"y\" = %2",
      Cpu());
  const auto seconds_of_rows = [&](int64_t rows) {
    KernelChoice c = empty.choice;
    c.contract = PanelSchedule{.mr = 4, .nv = 2, .rows_per_item = rows, .panels_per_item = 16};
    return TaskCost(empty, {}, Cpu(), Machine::Typical(Cpu())).Predict(c);
  };
  EXPECT_GT(seconds_of_rows(256), seconds_of_rows(16));
  // Nothing is computed of nothing.
  EXPECT_LT(Prices("dim z in [0, 9] %0 = Input \"x\" : f32[64, 0] %1 = Input \"w\" : f32[0, 64] "
                   "%2 = Contract(%0, %1) {spec=\"mk,kn->mn\"} output \"y\" = %2")
                .Of(4, 4),
            1e-4);
}

// Returns the baseline's schedule of the last kernel.
std::string Rule(const std::string& body, const v1::Target& target = Gpu()) {
  return ScheduleText(Task(body, target).choice);
}

TEST(TilesTest, TheRuleOfThumbTakesThemForEnoughRowsColumnsAndSums) {
  const std::string large = "contract mr=8 nv=8 rows=64 panels=1 kc=16 staged team=128";
  const std::string small = "contract mr=4 nv=4 rows=32 panels=1 kc=16 staged team=128";
  EXPECT_EQ(Rule(Product("4096", "4096", "4096")), large);
  EXPECT_EQ(Rule(Product("1024", "64", "1024")),
            "contract mr=8 nv=4 rows=64 panels=1 kc=16 staged team=128");
  EXPECT_EQ(Rule(Product("256", "256", "256")), small);
  EXPECT_EQ(Rule(Product("32", "16", "32")), small);
  // A size that calls choose is mostly less.
  EXPECT_EQ(Rule(Product("d", "256", "256")), small);
  for (const std::string& body : {Product("31", "256", "256"), Product("256", "15", "256"),
                                  Product("256", "256", "31"), Product("e", "256", "256")}) {
    EXPECT_FALSE(absl::StrContains(Rule(body), "staged")) << Rule(body) << " of " << body;
  }
  EXPECT_FALSE(absl::StrContains(Rule(Product("4096", "4096", "4096"), Cpu()), "staged"));
}

TEST(TilesTest, TheRuleOfThumbTakesMatrixInstructionsOfTheChip) {
  const auto rule = [](const std::string& body) { return Rule(body, GpuWithInstructions()); };
  const auto product = [](const std::string& n, const std::string& dtype) {
    return Product(n, n, n, dtype);
  };
  for (const char* dtype : {"f16", "bf16", "i8", "u8"}) {
    EXPECT_TRUE(absl::StrContains(rule(product("4096", dtype)), " tensor ")) << dtype;
    EXPECT_TRUE(absl::StartsWith(rule(product("4096", dtype)), "contract mr=4 nv=8 rows=128 "));
    EXPECT_TRUE(absl::StartsWith(rule(product("128", dtype)), "contract mr=1 nv=4 rows=32 "));
    EXPECT_TRUE(absl::StrContains(Rule(product("4096", dtype)), " staged "))
        << "of a chip without them: " << dtype;
  }
  for (const char* dtype : {"f32", "f64", "i32"}) {
    EXPECT_TRUE(absl::StrContains(rule(product("4096", dtype)), " staged ")) << dtype;
  }
  // What is cast is what an instruction multiplies.
  EXPECT_TRUE(
      absl::StrContains(rule("%0 = Input \"x\" : f16[512, 512] %1 = Input \"w\" : f16[512, 512] "
                             "%2 = Cast(%0) {dtype=f32} %3 = Cast(%1) {dtype=f32} "
                             "%4 = Contract(%2, %3) {spec=\"mk,kn->mn\"} output \"y\" = %4"),
                        " tensor "));
  // The largest tile has room for three stages of 32 bytes a row, others for longer rows.
  EXPECT_EQ(rule(product("4096", "f16")),
            "contract mr=4 nv=8 rows=128 panels=1 kc=16 tensor stages=3 team=128");
  EXPECT_EQ(rule(product("4096", "i8")),
            "contract mr=4 nv=8 rows=128 panels=1 kc=32 tensor stages=3 team=128");
  EXPECT_EQ(rule(product("128", "f16")),
            "contract mr=1 nv=4 rows=32 panels=1 kc=32 tensor stages=3 team=128");
}

TEST(TilesTest, OfMatrixInstructionsArePredictedToBeFaster) {
  const v1::Target target = GpuWithInstructions();
  const KernelTask task = Task(Product("8192", "8192", "8192", "bf16"), target);
  const TaskCost cost(task, {}, target, Machine::Typical(target));
  const auto least = [&](const auto& among) {
    double seconds = std::numeric_limits<double>::infinity();
    for (const KernelChoice& c : Schedules(task, target)) {
      if (among(c)) seconds = std::min(seconds, cost.Predict(c));
    }
    return seconds;
  };
  const double tensor = least(IsTensor);
  EXPECT_LT(4 * tensor, least([](const KernelChoice& c) { return !IsTensor(c); }));
  EXPECT_GE(tensor, cost.roofline());
  // Copies that run ahead are waited for less.
  const auto stages = [&](int n) {
    return least([n](const KernelChoice& c) {
      return IsTensor(c) && TileOf(c).stages == n && TileOf(c).mr == 4 && TileOf(c).nv == 4;
    });
  };
  EXPECT_LE(stages(2), stages(1));
  EXPECT_LE(stages(3), stages(2));
}

// Lanes follow the stores, whichever operand is a weight and however it lies in memory.
TEST(TilesTest, OfTheRuleOfThumbStoreNeighbours) {
  const auto rule = [](const std::string& left, const std::string& right, const std::string& spec) {
    return Rule(absl::StrCat("%0 = ", left, " %1 = ", right, " %2 = Contract(%0, %1) {spec=\"",
                             spec, "\"} output \"y\" = %2"));
  };
  const std::string x = "Input \"x\" : f32[256, 300]", w = "Parameter \"w\" : f32[300, 512]";
  EXPECT_EQ(rule(x, w, "mk,kn->mn"), "contract mr=4 nv=4 rows=32 panels=1 kc=16 staged team=128");
  EXPECT_EQ(rule(x, w, "mk,kn->nm"),
            "contract mr=4 nv=4 rows=32 panels=1 kc=16 swap staged team=128");
  EXPECT_EQ(rule("Parameter \"w\" : f32[300, 256]", "Input \"x\" : f32[300, 512]", "km,kn->mn"),
            "contract mr=4 nv=4 rows=32 panels=1 kc=16 staged team=128");
}

// Returns the text of 3 x 3 windows of two images contracted into `maps` maps.
std::string Convolution(int maps, const std::string& result) {
  return absl::StrCat(R"(%0 = Input "x" : f32[2, 8, 12, 12] %1 = Parameter "w" : f32[)", maps,
                      R"(, 8, 3, 3] %2 = IndexMap(%0) {fill=f32[] {0},
                      map=map[2, 8, 3, 3, 12, 12]($0, $1, $2 + $4 - 1, $3 + $5 - 1)}
                      %3 = Contract(%2, %1) {spec="ncUVuv,mcUV->)",
                      result, R"("} output "y" = %3)");
}

// A GPU's schedules run lanes along the same operand as a CPU's: windows are columns.
TEST(TilesTest, FewerRowsThanATileKeepTheOrderOfOperands) {
  const KernelTask task = Task(Convolution(16, "nmuv"));
  const auto& panels = std::get<PanelSchedule>(task.choice.contract);
  EXPECT_TRUE(panels.swap) << ScheduleText(task.choice);
  EXPECT_EQ(panels.columns, ColumnAccess::kPack);
  EXPECT_EQ(task.graph.nodes.size(), 4);  // with the windows
}

// No kernel writes windows to memory, whichever operand they are.
TEST(TilesTest, StageWindows) {
  for (const char* result : {"nmuv", "nuvm"}) {
    const KernelTask task = Task(Convolution(64, result));
    EXPECT_TRUE(IsTile(task.choice)) << ScheduleText(task.choice);
    EXPECT_EQ(TileOf(task.choice).swap, result[1] == 'm') << ScheduleText(task.choice);
    EXPECT_EQ(task.graph.nodes.size(), 4) << result;
  }
}

}  // namespace
}  // namespace athanor
