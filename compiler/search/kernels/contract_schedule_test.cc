#include "compiler/search/kernels/contract_schedule.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/kernels/task.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target Target(int vector_bytes, int registers) {
  v1::Target t;
  t.set_vector_bytes(vector_bytes);
  t.set_vector_registers(registers);
  t.set_l2_bytes(1 << 20);
  return t;
}

struct Case {
  Graph g;
  NodeId node = -1;
  std::vector<bool> weights;
};

// Letters have the sizes a = 2, b = 3, ...; `weight`: the right operand is a parameter.
Case Contraction(const std::string& spec, bool weight, DType t = DType::kF32) {
  Case c;
  ContractSpec s = *ContractSpec::Parse(spec);
  auto shape = [](const std::string& letters) {
    Shape shape;
    for (char l : letters) shape.push_back(2 + (l - 'a'));
    return shape;
  };
  GraphBuilder b(&c.g);
  NodeId x = *b.Input("x", {t, shape(s.lhs)});
  NodeId w = weight ? *b.Parameter("w", {t, shape(s.rhs)}) : *b.Input("w", {t, shape(s.rhs)});
  c.node = *b.Add(Op::kContract, {x, w}, {{"spec", spec}});
  b.Output("y", c.node);
  c.weights = {false, weight, false};
  return c;
}

// Returns the schedule that the rule of thumb has for the contraction, by panels.
PanelSchedule PanelsOf(const Graph& graph, NodeId node, const std::vector<bool>& weights,
                       const v1::Target& target) {
  return std::get<PanelSchedule>(*ScheduleContract(graph, node, weights, target));
}

TEST(ScheduleContractTest, LanesAlongWeightsThenContiguousStores) {
  const v1::Target t = Target(64, 32);
  EXPECT_FALSE(PanelsOf(Contraction("mk,kn->mn", true).g, 2, {false, true, false}, t).swap);
  EXPECT_TRUE(PanelsOf(Contraction("mk,kn->nm", false).g, 2, {false, false, false}, t).swap);
  EXPECT_FALSE(PanelsOf(Contraction("mk,kn->nm", true).g, 2, {false, true, false}, t).swap);
  EXPECT_TRUE(PanelsOf(Contraction("mk,k->m", false).g, 2, {false, false, false}, t).swap);
  EXPECT_FALSE(
      ScheduleContract(Contraction("k,k->", false).g, 2, {false, false, false}, t).has_value());
}

TEST(ScheduleContractTest, TilesFromRegistersAndCaches) {
  Case c = Contraction("mk,kz->mz", true);
  const PanelSchedule wide = PanelsOf(c.g, c.node, c.weights, Target(64, 32));
  EXPECT_EQ(wide.mr, 12);
  EXPECT_EQ(wide.nv, 2);  // 27 columns, 16 lanes
  EXPECT_EQ(wide.rows_per_item % wide.mr, 0);
  EXPECT_EQ(PanelWidth(c.g, c.node, wide, Target(64, 32)), 32);
  const PanelSchedule narrow = PanelsOf(c.g, c.node, c.weights, Target(32, 16));
  EXPECT_EQ(narrow.mr, 6);
  EXPECT_EQ(PanelWidth(c.g, c.node, narrow, Target(32, 16)), 16);
  EXPECT_GE(narrow.kc, 256);
  // lanes are those of the accumulator, f32
  Case half = Contraction("mk,kz->mz", true, DType::kF16);
  EXPECT_EQ(PanelWidth(half.g, half.node, wide, Target(64, 32)), 32);
  Case few = Contraction("mk,ka->ma", true);
  EXPECT_EQ(PanelsOf(few.g, few.node, few.weights, Target(64, 32)).nv, 1);
}

