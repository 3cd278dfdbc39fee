// Tests how many threads of a GPU compute an item together: the rule of thumb, the schedules that
// there are, and what they are predicted to cost.
#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/extents.h"
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

struct Case {
  Graph graph;
  KernelChoice choice;  // of the last kernel
  KernelTask task;
};

Case Of(const std::string& body, const v1::Target& target = Gpu()) {
  absl::StatusOr<Graph> graph = ParseGraph("graph \"\" { " + body + " }");
  EXPECT_TRUE(graph.ok()) << graph.status();
  const Genome genome = ChooseKernels(*graph, target);
  const KernelChoice choice = genome.kernels.back();
  return {*graph, choice, CutTask(*graph, MemoryOf(*graph, genome), WeightsOf(*graph), choice)};
}

std::string Rows(const std::string& shape) {
  return "%0 = Input \"x\" : f32[" + shape + "] %1 = SumReduce(%0) {axes=[1]} output \"y\" = %1";
}

TEST(TeamFor, IsTheLeastWhoseThreadsAreBusy) {
  for (const auto& [extent, team] : {std::pair<int64_t, int>{0, 1},
                                     {1, 1},
                                     {2, 2},
                                     {3, 4},
                                     {16, 16},
                                     {17, 32},
                                     {33, 32},
                                     {1 << 20, 32}}) {
    EXPECT_EQ(TeamFor(extent), team) << extent;
  }
  EXPECT_EQ(TeamFor(std::nullopt), 32);
}

TEST(Teams, FollowWhatLanesRunAlong) {
  for (const auto& [body, team] : {
           // Rows: a wave, as many threads as there are elements, or, if few are long, a block.
           std::pair<std::string, int>{Rows("100000, 2000"), 32},
           {Rows("100000, 8"), 8},
           {Rows("100, 2000"), 128},
           {Rows("100, 300"), 32},
           {"dim n in [1, 100000] dim m in [1, 2000] " + Rows("n, m"), 32},
           // Neighbouring threads of a map touch neighbours.
           {R"(%0 = Input "x" : f32[100, 300] %1 = Exp(%0) output "y" = %1)", 1},
           {R"(%0 = Input "x" : f32[300, 100] %1 = SumReduce(%0) {axes=[0]} output "y" = %1)", 1},
           {R"(%0 = Input "x" : f32[20, 256] %1 = Parameter "w" : f32[256, 192]
               %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
            32},
           // Tiles have a block.
           {R"(%0 = Input "x" : f32[64, 256] %1 = Parameter "w" : f32[256, 192]
               %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
            128},
           {R"(%0 = Input "x" : f32[64, 256] %1 = Parameter "w" : f32[256, 6]
               %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)",
            8},
           // Dot products: lanes run along the sums.
           {R"(%0 = Input "x" : f32[2, 256] %1 = Input "w" : f32[6, 256]
               %2 = Contract(%0, %1) {spec="mk,nk->mn"} output "y" = %2)",
            32},
           {R"(%0 = Input "q" : f32[2, 64, 32] %1 = Attention(%0, %0, %0) output "y" = %1)", 32},
           {R"(%0 = Input "x" : f32[9, 8] %1 = Input "i" : i64[5] %2 = Input "v" : f32[5, 8]
               %3 = Scatter(%0, %1, %2) {axis=0, mode="add"} output "y" = %3)",
            8},
           {R"(%0 = Input "x" : f32[8, 9] %1 = Input "i" : i64[5] %2 = Input "v" : f32[8, 5]
               %3 = Scatter(%0, %1, %2) {axis=1, mode="add"} output "y" = %3)",
            1},
           {R"(%0 = Input "x" : f32[9, 256] %1 = TopK(%0) {axis=1, k=shape[3]} output "y" = %1)",
            1},
       }) {
    EXPECT_EQ(Of(body).choice.team, team) << body;
    v1::Target cpu = Gpu();
    cpu.set_device("cpu");
    EXPECT_EQ(Of(body, cpu).choice.team, 1) << body;
  }
}

