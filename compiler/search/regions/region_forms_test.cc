#include "compiler/search/regions/region_forms.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/egraph/dot_testing.h"
#include "compiler/rules/decompose/decompose.h"
#include "compiler/rules/terms_testing.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/kernels/task.h"
#include "compiler/search/regions/region_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Decomposes composites that no kernel computes, as in graphs that a search is given.
Graph Primitive(const Graph& graph) {
  absl::StatusOr<Graph> made = Decompose(graph, [&](const Node& n) {
    std::vector<const TensorType*> operands;
    for (NodeId i : n.inputs) operands.push_back(&graph.node(i).type);
    return OpInfo(n.op).composite() && !HasKernel(n.op, operands);
  });
  EXPECT_TRUE(made.ok()) << made.status();
  return CanonicalizeLike(*made, graph);
}

RegionFormsOptions Options(const Graph& graph) {
  return {.sizes = {SizePoint(graph.dims.size(), 8)}, .machine = Machine::Typical({})};
}

std::unique_ptr<RegionForms> Make(const Graph& graph, const RegionFormsOptions& options) {
  auto forms = RegionForms::Create(graph, options);
  EXPECT_TRUE(forms.ok()) << forms.status();
  return forms.ok() ? *std::move(forms) : nullptr;
}

std::map<std::string, int> Ops(const Graph& graph) {
  std::map<std::string, int> ops;
  for (const Node& n : graph.nodes) ++ops[std::string(OpName(n.op))];
  return ops;
}

TEST(RegionFormsTest, AnyNumberOfEqualLayersIsSolvedOnce) {
  std::vector<std::string> keys[2];
  for (int layers : {6, 24, 48}) {
    const Graph graphs[] = {Primitive(EncoderLayers(layers)), Primitive(DecoderLayers(layers))};
    for (int i = 0; i < 2; ++i) {
      std::vector<std::string> now;
      int instances = 0;
      for (const Region& r : CutRegions(graphs[i]).distinct) {
        now.push_back(r.key);
        instances = std::max(instances, r.instances);
      }
      std::sort(now.begin(), now.end());
      if (keys[i].empty()) keys[i] = now;
      EXPECT_EQ(now, keys[i]) << layers << " layers";
      EXPECT_GE(instances, layers - 1);
    }
  }
}

TEST(RegionFormsTest, EqualLayersChangeTogether) {
  const Graph graph = Primitive(EncoderLayers(6));
  const auto forms = Make(graph, Options(graph));
  EXPECT_EQ(CanonicalHash(forms->graph(0)), CanonicalHash(graph));
  EXPECT_EQ(forms->About(0), "");
  bool shared = false;
  for (int form : forms->Neighbours(0)) {
    const Graph& other = forms->graph(form);
    EXPECT_TRUE(Verify(other).ok()) << Verify(other);
    EXPECT_EQ(Ops(other)["Contract"] % 6, 0) << forms->About(form);
    EXPECT_NE(CanonicalHash(other), CanonicalHash(graph));
    // Queries, keys and values share one contraction.
    shared |= Ops(other)["Contract"] == Ops(graph)["Contract"] - 12;
  }
  EXPECT_TRUE(shared);
}

TEST(RegionFormsTest, TheCostGivenDecidesTheOrder) {
  const Graph graph = Primitive(EncoderLayers(1));
  for (const double worth : {1.0, -1.0}) {
    const auto forms = Make(graph, Options(graph));
    const auto cost = [&](const Graph& g) { return worth * Ops(g)["Contract"]; };
    forms->UseCost(cost);
    const std::vector<int> near = forms->Neighbours(0);
    ASSERT_GT(near.size(), 2u);
    EXPECT_LE(cost(forms->graph(near[0])), cost(graph));
    for (size_t i = 1; i < near.size(); ++i) {
      EXPECT_LE(cost(forms->graph(near[i - 1])), cost(forms->graph(near[i])));
    }
  }
}

// Returns the sum of what the best schedules of the graph's kernels are predicted to take.
double PredictedBest(const Graph& graph, const v1::Target& target) {
  const Genome genome = ChooseKernels(graph, target);
  const SizePoint sizes(graph.dims.size(), 8);
  double seconds = 0;
  for (const KernelChoice& kernel : genome.kernels) {
    const KernelTask task = CutTask(graph, MemoryOf(graph, genome), WeightsOf(graph), kernel);
    const TaskCost cost(task, sizes, target, Machine::Typical(target));
    double best = cost.Predict(kernel);
    for (const KernelChoice& c : Schedules(task, target)) best = std::min(best, cost.Predict(c));
    seconds += best;
  }
  return seconds;
}