// Schedules m x k by k x n, or by n x k. Sizes are text, so that they may be dims.
PanelSchedule ScheduleOf(const std::string& m, const std::string& k, const std::string& n,
                         const std::string& right, const v1::Target& target) {
  const bool turned = right == "nk";
  const std::string spec = turned ? "mk,nk->mn" : "mk,kn->mn";
  auto g = ParseGraph("graph \"\" {\n dim d in [0, 10000]\n dim e in [0, 9]\n" +
                      ("%0 = Input \"x\" : f32[" + m + ", " + k + "]\n") +
                      ("%1 = Input \"w\" : f32[" + (turned ? n + ", " + k : k + ", " + n) + "]\n") +
                      "%2 = Contract(%0, %1) {spec=\"" + spec + "\"}\n output \"y\" = %2\n}");
  return PanelsOf(*g, 2, {false, false, false}, target);
}

TEST(ScheduleContractTest, WidePanelsWhereTheLastIsNotMostlyEmpty) {
  const v1::Target many = Target(64, 32);
  const PanelSchedule full = ScheduleOf("64", "64", "256", "kn", many);
  EXPECT_EQ(full.mr, 6);
  EXPECT_EQ(full.nv, 4);
  EXPECT_EQ(ScheduleOf("64", "64", "1000", "kn", many).nv, 4);  // 24 of 1024 columns stay empty
  EXPECT_EQ(ScheduleOf("64", "64", "96", "kn", many).nv, 2);
  EXPECT_EQ(ScheduleOf("64", "64", "d", "kn", many).nv, 2);
  EXPECT_EQ(ScheduleOf("64", "64", "256", "kn", Target(32, 16)).nv, 2);
  // Panels that are wider and fewer would leave threads without work.
  v1::Target threads = many;
  threads.set_threads(4);
  EXPECT_EQ(ScheduleOf("64", "64", "256", "kn", threads).nv, 2);
}

TEST(ScheduleContractTest, FewRowsReadTheirColumnsInPlace) {
  v1::Target target = Target(64, 32);
  target.set_threads(2);
  const PanelSchedule one = ScheduleOf("1", "4096", "4096", "kn", target);
  EXPECT_EQ(one.columns, ColumnAccess::kInPlace);
  EXPECT_EQ(one.mr, 1);
  // Each thread has half of the columns, in one stretch.
  EXPECT_EQ(one.panels_per_item * one.nv * 16, 2048);
  EXPECT_TRUE(one.prefetch);
  EXPECT_FALSE(one.copy_rows);
  const PanelSchedule some = ScheduleOf("16", "4096", "4096", "kn", target);
  EXPECT_EQ(some.columns, ColumnAccess::kInPlace);
  EXPECT_EQ(some.mr, 16);
  EXPECT_TRUE(some.copy_rows);
  EXPECT_LE(some.rows_per_item * some.panels_per_item * some.nv * 16, 16384);
  // Few columns: every thread still has some.
  const PanelSchedule narrow = ScheduleOf("1", "4096", "64", "kn", target);
  EXPECT_EQ(narrow.panels_per_item * narrow.nv * 16, 32);
  // Fewer parallel streams if the last-level cache holds the operand.
  target.set_l3_bytes(32 << 20);
  EXPECT_LT(ScheduleOf("1", "1024", "1024", "kn", target).kc, one.kc);
  EXPECT_EQ(ScheduleOf("1", "4096", "4096", "kn", target).kc, one.kc);
  // An operand that the caches hold is read without prefetching.
  EXPECT_FALSE(ScheduleOf("1", "64", "64", "kn", target).prefetch);
  EXPECT_EQ(ScheduleOf("17", "4096", "4096", "kn", target).columns, ColumnAccess::kPack);
  EXPECT_EQ(ScheduleOf("d", "4096", "4096", "kn", target).columns, ColumnAccess::kPack);
  EXPECT_EQ(ScheduleOf("e", "d", "d", "kn", target).columns, ColumnAccess::kInPlace);
  EXPECT_EQ(ScheduleOf("e", "d", "d", "kn", target).mr, 4);
  // With few registers the sums still fit.
  for (const char* m : {"1", "4", "7", "16"}) {
    const PanelSchedule s = ScheduleOf(m, "4096", "4096", "kn", Target(32, 16));
    EXPECT_LE(s.mr * s.nv + s.nv + 1, 16) << m;
    EXPECT_EQ(s.rows_per_item % s.mr, 0) << m;
  }
}