// A panel has nv vectors of the team's lanes; scratch fits the shared memory of a block's teams.
TEST(Teams, OfContractionsHaveSmallItems) {
  for (const char* columns : {"256, 192", "192, 256"}) {
    const bool transposed = columns[0] == '1';
    const Case c = Of(std::string(R"(%0 = Input "x" : f32[20, 256] %1 = Input "w" : f32[)") +
                      columns + R"(] %2 = Contract(%0, %1) {spec=")" +
                      (transposed ? "mk,nk->mn" : "mk,kn->mn") + R"("} output "y" = %2)");
    const auto& s = std::get<PanelSchedule>(c.choice.contract);
    EXPECT_EQ(s.columns, transposed ? ColumnAccess::kPack : ColumnAccess::kInPlace);
    EXPECT_EQ(s.rows_per_item, s.mr);
    EXPECT_EQ(PanelWidth(c.graph, 2, s, Gpu(), c.choice.team), 32 * s.nv);
    if (transposed) EXPECT_LE((s.kc + s.mr) * 32 * s.nv * 4, 12 << 10);
  }
}

TEST(Teams, AreInTheSpaceOfAGpuOnly) {
  for (const std::string& body :
       {Rows("1000, 2000"),
        std::string(R"(%0 = Input "x" : f32[100, 300] %1 = Exp(%0) output "y" = %1)"),
        std::string(R"(%0 = Input "x" : f32[64, 256] %1 = Parameter "w" : f32[256, 192]
                       %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)"),
        std::string(R"(%0 = Input "q" : f32[2, 64, 32] %1 = Attention(%0, %0, %0)
                       output "y" = %1)"),
        std::string(R"(%0 = Input "x" : f32[9, 80] %1 = Input "i" : i64[5]
                       %2 = Input "v" : f32[5, 80]
                       %3 = Scatter(%0, %1, %2) {axis=0, mode="add"} output "y" = %3)")}) {
    const Case c = Of(body);
    const TaskCost cost(c.task, {}, Gpu(), Machine::Typical(Gpu()));
    std::set<int> teams;
    std::set<std::string> texts;
    const std::vector<KernelChoice> all = Schedules(c.task, Gpu());
    for (const KernelChoice& s : all) {
      teams.insert(s.team);
      texts.insert(ScheduleText(s));
      EXPECT_GE(cost.Predict(s), cost.roofline()) << ScheduleText(s);
    }
    EXPECT_EQ(teams, (std::set<int>{1, 32, 128})) << body;
    // Each schedule of a row can be left for another team.
    const bool row = c.choice.kind == KernelKind::kRow || c.choice.kind == KernelKind::kPoint;
    for (const KernelChoice& s : row ? all : std::vector<KernelChoice>()) {
      const std::vector<KernelChoice> near = Neighbours(s, all);
      EXPECT_TRUE(std::any_of(near.begin(), near.end(),
                              [&](const KernelChoice& n) { return n.team != s.team; }))
          << body << ": " << ScheduleText(s);
    }
    EXPECT_EQ(texts.size(), all.size()) << body;
    v1::Target cpu = Gpu();
    cpu.set_device("cpu");
    for (const KernelChoice& s : Schedules(Of(body, cpu).task, cpu)) EXPECT_EQ(s.team, 1) << body;
  }
}

TEST(Teams, CoalesceInPredictions) {
  const auto predicted = [](const Case& c, const std::string& schedule) {
    const TaskCost cost(c.task, {}, Gpu(), Machine::Typical(Gpu()));
    for (const KernelChoice& s : Schedules(c.task, Gpu())) {
      if (ScheduleText(s) == schedule) return cost.Predict(s);
    }
    ADD_FAILURE() << "no schedule " << schedule;
    return 0.0;
  };
  const Case many = Of(Rows("1000000, 2000")), few = Of(Rows("50, 20000"));
  EXPECT_LT(predicted(many, "point unroll=4 team=32"), 0.5 * predicted(many, "point unroll=4"));
  EXPECT_LT(predicted(few, "point unroll=4 team=128"),
            0.5 * predicted(few, "point unroll=4 team=32"));
  const Case map = Of(R"(%0 = Input "x" : f32[1000000, 300] %1 = Exp(%0) output "y" = %1)");
  EXPECT_LT(predicted(map, "map elements=1 unroll=1"),
            0.5 * predicted(map, "map elements=16 unroll=1"));
  EXPECT_LT(predicted(map, "map elements=512 unroll=1 team=32"),
            0.5 * predicted(map, "map elements=16 unroll=1"));
}

}  // namespace
}  // namespace athanor
