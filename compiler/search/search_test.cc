#include "compiler/search/search.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/search/space.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target Target() {
  v1::Target t;
  t.set_vector_bytes(64);
  t.set_vector_registers(32);
  t.set_l1_bytes(32 << 10);
  t.set_l2_bytes(1 << 20);
  t.set_threads(2);
  return t;
}

Graph Parse(const std::string& text) {
  absl::StatusOr<Graph> g = ParseGraph("graph \"\" {\n dim b in [1, 64]\n" + text + "}");
  EXPECT_TRUE(g.ok()) << g.status();
  return *std::move(g);
}

// Equal layers: a contraction with a bias and a tanh each.
Graph Layers(int count) {
  std::string text = "%0 = Input \"x\" : f32[b, 256]\n";
  int next = 1, x = 0;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&text, "%", next, " = Parameter \"w", i, "\" : f32[256, 256]\n");
    absl::StrAppend(&text, "%", next + 1, " = Contract(%", x, ", %", next,
                    ") {spec=\"mk,kn->mn\"}\n");
    absl::StrAppend(&text, "%", next + 2, " = Tanh(%", next + 1, ")\n");
    x = next + 2;
    next += 3;
  }
  return Parse(text + "output \"y\" = %" + absl::StrCat(x) + "\n");
}

using Cost = std::function<absl::StatusOr<double>(const Search&, const KernelCandidate&)>;

// Tells what becomes of a plan.
using Verdict = std::function<void(Search&, int plan)>;
void Take(Search& search, int plan) { search.TellPlan(plan, true); }

// Answers until the search ends; what was asked, one line each.
std::vector<std::string> Drive(Search& search, const Cost& cost, int sizes = 1,
                               const Verdict& verdict = Take) {
  std::vector<std::string> asked;
  for (int steps = 0; steps < 10000; ++steps) {
    const Search::Step step = search.Next();
    if (step.done) return asked;
    for (int id : step.kernels) {
      const KernelCandidate& k = search.kernel(id);
      asked.push_back(
          absl::StrCat(search.task(k.task).key.substr(0, 8), " ", ScheduleText(k.choice)));
      absl::StatusOr<double> seconds = cost(search, k);
      if (seconds.ok()) {
        search.TellKernel(id, Seconds(sizes, *seconds));
      } else {
        search.TellKernel(id, seconds.status());
      }
    }
    if (step.plan >= 0) {
      asked.push_back(absl::StrCat("plan ", search.plan(step.plan).predicted));
      verdict(search, step.plan);
    }
  }
  ADD_FAILURE() << "the search does not end";
  return asked;
}

// As if the machine took 10 microseconds with the schedule of the prediction's liking, more with
// others.
Cost PrefersTile(int mr, int nv) {
  return [=](const Search&, const KernelCandidate& k) -> absl::StatusOr<double> {
    if (k.choice.kind != KernelKind::kContract) return 1e-6;
    const ContractSchedule& s = k.choice.contract;
    return 1e-3 *
           (1 + std::abs(s.mr - mr) + std::abs(s.nv - nv) + std::abs(s.rows_per_item - 64) / 64.0);
  };
}

// What the model says is the least.
double Limit(const Search& search, const KernelCandidate& k) {
  const Machine machine = Machine::Typical(Target());
  return RooflineSeconds(search.task(k.task), {16}, Target(), machine) + machine.launch_seconds;
}

// Forms 0, 1, ... in a row: each is a neighbour of the one before.
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

// The same function in one, two or three multiplications.
Graph Scaled(int steps) {
  std::string text =
      "%0 = Input \"x\" : f32[b, 256]\n %1 = Parameter \"w\" : f32[256, 240]\n"
      "%2 = Contract(%0, %1) {spec=\"mk,kn->mn\"}\n";
  for (int i = 0; i < steps; ++i) absl::StrAppend(&text, "%", i + 3, " = Mul(%2, %", i + 2, ")\n");
  return Parse(absl::StrCat(text, "output \"y\" = %", steps + 2, "\n"));
}