TEST(ScheduleContractTest, ColumnsContiguousAlongTheSumsAreDotProducts) {
  const v1::Target target = Target(64, 32);
  EXPECT_EQ(ScheduleOf("1", "4096", "4096", "nk", target).columns, ColumnAccess::kDots);
  EXPECT_TRUE(ScheduleOf("1", "4096", "4096", "nk", target).prefetch);
  EXPECT_FALSE(ScheduleOf("1", "64", "64", "nk", target).prefetch);
  EXPECT_EQ(ScheduleOf("17", "4096", "4096", "nk", target).columns, ColumnAccess::kPack);
  // A single column cannot carry the lanes, so the other operand's rows do.
  const PanelSchedule column = ScheduleOf("d", "64", "1", "kn", target);
  EXPECT_TRUE(column.swap);
  EXPECT_EQ(column.columns, ColumnAccess::kDots);
}

TEST(ScheduleContractTest, LongRowsAreCopiedInPieces) {
  v1::Target target = Target(64, 32);
  target.set_threads(2);
  const PanelSchedule large = ScheduleOf("2048", "2048", "2048", "kn", target);
  EXPECT_EQ(large.columns, ColumnAccess::kPack);
  EXPECT_TRUE(large.copy_rows);
  EXPECT_LE(large.rows_per_item * large.kc * 4, target.l2_bytes() * 3 / 4);
  // No block of a few rows is left over, which would pack the other operand once more.
  EXPECT_GE(2048 % large.rows_per_item, large.rows_per_item * 9 / 10);
  // All threads have work, several items each.
  const int64_t items = (2048 + large.rows_per_item - 1) / large.rows_per_item *
                        (2048 / (large.panels_per_item * large.nv * 16));
  EXPECT_GE(items, 8);
  EXPECT_FALSE(ScheduleOf("1024", "1024", "1024", "kn", target).copy_rows);
  EXPECT_FALSE(ScheduleOf("d", "2048", "2048", "kn", target).copy_rows);
  EXPECT_FALSE(ScheduleOf("128", "2048", "2048", "kn", target).copy_rows);
}

// x [3, 12, 19, 23] convolved by 3 x 3 elements, with padding or without, into 40 maps.
PanelSchedule WindowsOf(const std::string& fill, const std::string& map, int64_t* taps,
                        const v1::Target& target) {
  auto g = ParseGraph(R"(graph "" {
    %0 = Input "x" : f32[3, 12, 19, 23]
    %1 = Parameter "w" : f32[40, 12, 3, 3]
    %2 = IndexMap(%0) {)" +
                      fill + "map=map[" + map + R"(}
    %3 = Contract(%2, %1) {spec="ncUVuv,mcUV->nmuv"}
    output "y" = %3
  })");
  EXPECT_TRUE(g.ok()) << g.status();
  const ContractRoles roles = FindContractRoles(*g, g->node(3), /*swap=*/true);
  EXPECT_EQ(roles.columns, "uv");  // maps lie between the columns and the batch
  EXPECT_EQ(roles.batch, "n");
  EXPECT_EQ(roles.rows, "m");
  EXPECT_EQ(roles.sums, "cUV");
  EXPECT_TRUE(IsWindows(*g, g->node(3), roles, 0, "uv"));
  EXPECT_FALSE(IsWindows(*g, g->node(3), roles, 1, "m"));
  const std::vector<bool> memory = {true, true, true, false};
  EXPECT_FALSE(IsWindows(*g, g->node(3), roles, 0, "uv", &memory));
  *taps = TapsOf(roles);
  return PanelsOf(*g, 3, {false, true, false, false}, target);
}