// A few rows by a weight: on a GPU a form whose sums are in pieces is predicted to be faster, on a
// CPU none.
TEST(RegionFormsTest, SumsInPiecesPayWhereThereAreThreadsForThem) {
  v1::Target gpu;
  gpu.set_device("cuda");
  gpu.set_vector_bytes(1);
  gpu.set_vector_registers(32);
  gpu.set_l1_bytes(228 << 10);
  gpu.set_l2_bytes(50 << 20);
  gpu.set_threads(132 * 2048);
  v1::Target cpu;
  cpu.set_vector_bytes(64);
  cpu.set_vector_registers(32);
  cpu.set_l1_bytes(32 << 10);
  cpu.set_l2_bytes(1 << 20);
  cpu.set_threads(2);
  const Graph graph = ParseBody(R"(
      %0 = Input "x" : f32[32, 16384] %1 = Parameter "w" : f32[16384, 256]
      %2 = Contract(%0, %1) {spec="mk,kn->mn"} %3 = Tanh(%2) output "y" = %3)");
  for (const v1::Target& target : {gpu, cpu}) {
    RegionFormsOptions options = Options(graph);
    options.machine = Machine::Typical(target);
    const auto forms = Make(graph, options);
    forms->UseCost([&](const Graph& g) { return PredictedBest(g, target); });
    const std::vector<int> near = forms->Neighbours(0);
    int in_pieces = 0;
    for (const int form : near) {
      if (Ops(forms->graph(form))["SumReduce"] == 0) continue;
      const double change =
          PredictedBest(forms->graph(form), target) / PredictedBest(graph, target);
      if (Ops(forms->graph(form))["Contract"] == 1) ++in_pieces;
      const bool first = form == near[0];
      if (target.device() == "cuda" && first) {
        EXPECT_LT(change, 0.8) << ToText(forms->graph(form));
      }
      if (target.device() != "cuda") {
        EXPECT_GT(change, 0.98) << ToText(forms->graph(form));
      }
    }
    EXPECT_EQ(in_pieces, 2) << target.device();
    if (target.device() == "cuda") {
      EXPECT_EQ(Ops(forms->graph(near[0]))["SumReduce"], 1);
    }
  }
}

TEST(RegionFormsTest, TheSameGraphGivesTheSameForms) {
  const auto hashes = [&] {
    const Graph graph = Primitive(DecoderLayers(3));
    const auto forms = Make(graph, Options(graph));
    std::vector<std::string> all;
    for (int form : forms->Neighbours(0)) {
      all.push_back(CanonicalHash(forms->graph(form)) + forms->About(form));
      for (int next : forms->Neighbours(form)) all.push_back(CanonicalHash(forms->graph(next)));
    }
    for (int seed = 0; seed < 5; ++seed) all.push_back(CanonicalHash(*forms->RandomForm(seed)));
    return all;
  };
  EXPECT_EQ(hashes(), hashes());
}

TEST(RegionFormsTest, LimitsStopARegionNotItsForms) {
  const Graph graph = Primitive(EncoderLayers(2));
  RegionFormsOptions options = Options(graph);
  options.limits.nodes = 100;
  auto forms = Make(graph, options);
  const std::vector<RegionReport> reports = forms->Report();
  EXPECT_TRUE(std::any_of(reports.begin(), reports.end(), [](const RegionReport& r) {
    return r.stop == egraph::StopReason::kNodeLimit;
  }));
  for (int form : forms->Neighbours(0)) EXPECT_TRUE(Verify(forms->graph(form)).ok());
  ASSERT_TRUE(forms->RandomForm(1).ok());

  options = Options(graph);
  options.time = absl::ZeroDuration();
  forms = Make(graph, options);
  for (const RegionReport& r : forms->Report()) EXPECT_EQ(r.stop, egraph::StopReason::kTimeLimit);
  EXPECT_TRUE(forms->Neighbours(0).empty());

  options = Options(graph);
  options.max_neighbours = 2;
  options.max_forms = 3;
  forms = Make(graph, options);
  const std::vector<int> two = forms->Neighbours(0);
  EXPECT_EQ(two.size(), 2u);
  for (int form : two) {
    for (int next : forms->Neighbours(form)) EXPECT_LT(next, 3);
  }
}

TEST(RegionFormsTest, FormsOfALargeGraphAreFew) {
  const Graph graph = Primitive(EncoderLayers(12));
  RegionFormsOptions options = Options(graph);
  options.max_form_nodes = 3 * graph.nodes.size();
  EXPECT_LE(Make(graph, options)->Neighbours(0).size(), 3u);
  options.max_regions = 0;
  EXPECT_TRUE(Make(graph, options)->Neighbours(0).empty());
}

TEST(RegionFormsTest, NeighboursAreOneRegionWhereThatIsCheaper) {
  // Contractions that share an operand are merged only if a rule sees both.
  BodyWriter w;
  const int x = w.Node("Input \"x\" : f32[b, 16]");
  for (int i = 0; i < 4; ++i) {
    w.Output(w.Node("Contract(@0, @1) {spec=\"mk,kn->mn\"}", {x, w.Parameter("f32[16, 16]")}));
  }
  const Graph graph = w.Build();
  RegionFormsOptions options = Options(graph);
  options.cut = {.max_nodes = 2, .min_nodes = 1};
  options.max_joins = 0;
  EXPECT_EQ(Make(graph, options)->regions().distinct[0].instances, 4);
  options.max_joins = 4;
  const auto forms = Make(graph, options);
  ASSERT_EQ(forms->regions().distinct.size(), 1u);
  EXPECT_EQ(forms->regions().distinct[0].instances, 2);
  bool shared = false;
  for (int form : forms->Neighbours(0)) shared |= Ops(forms->graph(form))["Contract"] == 2;
  EXPECT_TRUE(shared);
}