// Each node of a kernel takes its time.
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
    EXPECT_EQ(k.contract.mr, 8);
    EXPECT_EQ(k.contract.pack_ahead(), k.contract.packed >= 0);
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
    const ContractSchedule& c = k.choice.contract;
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

TEST(SearchTest, StopsAtItsBudgetAndAtTheRoofline) {
  Search budget(SingleForm(Layers(1)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .max_kernels = 5});
  Drive(budget, PrefersTile(8, 3));
  EXPECT_EQ(budget.Report().stop, SearchStop::kBudget);
  EXPECT_LT(budget.Report().kernels_measured, 5 + 4);
  Search fast(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(fast, [](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    return Limit(s, k);
  });
  EXPECT_EQ(fast.Report().stop, SearchStop::kRoofline);
}

// Kernels near their rooflines in a plan that takes as long as before: near is what plans hold.
TEST(SearchTest, ARooflineThatPlansDoNotReachIsNotNear) {
  const auto kernels = [](const Verdict& verdict) {
    Search search(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
    int asked = 0;
    Drive(
        search,
        [&](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
          return Limit(s, k) * (++asked < 3 ? 3 : 1.01);
        },
        1, verdict);
    return std::pair(search.Report().stop, search.Report().kernels_measured);
  };
  const auto [held_stop, held] = kernels(Take);
  const auto [unheld_stop, unheld] =
      kernels([](Search& s, int plan) { s.TellPlan(plan, false, 1.0); });
  EXPECT_EQ(held_stop, SearchStop::kRoofline);
  EXPECT_NE(unheld_stop, SearchStop::kRoofline);
  EXPECT_GT(unheld, held);
}

// Each plan's time is a share of that of the one before, its promise one of the baseline's.
TEST(SearchTest, ARooflineThatPlansReachInStepsIsNear) {
  Search search(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  int asked = 0, taken = 0;
  double serving = 1;
  Drive(
      search,
      [&](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
        return Limit(s, k) * (1.01 + 3 * std::exp(-++asked / 30.0));
      },
      1,
      [&](Search& s, int plan) {
        s.TellPlan(plan, true, s.plan(plan).predicted / serving);
        serving = s.plan(plan).predicted;
        ++taken;
      });
  EXPECT_EQ(search.Report().stop, SearchStop::kRoofline);
  EXPECT_GE(taken, 2);
}

// As if it were measured beside other work.
Machine HalfOf(Machine machine) {
  for (double* limit : {&machine.read_bytes_per_second, &machine.cache_bytes_per_second,
                        &machine.near_bytes_per_second, &machine.f32_flops_per_second}) {
    *limit /= 2;
  }
  return machine;
}

// Kernels that take twice the least time are near limits that were measured half as high.
TEST(SearchTest, ASearchGoesOnWhenItsLimitsAreRaised) {
  const Machine full = Machine::Typical(Target());
  Search search(SingleForm(Scaled(0)), Target(), HalfOf(full), {.sizes = {{16}}});
  double least = 0;
  int asked = 0;
  const Cost cost = [&](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    least = Limit(s, k);
    return least * (++asked < 6 ? 2 : 1.05);
  };
  Drive(search, cost);
  const SearchReport low = search.Report();
  EXPECT_EQ(low.stop, SearchStop::kRoofline);
  EXPECT_LT(low.kernels_measured, 6);
  EXPECT_GT(low.tasks[0].roofline[0], 1.9 * least);
  search.RaiseLimits(full);
  Drive(search, cost);
  const SearchReport raised = search.Report();
  EXPECT_EQ(raised.stop, SearchStop::kRoofline);
  EXPECT_NEAR(raised.predicted, 1.05 / 2, 1e-6);
  EXPECT_DOUBLE_EQ(raised.tasks[0].roofline[0], least);
  EXPECT_NEAR(raised.roofline, 0.5, 1e-6);
}

// How far kernels were beyond the limits before says nothing about these.
TEST(SearchTest, LimitsThatWereBeatenAreNearOnceTheyAreRaised) {
  const Machine full = Machine::Typical(Target());
  Search search(SingleForm(Scaled(0)), Target(), HalfOf(full), {.sizes = {{16}}});
  const Cost cost = [](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    return Limit(s, k) * 1.05;
  };
  Drive(search, cost);
  EXPECT_NE(search.Report().stop, SearchStop::kRoofline);
  search.RaiseLimits(full);
  EXPECT_TRUE(Drive(search, cost).empty());
  EXPECT_EQ(search.Report().stop, SearchStop::kRoofline);
}

// What small kernels find in the caches is more than the roofline allows: it does not end a search.
TEST(SearchTest, ARooflineThatIsBeatenIsNone) {
  Search search(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(search, [](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    const ContractSchedule& c = k.choice.contract;
    return Limit(s, k) * (0.2 + 0.05 * (std::abs(c.mr - 8) + std::abs(c.nv - 3)));
  });
  const SearchReport report = search.Report();
  EXPECT_NE(report.stop, SearchStop::kRoofline);
  EXPECT_GT(report.kernels_measured, 20);
  EXPECT_EQ(report.tasks[0].schedule.substr(0, 19), "contract mr=8 nv=3 ");
}

// Each of the many flips promises more than the other form, and takes kernels to find out.
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
  EXPECT_GE(measured.size(), 2);  // with its epilogue and without
  for (const auto& [task, texts] : measured) {
    EXPECT_EQ(texts.size(), Schedules(search.task(task), Target()).size());
  }
  // A budget in this mode ends it before.
  Search budget(SingleForm(Scaled(1)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .mode = SearchMode::kExhaust, .max_kernels = 9});
  Drive(budget, PrefersTile(8, 3));
  EXPECT_EQ(budget.Report().stop, SearchStop::kBudget);
  EXPECT_EQ(budget.Report().kernels_measured, 9);
}

TEST(SearchTest, BudgetsOfNoneOneAndMore) {
  for (SearchMode mode : {SearchMode::kFast, SearchMode::kBudget, SearchMode::kExhaust}) {
    Search none(SingleForm(Layers(1)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .mode = mode, .max_kernels = 0});
    const Search::Step step = none.Next();
    EXPECT_TRUE(step.done);
    EXPECT_EQ(step.stop, SearchStop::kBudget);
  }
  for (int64_t kernels : {int64_t{1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    Search search(SingleForm(Layers(2)), Target(), Machine::Typical(Target()),
                  {.sizes = {{16}}, .max_kernels = kernels});
    Drive(search, PrefersTile(8, 3));
    EXPECT_LE(search.Report().kernels_measured, kernels);
    EXPECT_GE(search.Report().kernels_measured, 1);
  }
}

TEST(SearchTest, WhatIsSwitchedOffIsNeverFused) {
  Search search(SingleForm(Layers(2)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .fusion = {.epilogues = false}});
  int fused = 0, plans = 0;
  Drive(search, [&](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    fused += k.choice.kind == KernelKind::kContract && k.choice.anchor != k.choice.root;
    return PrefersTile(12, 2)(s, k);
  });
  EXPECT_EQ(fused, 1);  // the baseline's, of which all times are shares
  plans = search.Report().plans_proposed;
  for (int p = 0; p < plans; ++p) {
    for (const KernelChoice& k : search.plan(p).scheduled.genome.kernels) {
      if (k.kind == KernelKind::kContract) EXPECT_EQ(k.anchor, k.root);
    }
  }
  EXPECT_GT(plans, 0);
}

// Ten times the baseline's time with the schedules that the sum likes, when measured whole.
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
    EXPECT_LE(c.contract.mr * c.contract.nv + c.contract.nv + 1, 32);
    EXPECT_EQ(c.contract.rows_per_item % c.contract.mr, 0);
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
      if (c.contract.columns != ColumnAccess::kLibrary) continue;
      EXPECT_TRUE(texts.insert(ScheduleText(c)).second) << ScheduleText(c);
      EXPECT_FALSE(c.contract.copy_rows || c.contract.prefetch);
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