TEST(ScheduleContractTest, WindowsAreColumnsInPanels) {
  v1::Target target = Target(64, 32);
  target.set_threads(2);
  target.set_l2_bytes(64 << 10);
  const char* const kPadded = "3, 12, 3, 3, 19, 23]($0, $1, $2 + $4 - 1, $3 + $5 - 1)";
  const char* const kInside = "3, 12, 3, 3, 17, 21]($0, $1, $2 + $4, $3 + $5)";
  for (const auto& [fill, map] : {std::pair("fill=f32[] {0}, ", kPadded), std::pair("", kInside)}) {
    int64_t taps = 0;
    const PanelSchedule s = WindowsOf(fill, map, &taps, target);
    EXPECT_EQ(taps, 9);
    EXPECT_TRUE(s.swap);
    EXPECT_EQ(s.columns, ColumnAccess::kPack);
    EXPECT_EQ(s.nv, 4);
    EXPECT_LE(s.mr * s.nv + s.nv + 1, 32);
    // Pieces hold whole windows.
    EXPECT_EQ(s.kc % 9, 0);
    EXPECT_LT(s.kc, 12 * 9 + 9);
    EXPECT_EQ(s.rows_per_item % s.mr, 0);
    EXPECT_GE(s.rows_per_item, 40);  // seven panels per image are enough items
  }
}

// A convolution of one element reads the image in place and stores contiguously.
TEST(ScheduleContractTest, ImagesAreColumnsOfPointwiseConvolutions) {
  const Case c = Contraction("bedf,me->bmdf", true);
  const PanelSchedule s = PanelsOf(c.g, c.node, c.weights, Target(64, 32));
  EXPECT_TRUE(s.swap);
  const ContractRoles roles = FindContractRoles(c.g, c.g.node(c.node), true);
  EXPECT_EQ(roles.columns, "df");
  EXPECT_EQ(roles.batch, "b");
  EXPECT_FALSE(IsWindows(c.g, c.g.node(c.node), roles, 0, "df"));
  // Six positions would leave ten lanes empty.
  const Case few = Contraction("ceab,me->cmab", true);
  EXPECT_FALSE(PanelsOf(few.g, few.node, few.weights, Target(64, 32)).swap);
}

// Schedules `maps` of an image whose side is at most `side`, on two threads.
PanelSchedule PointwiseOf(int maps, int side) {
  auto g = ParseGraph(absl::StrCat(R"(graph "" {
    dim s in [1, )",
                                   side, R"(]
    %0 = Input "x" : f32[1, 160, s, s]
    %1 = Parameter "w" : f32[)",
                                   maps, R"(, 160]
    %2 = Contract(%0, %1) {spec="ncuv,mc->nmuv"}
    output "y" = %2
  })"));
  EXPECT_TRUE(g.ok()) << g.status();
  v1::Target target = Target(64, 32);
  target.set_threads(2);
  return PanelsOf(*g, 2, {false, true, false}, target);
}

// An image with hardly one panel splits its maps into equally many items for each thread; an image
// with many panels packs each panel once.
TEST(ScheduleContractTest, FewPanelsShareTheirRows) {
  for (const int maps : {160, 960}) {
    const PanelSchedule small = PointwiseOf(maps, 10);
    EXPECT_EQ(small.columns, ColumnAccess::kPack);
    EXPECT_EQ((maps + small.rows_per_item - 1) / small.rows_per_item % 2, 0) << maps;
    EXPECT_GE(PointwiseOf(maps, 80).rows_per_item, maps);
  }
  const PanelSchedule few = PointwiseOf(16, 80);
  EXPECT_EQ(few.columns, ColumnAccess::kInPlace);
  EXPECT_LE(few.panels_per_item * few.nv * 16, 256);
}