TEST(RegionFormsTest, ReportsEveryRegion) {
  const Graph graph = Primitive(EncoderLayers(6));
  const auto forms = Make(graph, Options(graph));
  const std::vector<RegionReport> reports = forms->Report();
  ASSERT_EQ(reports.size(), forms->regions().distinct.size());
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].instances, forms->regions().distinct[i].instances);
    EXPECT_EQ(reports[i].graph_nodes, forms->regions().distinct[i].nodes);
    EXPECT_GE(reports[i].e_nodes, reports[i].e_classes);
    EXPECT_GT(reports[i].peak_bytes, 0u);
    EXPECT_LT(reports[i].peak_bytes, size_t{200} << 20);
  }
}

TEST(RegionFormsTest, ReportsWhatEachRowDid) {
  const Graph graph = Primitive(EncoderLayers(6));
  const auto forms = Make(graph, Options(graph));
  std::set<std::string> fired;
  for (const RegionReport& region : forms->Report()) {
    for (size_t i = 0; i < region.rules.size(); ++i) {
      const egraph::RuleReport& rule = region.rules[i];
      EXPECT_EQ(rule.name, RuleRows()[rule.tag].name);
      EXPECT_GT(rule.matches + rule.bans, 0u) << rule.name;
      EXPECT_EQ(rule.applied + rule.errors, rule.matches) << rule.name;
      EXPECT_EQ(rule.errors, 0u) << rule.name << ": " << rule.last_error;
      EXPECT_GE(rule.match_us + rule.apply_us, 0) << rule.name;
      // A row of many rules has one entry.
      if (i > 0) {
        EXPECT_LT(region.rules[i - 1].tag, rule.tag);
      }
      if (rule.unions > 0) fired.insert(rule.name);
    }
  }
  EXPECT_TRUE(fired.contains("decompose_contract"));
  EXPECT_TRUE(fired.contains("linears_share_operand"));
}

TEST(RegionFormsTest, DrawsARegionsEGraph) {
  const Graph graph = Primitive(EncoderLayers(6));
  const auto forms = Make(graph, Options(graph));
  const std::vector<RegionReport> reports = forms->Report();
  for (size_t r = 0; r < reports.size(); ++r) {
    const size_t nodes = reports[r].e_nodes;
    const absl::StatusOr<std::string> dot = forms->Dot(static_cast<int>(r), nodes);
    ASSERT_TRUE(dot.ok()) << dot.status();
    const absl::StatusOr<egraph::DotPicture> picture = egraph::ParseDot(*dot);
    ASSERT_TRUE(picture.ok()) << picture.status() << *dot;
    EXPECT_EQ(picture->clusters.size(), reports[r].e_classes);
    size_t drawn = 0;
    for (const auto& [cluster, members] : picture->clusters) drawn += members.size();
    EXPECT_EQ(drawn, nodes);
    EXPECT_GT(picture->edges.size(), 0u);
    EXPECT_NE(dot->find("Contract["), std::string::npos);
    // A limit one lower refuses the graph and names both numbers.
    const absl::Status refused = forms->Dot(static_cast<int>(r), nodes - 1).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    for (const size_t number : {r, nodes, nodes - 1}) {
      EXPECT_NE(refused.message().find(absl::StrCat(" ", number)), std::string::npos) << refused;
    }
  }
  const int after = static_cast<int>(reports.size());
  EXPECT_EQ(forms->Dot(after, 1000).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(forms->Dot(-1, 1000).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SingleForm(graph)->Dot(0, 1000).status().code(), absl::StatusCode::kNotFound);
}

TEST(RegionFormsTest, ARegionThatGotNoTimeHasNoPicture) {
  const Graph graph = Primitive(EncoderLayers(1));
  RegionFormsOptions options = Options(graph);
  options.time = absl::ZeroDuration();
  const absl::Status status = Make(graph, options)->Dot(0, 1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("region 0 has no e-graph"), std::string::npos) << status;
}

TEST(RegionFormsTest, RowsSwitchedOffDoNotFire) {
  const Graph graph = Primitive(EncoderLayers(1));
  RegionFormsOptions options = Options(graph);
  options.rules.disabled = {"algebra", "layout", "recognise", "decompose"};
  const auto forms = Make(graph, options);
  EXPECT_TRUE(forms->Neighbours(0).empty());
  EXPECT_EQ(CanonicalHash(*forms->RandomForm(3)), CanonicalHash(graph));
  options.rules.disabled = {"no_such_row"};
  EXPECT_EQ(RegionForms::Create(graph, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace athanor
