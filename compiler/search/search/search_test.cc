#include "compiler/search/search/search.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "compiler/search/kernels/signature.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/search/search_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Forms 0, 1, ... in a row, each a neighbour of the one before.
class RowOfForms final : public FormSpace {
 public:
  explicit RowOfForms(std::vector<Graph> graphs) : graphs_(std::move(graphs)) {}

  const Graph& graph(int form) const override { return graphs_[form]; }
  std::string About(int form) const override { return form == 0 ? "" : absl::StrCat("r", form); }
  std::vector<int> Neighbours(int form) override {
    if (form + 1 == static_cast<int>(graphs_.size())) return {};
    EXPECT_GT(cost_(graphs_[form + 1]), 0);
    return {form + 1};
  }
  std::vector<RegionReport> Report() const override { return {{.instances = 3, .e_nodes = 12}}; }
  void UseCost(GraphCost cost) override { cost_ = std::move(cost); }

 private:
  const std::vector<Graph> graphs_;
  GraphCost cost_;
};

// Each node of a kernel takes the same time.
absl::StatusOr<double> ByNodes(const Search& s, const KernelCandidate& k) {
  return 1e-3 * static_cast<double>(s.task(k.task).graph.nodes.size());
}

TEST(SearchTest, FindsTheScheduleThatTheMachineLikes) {
  Search search(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(search, PrefersTile(8, 3));
  const SearchReport report = search.Report();
  ASSERT_EQ(report.tasks.size(), 1);
  EXPECT_EQ(report.tasks[0].schedule.substr(0, 19), "contract mr=8 nv=3 ");
  EXPECT_LT(report.predicted, 0.5);
  ASSERT_GT(report.plans_proposed, 0);
  const ScheduledGraph& last = search.plan(report.plans_proposed - 1).scheduled;
  bool found = false;
  for (const KernelChoice& k : last.genome.kernels) {
    if (k.kind != KernelKind::kContract) continue;
    found = true;
    const auto& s = std::get<PanelSchedule>(k.contract);
    EXPECT_EQ(s.mr, 8);
    EXPECT_EQ(s.columns == ColumnAccess::kAhead, k.packed >= 0);
  }
  EXPECT_TRUE(found);
}

TEST(SearchTest, EqualLayersAreMeasuredOnce) {
  std::vector<size_t> asked;
  for (int layers : {1, 6, 24}) {
    Search search(SingleForm(Layers(layers)), Target(), Machine::Typical(Target()),
                  {.sizes = {{16}}, .max_kernels = 60});
    asked.push_back(Drive(search, PrefersTile(8, 3)).size());
    const SearchReport report = search.Report();
    ASSERT_FALSE(report.tasks.empty());
    EXPECT_EQ(report.tasks[0].calls, layers);
  }
  EXPECT_EQ(asked[1], asked[2]);
}

TEST(SearchTest, TheSameAnswersGiveTheSameQuestions) {
  auto run = [](uint64_t seed) {
    Search search(SingleForm(Layers(3)), Target(), Machine::Typical(Target()),
                  {.sizes = {{1}, {64}}, .seed = seed});
    return absl::StrJoin(Drive(search, PrefersTile(4, 4), 2), "\n");
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(SearchTest, OneThatIsToldWhatAnotherKnewAsksTheSame) {
  for (SearchMode mode : {SearchMode::kFast, SearchMode::kBudget}) {
    auto run = [&] {
      std::vector<Graph> forms;
      for (int steps : {6, 3, 1}) forms.push_back(Scaled(steps));
      Search search(std::make_unique<RowOfForms>(std::move(forms)), Target(),
                    Machine::Typical(Target()), {.sizes = {{1}, {64}}, .mode = mode});
      return absl::StrJoin(Drive(search, PrefersTile(4, 4), 2), "\n");
    };
    const std::string first = run();
    EXPECT_FALSE(first.empty());
    for (int again = 0; again < 3; ++again) EXPECT_EQ(run(), first);
  }
}

TEST(SearchTest, FailuresCostOnlyThemselves) {
  Search search(SingleForm(Layers(2)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(search, [](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    const auto& c = std::get<PanelSchedule>(k.choice.contract);
    if (k.choice.kind == KernelKind::kContract && c.nv != 4) return absl::DataLossError("wrong");
    return PrefersTile(4, 4)(s, k);
  });
  const SearchReport report = search.Report();
  EXPECT_GT(report.kernels_failed, 0);
  EXPECT_EQ(report.tasks[0].schedule.substr(0, 19), "contract mr=4 nv=4 ");
}

TEST(SearchTest, ABaselineThatFailsIsNeverProposed) {
  Search search(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(search, [](const Search&, const KernelCandidate&) -> absl::StatusOr<double> {
    return absl::InternalError("no kernel lowers");
  });
  EXPECT_EQ(search.Report().plans_proposed, 0);
}

TEST(SearchTest, AnEpilogueIsGivenUpWhereItsKernelIsSlow) {
  Search search(SingleForm(Layers(4)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(search, [](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    const bool fused = k.choice.kind == KernelKind::kContract && k.choice.anchor != k.choice.root;
    return fused ? 1e-3 : 1e-5;
  });
  const SearchReport report = search.Report();
  EXPECT_GE(report.genomes_taken, 1);
  for (const TaskReport& t : report.tasks) EXPECT_EQ(t.calls, 4) << t.about;
  EXPECT_LT(report.predicted, 0.1);
}

// A call takes no epilogue, which is given up for it, and no cast, which is given up or read
// behind.
TEST(SearchTest, AGpusLibraryIsReachedFromWhatFollowsAProduct) {
  v1::Target gpu = Target();
  gpu.set_device("cuda");
  gpu.set_cpu("sm_90a");
  gpu.set_vector_bytes(1);
  gpu.set_l1_bytes(228 << 10);
  gpu.set_l2_bytes(50 << 20);
  gpu.set_threads(132 * 2048);
  gpu.set_blas("cuBLASLt 13.1.0");
  const std::string bias = R"(%4 = Parameter "o" : t[1024] %5 = IndexMap(%4) {map=map[b, 1024]($1)}
    %6 = Add(%3, %5) )";
  for (const std::string dtype : {"f32", "f16", "bf16"}) {
    for (const std::string& then :
         {std::string(R"(output "y" = %3)"), std::string(R"(%4 = Tanh(%3) output "y" = %4)"),
          bias + R"(output "y" = %6)", bias + R"(%7 = Tanh(%6) output "y" = %7)",
          std::string(R"(%4 = Cast(%3) {dtype=f64} output "y" = %4)")}) {
      const std::string text = absl::StrReplaceAll(
          R"(%0 = Input "x" : t[b, 1024] %1 = Parameter "w" : t[1024, 1024]
             %2 = IndexMap(%1) {map=map[1024, 1024]($1, $0)}
             %3 = Contract(%0, %2) {spec="mk,kn->mn"} )" +
              then,
          {{": t[", ": " + dtype + "["}});
      Search search(SingleForm(Parse(text)), gpu, Machine::Typical(gpu),
                    {.sizes = {{64}}, .max_kernels = 100});
      Drive(search, [](const Search&, const KernelCandidate& k) -> absl::StatusOr<double> {
        if (k.choice.kind != KernelKind::kContract) return 4e-6;
        return IsCall(k.choice) ? 10e-6 : 30e-6;
      });
      const SearchReport report = search.Report();
      ASSERT_GT(report.plans_proposed, 0) << text;
      const Genome& genome = search.plan(report.plans_proposed - 1).scheduled.genome;
      EXPECT_EQ(std::count_if(genome.kernels.begin(), genome.kernels.end(), IsCall), 1) << text;
    }
  }
}

// Each of the many flips promises more than the other form, and needs kernels to be decided.
TEST(SearchTest, SchedulesFlipsAndFormsHaveTheirTurns) {
  const std::string other =
      "%0 = Input \"x\" : f32[b, 256]\n %1 = Parameter \"w\" : f32[256, 256]\n"
      "%2 = Contract(%0, %1) {spec=\"mk,kn->mn\"}\n %3 = Parameter \"v\" : f32[256, 32]\n"
      "%4 = Contract(%2, %3) {spec=\"mk,kn->mn\"}\n output \"y\" = %4\n";
  std::vector<Graph> forms;
  forms.push_back(Scaled(30));
  forms.push_back(Parse(other));
  Search search(std::make_unique<RowOfForms>(std::move(forms)), Target(),
                Machine::Typical(Target()), {.sizes = {{16}}, .max_kernels = 60});
  Drive(search, PrefersTile(8, 3));
  const SearchReport report = search.Report();
  EXPECT_EQ(report.forms_tried, 1);
  EXPECT_GE(report.genomes_tried, 2);
  int measured = 0;
  for (const TaskReport& t : report.tasks) measured = std::max(measured, t.measured);
  EXPECT_GE(measured, 8);
}

TEST(SearchTest, ABetterFormIsFound) {
  std::vector<Graph> forms;
  for (int steps : {6, 3, 1}) forms.push_back(Scaled(steps));
  Search search(std::make_unique<RowOfForms>(std::move(forms)), Target(),
                Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(search, ByNodes);
  const SearchReport report = search.Report();
  EXPECT_EQ(report.forms_tried, 2);
  EXPECT_EQ(report.forms_taken, 2);
  EXPECT_EQ(report.rules, "r2");
  EXPECT_NEAR(report.predicted, 4.0 / 9.0, 1e-6);
  ASSERT_EQ(report.regions.size(), 1);
  EXPECT_EQ(report.regions[0].instances, 3);
  ASSERT_GT(report.plans_proposed, 0);
  EXPECT_EQ(search.plan(report.plans_proposed - 1).form, 2);
}

TEST(SearchTest, FormsAreMadeAfterTheBaselineWasMeasured) {
  bool made = false;
  auto make = [&]() -> absl::StatusOr<std::unique_ptr<FormSpace>> {
    made = true;
    std::vector<Graph> forms;
    for (int steps : {6, 1}) forms.push_back(Scaled(steps));
    return std::make_unique<RowOfForms>(std::move(forms));
  };
  Search search(DeferredForms(Scaled(6), make), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}});
  const Search::Step first = search.Next();
  EXPECT_FALSE(made);
  ASSERT_EQ(first.kernels.size(), 1);
  search.TellKernel(first.kernels[0], Seconds{9e-3});
  Drive(search, ByNodes);
  EXPECT_TRUE(made);
  EXPECT_EQ(search.Report().forms_taken, 1);
  EXPECT_EQ(search.Report().regions.size(), 1);
}

TEST(SearchTest, WithoutFormsTheGraphItselfIsTuned) {
  auto make = []() -> absl::StatusOr<std::unique_ptr<FormSpace>> {
    return absl::InternalError("rule double_not is wrong");
  };
  Search search(DeferredForms(Layers(1), make), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}});
  Drive(search, PrefersTile(8, 3));
  EXPECT_LT(search.Report().predicted, 0.5);
  EXPECT_EQ(search.Report().forms.message(), "rule double_not is wrong");
}

TEST(SearchTest, AFormThatFailsIsPutAside) {
  std::vector<Graph> forms;
  for (int steps : {6, 3}) forms.push_back(Scaled(steps));
  Search search(std::make_unique<RowOfForms>(std::move(forms)), Target(),
                Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(search, [](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    if (s.task(k.task).graph.nodes.size() == 6) return absl::DataLossError("wrong");
    return ByNodes(s, k);
  });
  EXPECT_EQ(search.Report().forms_tried, 1);
  EXPECT_EQ(search.Report().forms_taken, 0);
  EXPECT_EQ(search.Report().rules, "");
}

TEST(SearchTest, FastAsksForNoKernelAndForFewPlans) {
  std::vector<Graph> forms;
  for (int steps : {40, 20, 1}) forms.push_back(Scaled(steps));
  Search search(std::make_unique<RowOfForms>(std::move(forms)), Target(),
                Machine::Typical(Target()), {.sizes = {{16}}, .mode = SearchMode::kFast});
  const std::vector<std::string> asked = Drive(search, PrefersTile(8, 3));
  EXPECT_GE(asked.size(), 1);
  EXPECT_LE(asked.size(), 3);
  for (const std::string& line : asked) EXPECT_EQ(line.substr(0, 4), "plan");
  const SearchReport report = search.Report();
  EXPECT_EQ(report.kernels_measured, 0);
  EXPECT_EQ(report.stop, SearchStop::kExhausted);
  EXPECT_LE(report.predicted, 1);
}

TEST(SearchTest, ExhaustMeasuresEverySchedule) {
  Search search(SingleForm(Scaled(1)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .mode = SearchMode::kExhaust});
  std::map<int, std::set<std::string>> measured;  // by task
  Drive(search, [&](const Search& s, const KernelCandidate& k) {
    measured[k.task].insert(ScheduleText(k.choice));
    return PrefersTile(8, 3)(s, k);
  });
  EXPECT_EQ(search.Report().stop, SearchStop::kExhausted);
  EXPECT_GE(measured.size(), 2);  // with and without its epilogue
  for (const auto& [task, texts] : measured) {
    EXPECT_EQ(texts.size(), Schedules(search.task(task), Target()).size());
  }
  // A budget ends the search earlier in this mode.
  Search budget(SingleForm(Scaled(1)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .mode = SearchMode::kExhaust, .max_kernels = 9});
  Drive(budget, PrefersTile(8, 3));
  EXPECT_EQ(budget.Report().stop, SearchStop::kBudget);
  EXPECT_EQ(budget.Report().kernels_measured, 9);
}

TEST(SearchTest, WhatIsSwitchedOffIsNeverFused) {
  Search search(SingleForm(Layers(2)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .fusion = {.epilogues = false}});
  int fused = 0, plans = 0;
  Drive(search, [&](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    fused += k.choice.kind == KernelKind::kContract && k.choice.anchor != k.choice.root;
    return PrefersTile(12, 2)(s, k);
  });
  EXPECT_EQ(fused, 1);  // the baseline's kernel, which every time is a share of
  plans = search.Report().plans_proposed;
  for (int p = 0; p < plans; ++p) {
    for (const KernelChoice& k : search.plan(p).scheduled.genome.kernels) {
      if (k.kind == KernelKind::kContract) EXPECT_EQ(k.anchor, k.root);
    }
  }
  EXPECT_GT(plans, 0);
}

// The plan with the schedules that the sum prefers takes ten times the baseline's time when it is
// measured whole.
// A product, and a row's softmax of it; or another form that sums in two steps.
Graph SummedRows(bool split) {
  std::string text = R"(%0 = Input "x" : f32[b, 256] %1 = Parameter "w" : f32[256, 240]
      %2 = Contract(%0, %1) {spec="mk,kn->mn"} %3 = Exp(%2) )";
  absl::StrAppend(&text, split ? R"(%4 = IndexMap(%3) {map=map[b, 2, 120]($0, 120*$1 + $2)}
      %5 = SumReduce(%4) {axes=[2]} %6 = SumReduce(%5) {axes=[1]} )"
                               : "%6 = SumReduce(%3) {axes=[1]} ");
  return Parse(text + R"(%7 = IndexMap(%6) {map=map[b, 240]($0)} %8 = Div(%3, %7)
      output "y" = %8 )");
}

TEST(SearchTest, FixedSumsTryAndProposeNothingOfAnotherSignature) {
  const v1::Target target = Target();
  for (SearchMode mode : {SearchMode::kFast, SearchMode::kBudget, SearchMode::kExhaust}) {
    for (bool fixed : {true, false}) {
      std::vector<Graph> graphs;
      graphs.push_back(SummedRows(false));
      graphs.push_back(SummedRows(true));
      Search search(std::make_unique<RowOfForms>(std::move(graphs)), Target(),
                    Machine::Typical(Target()),
                    {.sizes = {{16}}, .mode = mode, .max_kernels = 3000, .fixed_sums = fixed});
      int others = 0;
      std::set<std::string> signatures;
      // Other orders, and the other form, would be faster.
      const Cost cost = [&](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
        const KernelChoice& start = s.task(k.task).choice;
        const bool same = SameOrders(s.task(k.task), target)(k.choice);
        others += same ? 0 : 1;
        const bool split = ToText(s.task(k.task).graph).find("120") != std::string::npos;
        return (same ? 1e-3 : 1e-4) * (split ? 0.1 : 1) *
               (ScheduleText(k.choice) == ScheduleText(start) ? 1.5 : 1);
      };
      const Verdict verdict = [&](Search& s, int plan) {
        const ScheduledGraph& proposed = s.plan(plan).scheduled;
        signatures.insert(SignatureOf(proposed.graph, proposed.genome, Target()));
        s.TellPlan(plan, true);
      };
      Drive(search, cost, 1, verdict);
      ScheduledGraph baseline{SummedRows(false), ChooseKernels(SummedRows(false), Target())};
      PackWeights(&baseline.graph, &baseline.genome, Target());
      const std::string own = SignatureOf(baseline.graph, baseline.genome, Target());
      if (fixed) {
        EXPECT_EQ(others, 0);
        EXPECT_LE(signatures.size(), 1u);
        for (const std::string& signature : signatures) EXPECT_EQ(signature, own);
        if (mode != SearchMode::kFast) EXPECT_EQ(signatures.size(), 1u);
      } else if (mode != SearchMode::kFast) {
        EXPECT_GT(others, 0);
        EXPECT_GT(signatures.size() + (signatures.contains(own) ? 0 : 1), 1u);
      }
    }
  }
}

// Every plan of a search has panels of one width, as the plan that serves has.
TEST(SearchTest, FixedSumsKeepThePanelsOfWhatServes) {
  const FusionRules rules = {.one_panel = true};
  ScheduledGraph serving{Layers(2), ChooseKernels(Layers(2), Target(), {.rules = rules})};
  PackWeights(&serving.graph, &serving.genome, Target());
  const std::string own = SignatureOf(serving.graph, serving.genome, Target());
  Search search(SingleForm(Layers(2)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .fusion = rules, .fixed_sums = true});
  Drive(search, PrefersTile(8, 2));
  const int plans = search.Report().plans_proposed;
  ASSERT_GT(plans, 0);
  for (int p = 0; p < plans; ++p) {
    const ScheduledGraph& plan = search.plan(p).scheduled;
    EXPECT_EQ(SignatureOf(plan.graph, plan.genome, Target()), own);
    for (const KernelChoice& k : plan.genome.kernels) {
      if (k.kind == KernelKind::kContract) {
        EXPECT_GT(std::get<PanelSchedule>(k.contract).panel, 0);
      }
    }
  }
}

// To find changes takes long in a large graph, though they are worth more than any schedule here.
TEST(SearchTest, FixedSumsBeginWithSchedulesInALargeGraph) {
  // Returns how many schedules are asked for before the first kernel of a change.
  const auto schedules = [](int layers) {
    Search search(SingleForm(Layers(layers)), Target(), Machine::Typical(Target()),
                  {.sizes = {{16}}, .max_kernels = 100, .fixed_sums = true});
    int before = 0;
    bool changed = false;
    Drive(search, [&](const Search&, const KernelCandidate& k) -> absl::StatusOr<double> {
      const bool fused = k.choice.kind == KernelKind::kContract && k.choice.anchor != k.choice.root;
      changed = changed || !fused;
      if (!changed) ++before;
      return fused ? 1e-3 : 1e-5;
    });
    return before;
  };
  EXPECT_LT(schedules(4), schedules(400));
}

// Two sums that are alike: one beside a division, one alone. The other form has their places
// swapped, so that the same kernels give other bits, and one kernel less.
Graph TwoSums(bool swapped) {
  const std::string first = swapped ? "%3" : "%2", second = swapped ? "%2" : "%3";
  const std::string x = swapped ? "%1" : "%0";
  return Parse(absl::StrCat(
      R"(%0 = Input "x" : f32[b, 100] %1 = Input "z" : f32[b, 100]
      %2 = SumReduce(%0) {axes=[1]} %3 = SumReduce(%1) {axes=[1]}
      %4 = IndexMap()",
      first, R"() {map=map[b, 100]($0)} %5 = Div()", x, R"(, %4) %6 = Tanh(%0) %7 = IndexMap(%6)
      {map=map[100, b]($1, $0)} output "y" = %5 output "w" = )",
      second, swapped ? "" : R"( output "t" = %7)"));
}

TEST(SearchTest, FixedSumsTakeNoFormWhoseLikeSumsSwapOrders) {
  const Graph usual = TwoSums(false), swapped = TwoSums(true);
  const auto signature = [](const Graph& graph) {
    return SignatureOf(graph, ChooseKernels(graph, Target()), Target());
  };
  ASSERT_NE(signature(usual), signature(swapped));
  for (bool fixed : {true, false}) {
    std::vector<Graph> graphs = {usual, swapped};
    Search search(std::make_unique<RowOfForms>(std::move(graphs)), Target(),
                  Machine::Typical(Target()), {.sizes = {{16}}, .fixed_sums = fixed});
    Drive(search, ByNodes);
    EXPECT_EQ(search.Report().forms_tried, 1);
    EXPECT_EQ(search.Report().forms_taken, fixed ? 0 : 1);
  }
}

TEST(SearchTest, AfterAPlanThatDidNotHoldTheNextMustPromiseMore) {
  Search search(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  std::vector<double> predicted;
  for (int steps = 0; steps < 10000; ++steps) {
    const Search::Step step = search.Next();
    if (step.done) break;
    for (int id : step.kernels) {
      search.TellKernel(id, Seconds{*PrefersTile(8, 3)(search, search.kernel(id))});
    }
    if (step.plan < 0) continue;
    predicted.push_back(search.plan(step.plan).predicted);
    search.TellPlan(step.plan, false, 1.25);
  }
  ASSERT_GT(predicted.size(), 0);
  for (size_t i = 1; i < predicted.size(); ++i) EXPECT_LT(predicted[i], predicted[i - 1] / 1.25);
}

TEST(SearchTest, AGraphWithoutKernelsIsDoneAtOnce) {
  Search search(SingleForm(Parse("%0 = Input \"x\" : f32[b]\n output \"y\" = %0\n")), Target(),
                Machine::Typical(Target()), {.sizes = {{16}}});
  EXPECT_TRUE(search.Next().done);
}

TEST(SpaceTest, SchedulesFitTheRegistersAndAreDistinct) {
  const Graph g = Layers(1);
  const Genome genome = ChooseKernels(g, Target());
  ASSERT_EQ(genome.kernels.size(), 1);
  const KernelTask task = CutTask(g, MemoryOf(g, genome), WeightsOf(g), genome.kernels[0]);
  std::set<std::string> texts;
  for (const KernelChoice& c : Schedules(task, Target())) {
    const auto& s = std::get<PanelSchedule>(c.contract);
    EXPECT_LE(s.mr * s.nv + s.nv + 1, 32);
    EXPECT_EQ(s.rows_per_item % s.mr, 0);
    EXPECT_TRUE(texts.insert(ScheduleText(c)).second) << ScheduleText(c);
  }
  EXPECT_GT(texts.size(), 100);
  EXPECT_TRUE(texts.contains(ScheduleText(task.choice)));
}

TEST(SpaceTest, ALibrarysBlocksWhereTheTargetHasOne) {
  const Graph g = Layers(1);
  const Genome genome = ChooseKernels(g, Target());
  const KernelTask task = CutTask(g, MemoryOf(g, genome), WeightsOf(g), genome.kernels[0]);
  auto library = [&](const v1::Target& target) {
    std::set<std::string> texts;
    for (const KernelChoice& c : Schedules(task, target)) {
      if (!IsLibraryProduct(c)) continue;
      EXPECT_TRUE(texts.insert(ScheduleText(c)).second) << ScheduleText(c);
    }
    return texts;
  };
  EXPECT_TRUE(library(Target()).empty());
  v1::Target with = Target();
  with.set_blas("OpenBLAS 0.3.21");
  const std::set<std::string> texts = library(with);
  EXPECT_GE(texts.size(), 2);
  EXPECT_LE(texts.size(), 40);
}

TEST(TaskTest, EqualKernelsOfLayersAreEqualTasks) {
  const Graph g = Layers(3);
  const Genome genome = ChooseKernels(g, Target());
  std::set<std::string> keys;
  for (const KernelChoice& k : genome.kernels) {
    const KernelTask task = CutTask(g, MemoryOf(g, genome), WeightsOf(g), k);
    keys.insert(task.key);
    EXPECT_TRUE(Verify(task.graph).ok());
    ScheduledGraph s = WithSchedule(task, task.choice, Target());
    EXPECT_EQ(s.genome.kernels.size(), 2);  // the packing, and the kernel
  }
  EXPECT_EQ(keys.size(), 1);
}

}  // namespace
}  // namespace athanor