TEST(ScheduleContractTest, SharedPanelsAreWideWhereColumnsFillThem) {
  EXPECT_EQ(SharedPanel(0, 16), 1);
  EXPECT_EQ(SharedPanel(1, 16), 1);
  EXPECT_EQ(SharedPanel(16, 16), 1);
  EXPECT_EQ(SharedPanel(17, 16), 2);
  EXPECT_EQ(SharedPanel(59, 16), 2);  // 5 of 64 columns would stay empty
  EXPECT_EQ(SharedPanel(61, 16), 4);
  EXPECT_EQ(SharedPanel(65, 16), 2);
  EXPECT_EQ(SharedPanel(192, 16), 4);
  EXPECT_EQ(SharedPanel(49152, 8), 4);
}

// Returns the schedules that the rule of thumb has for `rows` rows by a weight of `columns` columns
// in shared panels, the usual one first.
std::vector<PanelSchedule> SharedPanelsOf(const std::string& rows, int64_t columns,
                                          const v1::Target& target) {
  const Graph g = *ParseGraph(
      absl::StrCat("graph \"\" { dim b in [1, 300]\n", " %0 = Input \"x\" : f32[", rows, ", 40]",
                   " %1 = Parameter \"w\" : f32[40, ", columns, "]",
                   " %2 = Contract(%0, %1) {spec=\"mk,kn->mn\"}", " output \"y\" = %2 }"));
  const Genome genome = ChooseKernels(g, target, {.rules = {.one_panel = true}});
  const KernelTask task = CutTask(g, MemoryOf(g, genome), WeightsOf(g), genome.kernels.back());
  std::vector<PanelSchedule> all = {std::get<PanelSchedule>(task.choice.contract)};
  for (const KernelChoice& c : Schedules(task, target)) {
    all.push_back(std::get<PanelSchedule>(c.contract));
  }
  return all;
}

// Whatever the rows: the rule of thumb's schedule and all that a search may take instead walk one
// packed copy of a weight. A single column is no panel: the rows are in the lanes.
TEST(ScheduleContractTest, AllTilesWalkSharedPanels) {
  v1::Target few = Target(32, 16), many = Target(64, 32), scalar = Target(1, 32);
  few.set_threads(2);
  many.set_threads(2);
  for (const v1::Target& target : {few, many, scalar}) {
    std::set<int> tiles;
    for (const int64_t columns : {2, 7, 16, 17, 33, 61, 64, 97, 128, 192, 1000}) {
      const int want = SharedPanel(columns, std::max(1, target.vector_bytes() / 4));
      for (const char* rows : {"1", "2", "b", "512"}) {
        const std::vector<PanelSchedule> all = SharedPanelsOf(rows, columns, target);
        EXPECT_EQ(all[0].columns, ColumnAccess::kAhead) << rows << " " << columns;
        for (const PanelSchedule& s : all) {
          const bool ahead = s.columns == ColumnAccess::kAhead;
          ASSERT_EQ(s.panel, ahead ? want : 0) << rows << " " << columns << " nv=" << s.nv;
          ASSERT_EQ(s.panel % s.nv, 0) << rows << " " << columns;
          if (ahead) tiles.insert(s.nv);
        }
      }
    }
    EXPECT_EQ(tiles, (std::set<int>{1, 2, 4}));
  }
}

// On a target without vectors a panel of nv vectors has nv columns, of any dtype, and each schedule
// has a cost.
TEST(ScheduleContractTest, VectorsOfOneLane) {
  v1::Target target = Target(1, 32);
  target.set_l1_bytes(48 << 10);
  const Machine machine = Machine::Typical(target);
  for (const DType t : {DType::kI8, DType::kF16, DType::kF32, DType::kF64}) {
    for (const bool weight : {true, false}) {
      for (const char* spec : {"mk,kn->mn", "mk,nk->mn", "bek,bkz->bez"}) {
        const Case c = Contraction(spec, weight, t);
        const PanelSchedule s = PanelsOf(c.g, c.node, c.weights, target);
        EXPECT_EQ(PanelWidth(c.g, c.node, s, target), s.nv) << spec;
        const Genome genome = ChooseKernels(c.g, target);
        const KernelTask task =
            CutTask(c.g, MemoryOf(c.g, genome), c.weights, genome.kernels.back());
        const TaskCost cost(task, {}, target, machine);
        EXPECT_GT(cost.roofline(), 0) << spec;
        for (const KernelChoice& choice : Schedules(task, target)) {
          EXPECT_LT(cost.Predict(choice), 1) << spec << " " << ScheduleText(choice);
          EXPECT_GE(cost.Predict(choice), cost.roofline()) << spec << " " << ScheduleText(choice);
          const auto& panels = std::get<PanelSchedule>(choice.contract);
          if (panels.columns == ColumnAccess::kDots) EXPECT_EQ(panels.nv, 1);
        }
      }
    }
  }
}

// Columns that are adjacent in the operand or in the result stay together.
TEST(ContractRolesTest, ColumnsApart) {
  const auto roles = [](const std::string& spec, bool swap) {
    const Case c = Contraction(spec, false);
    const ContractRoles r = FindContractRoles(c.g, c.g.node(c.node), swap);
    return r.batch + "|" + r.rows + "|" + r.columns + "|" + r.sums;
  };
  EXPECT_EQ(roles("bsk,khd->bhsd", false), "|bs|hd|k");
  EXPECT_EQ(roles("abk,kc->acb", true), "|c|ab|k");
  EXPECT_EQ(roles("akb,kc->acb", true), "a|c|b|k");
  EXPECT_EQ(roles("gak,gckd->gcad", false), "gc|a|d|k");
  EXPECT_EQ(roles("gak,gcbkd->gcabd", false), "g|a|cbd|k");
}

TEST(ContractRolesTest, ContiguousThroughViews) {
  auto g = ParseGraph(R"(graph "" {
    dim d in [0, 9]
    %0 = Input "x" : f32[d, 4, 6]
    %1 = Input "w" : f32[7, 6, 4]
    %2 = IndexMap(%1) {map=map[4, 6, 7]($2, $1, $0)}
    %3 = Contract(%0, %2) {spec="mkh,khn->mn"}
    %4 = Input "v" : f32[6, 4, 7]
    %5 = IndexMap(%4) {map=map[24, 7](floordiv($0, 4), mod($0, 4), $1)}
    %6 = Input "y" : f32[3, 24]
    %7 = Contract(%6, %5) {spec="mk,kn->mn"}
    output "a" = %3
    output "b" = %7
  })");
  ASSERT_TRUE(g.ok()) << g.status();
  auto contiguous = [&](NodeId n, int side, const std::string& group) {
    return IsContiguous(*g, g->node(n), FindContractRoles(*g, g->node(n), false), side, group);
  };
  EXPECT_TRUE(contiguous(3, 0, "kh"));
  EXPECT_TRUE(contiguous(3, 1, "hk"));  // the view transposed it
  EXPECT_FALSE(contiguous(3, 1, "kh"));
  EXPECT_FALSE(contiguous(3, 1, "n"));
  EXPECT_TRUE(contiguous(7, 1, "n"));
  EXPECT_FALSE(contiguous(7, 1, "k"));
}

// Packs the column operand, evaluates it, and checks that each of its elements is where panels have
// it, and that all else is zero.
void ExpectPacked(const std::string& spec, bool swap, int width, const std::string& batch,
                  const std::string& sums, const std::string& columns) {
  Case c = Contraction(spec, true);
  NodeId packed = AddPackedOperand(&c.g, c.node, swap, width);
  c.g.outputs.push_back({"packed", packed});
  std::vector<Tensor> inputs;
  for (NodeId n : {0, 1}) {
    std::vector<int64_t> shape;
    for (const Expr& e : c.g.node(n).type.shape) shape.push_back(*e.constant());
    Tensor t = Tensor::Zeros(DType::kF32, shape);
    for (int64_t i = 0; i < t.elements(); ++i) t.data<float>()[i] = static_cast<float>(i + 1);
    inputs.push_back(std::move(t));
  }
  ASSERT_TRUE(Verify(c.g).ok()) << spec << ": " << Verify(c.g);
  absl::StatusOr<std::vector<Tensor>> values = Evaluate(c.g, inputs);
  ASSERT_TRUE(values.ok()) << values.status();
  const Tensor& panels = (*values)[1];
  const Tensor& operand = inputs[swap ? 0 : 1];
  ContractSpec parsed = *ContractSpec::Parse(spec);
  const std::string& letters = swap ? parsed.lhs : parsed.rhs;
  auto size = [](char l) { return int64_t{2 + (l - 'a')}; };
  auto flat = [&](const std::string& of, const std::map<char, int64_t>& at) {
    int64_t offset = 0;
    for (char l : of) offset = offset * size(l) + at.at(l);
    return offset;
  };
  auto total = [&](const std::string& of) {
    int64_t n = 1;
    for (char l : of) n *= size(l);
    return n;
  };
  const int64_t panel_count = (total(columns) + width - 1) / width;
  ASSERT_EQ(panels.elements(), total(batch) * panel_count * total(sums) * width);
  double sum = 0;
  for (int64_t i = 0; i < operand.elements(); ++i) {
    std::map<char, int64_t> at;
    int64_t rest = i;
    for (size_t l = letters.size(); l-- > 0;) {
      at[letters[l]] = rest % size(letters[l]);
      rest /= size(letters[l]);
    }
    const int64_t column = flat(columns, at);
    const int64_t place =
        ((flat(batch, at) * panel_count + column / width) * total(sums) + flat(sums, at)) * width +
        column % width;
    EXPECT_EQ(panels.data<float>()[place], operand.data<float>()[i]) << spec << " element " << i;
    sum += operand.data<float>()[i];
  }
  // The values are positive, so the sums agree only if everything else is zero.
  for (int64_t i = 0; i < panels.elements(); ++i) sum -= panels.data<float>()[i];
  EXPECT_EQ(sum, 0) << spec;
}

v1::Target Chip(const std::string& cpu) {
  v1::Target t = Target(1, 32);
  t.set_device("cuda");
  t.set_cpu(cpu);
  return t;
}

std::vector<TileSchedule> TensorsOf(DType operands, DType result, const std::string& cpu) {
  Graph graph;
  GraphBuilder b(&graph);
  NodeId x = *b.Input("x", {operands, {64, 32}}), w = *b.Input("w", {operands, {32, 64}});
  if (operands != result) {
    x = *b.Add(Op::kCast, {x}, {{"dtype", result}});
    w = *b.Add(Op::kCast, {w}, {{"dtype", result}});
  }
  const NodeId node = *b.Add(Op::kContract, {x, w}, {{"spec", std::string("mk,kn->mn")}});
  return TensorSchedules(graph, node, Chip(cpu));
}

TEST(TensorSchedulesTest, AreThoseOfAnInstruction) {
  for (const auto& [operands, result] : {std::pair(DType::kF16, DType::kF16),
                                         {DType::kF16, DType::kF32},
                                         {DType::kBF16, DType::kBF16},
                                         {DType::kBF16, DType::kF32},
                                         {DType::kI8, DType::kI8},
                                         {DType::kI8, DType::kI32},
                                         {DType::kU8, DType::kI32}}) {
    SCOPED_TRACE(std::string(DTypeName(operands)) + " to " + std::string(DTypeName(result)));
    const MatrixInstruction& mma = *FindMatrixInstruction(operands);
    const std::vector<TileSchedule> all = TensorsOf(operands, result, "sm_80");
    std::set<int> stages;
    for (const TileSchedule& s : all) {
      EXPECT_TRUE(FitsTensor(s, mma));
      stages.insert(s.stages);
      EXPECT_LE(s.mr, all[0].mr) << "larger tiles come first";
    }
    EXPECT_EQ(stages, (std::set<int>{1, 2, 3, 4}));
    EXPECT_EQ(all.size(), TensorsOf(operands, result, "sm_90a").size());
    EXPECT_TRUE(TensorsOf(operands, result, "sm_75").empty());
    EXPECT_TRUE(TensorsOf(operands, result, "").empty());
    EXPECT_TRUE(TensorsOf(operands, result, "znver4").empty());
  }
  // Neither operands without an instruction, nor results wider than its sums.
  EXPECT_TRUE(TensorsOf(DType::kF32, DType::kF32, "sm_80").empty());
  EXPECT_TRUE(TensorsOf(DType::kF16, DType::kF64, "sm_80").empty());
  EXPECT_TRUE(TensorsOf(DType::kI8, DType::kI64, "sm_80").empty());
  EXPECT_TRUE(TensorsOf(DType::kI8, DType::kF32, "sm_80").empty());
}

// Weights of f16 by values of f32 need sums of their own.
TEST(TensorSchedulesTest, NeedOneDTypeOfBothOperands) {
  Graph graph;
  GraphBuilder b(&graph);
  const NodeId x = *b.Input("x", {DType::kF32, {64, 32}});
  const NodeId w =
      *b.Add(Op::kCast, {*b.Input("w", {DType::kF16, {32, 64}})}, {{"dtype", DType::kF32}});
  const NodeId node = *b.Add(Op::kContract, {x, w}, {{"spec", std::string("mk,kn->mn")}});
  EXPECT_TRUE(TensorSchedules(graph, node, Chip("sm_80")).empty());
  EXPECT_FALSE(TileSchedules(graph, node, /*swap=*/false, Chip("sm_80")).empty());
}

// A cast with memory of its own is read from there.
TEST(TensorSchedulesTest, OperandsAreBehindCastsWithoutMemory) {
  Graph graph;
  GraphBuilder b(&graph);
  const NodeId x = *b.Input("x", {DType::kI8, {64, 32}});
  const NodeId cast = *b.Add(Op::kCast, {x}, {{"dtype", DType::kI32}});
  const NodeId node = *b.Add(Op::kContract, {cast, cast}, {{"spec", std::string("mk,nk->mn")}});
  std::vector<bool> memory = {true, false, true};
  const std::optional<TensorOperands> found = FindTensorOperands(graph, graph.node(node), &memory);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->operands[0], x);
  EXPECT_EQ(found->operands[1], x);
  memory[cast] = true;
  EXPECT_FALSE(FindTensorOperands(graph, graph.node(node), &memory).has_value());
}

TEST(AddPackedOperandTest, EveryElementInItsPanelAndZerosBeyond) {
  ExpectPacked("mk,kn->mn", false, 4, "", "k", "n");
  ExpectPacked("mk,kn->mn", false, 15, "", "k", "n");  // exactly one panel
  ExpectPacked("mk,kn->mn", false, 32, "", "k", "n");  // wider than the columns
  ExpectPacked("mk,nk->mn", false, 4, "", "k", "n");
  ExpectPacked("mk,kn->mn", true, 4, "", "k", "m");
  ExpectPacked("bmk,bkn->bmn", false, 4, "b", "k", "n");
  ExpectPacked("ambk,bkan->abmn", false, 8, "ab", "k", "n");
  ExpectPacked("mcd,dcen->men", false, 4, "", "cd", "en");  // several sums and columns
  ExpectPacked("mcd,dcen->mne", false, 7, "", "cd", "ne");
}

}  // namespace
}  // namespace athanor
