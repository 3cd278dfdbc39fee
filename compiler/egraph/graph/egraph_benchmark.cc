// Speed of the engine's parts. README.md has figures.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "compiler/egraph/extract/extract.h"
#include "compiler/egraph/match/match.h"
#include "compiler/egraph/math_rules_testing.h"
#include "compiler/egraph/math_testing.h"
#include "compiler/egraph/runner.h"

namespace athanor::egraph {
namespace {

const Math& Shared() {
  static const Math* const math = new Math();
  return *math;
}

// Adds random sums and products over existing classes.
void Grow(EGraph* graph, size_t nodes, std::mt19937* random) {
  Shared().Add(graph, "(+ x (* y (+ z 1)))");
  while (graph->num_nodes() < nodes) {
    const ClassId a{static_cast<uint32_t>((*random)() % graph->class_bound())};
    const ClassId b{static_cast<uint32_t>((*random)() % graph->class_bound())};
    benchmark::DoNotOptimize(graph->Add(OpId{(*random)() % 2 ? kAdd : kMul}, {}, {a, b}));
  }
}

void Nodes(benchmark::State& state, double per_iteration) {
  state.counters["e-nodes"] =
      benchmark::Counter(per_iteration * state.iterations(), benchmark::Counter::kIsRate);
}

void BM_AddAndRebuild(benchmark::State& state) {
  const size_t size = state.range(0);
  size_t bytes = 0;
  for (auto _ : state) {
    EGraph graph(&Shared().language());
    std::mt19937 random(1);
    Grow(&graph, size, &random);
    graph.Rebuild();
    bytes = graph.Bytes();
  }
  Nodes(state, size);
  state.counters["bytes/e-node"] = static_cast<double>(bytes) / size;
}
BENCHMARK(BM_AddAndRebuild)->Arg(1000)->Arg(50'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void BM_AddWhatIsThere(benchmark::State& state) {
  EGraph graph(&Shared().language());
  std::mt19937 random(1);
  Grow(&graph, 50'000, &random);
  graph.Rebuild();
  uint32_t i = 0;
  for (auto _ : state) {
    const NodeId n{i++ % graph.node_bound()};
    benchmark::DoNotOptimize(graph.Add(graph.op(n), graph.payload(n), graph.children(n)));
  }
  Nodes(state, 1);
}
BENCHMARK(BM_AddWhatIsThere);

// Unites a tenth of the classes with random others, and rebuilds.
void BM_UnionAndRebuild(benchmark::State& state) {
  const size_t size = state.range(0);
  size_t repaired = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto graph = std::make_unique<EGraph>(&Shared().language());
    std::mt19937 random(1);
    Grow(graph.get(), size, &random);
    graph->Rebuild();
    state.ResumeTiming();
    for (size_t i = 0; i < size / 10; ++i) {
      const ClassId a{static_cast<uint32_t>(random() % graph->class_bound())};
      const ClassId b{static_cast<uint32_t>(random() % graph->class_bound())};
      benchmark::DoNotOptimize(graph->Union(a, b));
    }
    graph->Rebuild();
    repaired = size - graph->num_classes();
    state.PauseTiming();
    graph.reset();
    state.ResumeTiming();
  }
  state.counters["unions"] = benchmark::Counter(static_cast<double>(repaired) * state.iterations(),
                                                benchmark::Counter::kIsRate);
}
BENCHMARK(BM_UnionAndRebuild)->Arg(50'000)->Unit(benchmark::kMillisecond);

void Match(benchmark::State& state, const std::vector<std::string>& premises) {
  EGraph graph(&Shared().language());
  std::mt19937 random(1);
  Grow(&graph, 50'000, &random);
  graph.Rebuild();
  const absl::StatusOr<Query> query = MakeQuery(Shared().language(), premises);
  size_t matches = 0;
  for (auto _ : state) {
    matches += FindMatches(graph, {{.query = &*query}}, {}).lists[0].size();
  }
  state.counters["matches"] = benchmark::Counter(matches, benchmark::Counter::kIsRate);
}
void BM_MatchOneAtom(benchmark::State& state) { Match(state, {"(+ ?a ?b)"}); }
void BM_MatchNested(benchmark::State& state) { Match(state, {"(+ ?a (* ?b ?c))"}); }
void BM_MatchTwoPremises(benchmark::State& state) {
  Match(state, {"?p = (+ ?a ?b)", "?q = (* ?a ?b)"});
}
BENCHMARK(BM_MatchOneAtom)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_MatchNested)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_MatchTwoPremises)->Unit(benchmark::kMillisecond);

// Saturates with associativity and commutativity: 3^n - 2^(n+1) + 1 sums of n terms.
void BM_Saturate(benchmark::State& state) {
  std::string term = "a";
  for (int i = 1; i < state.range(0); ++i) term = "(+ s" + std::to_string(i) + " " + term + ")";
  const std::vector<Rule> rules = RulesOf(
      Shared(), {{.name = "commutes", .premises = {"(+ ?a ?b)"}, .conclusions = {"(+ ?b ?a)"}},
                 {.name = "associates",
                  .premises = {"(+ ?a (+ ?b ?c))"},
                  .conclusions = {"(+ (+ ?a ?b) ?c)"}}});
  size_t nodes = 0, matches = 0;
  for (auto _ : state) {
    EGraph graph(&Shared().language());
    Shared().Add(&graph, term);
    const Report report = Runner(&graph, rules,
                                 {.limits = {.iterations = 100, .nodes = 10'000'000},
                                  .match_limit = 1'000'000'000,
                                  .incremental = state.range(1) != 0})
                              .Run();
    nodes = graph.num_nodes();
    for (const IterationReport& it : report.iterations) matches += it.matches;
  }
  Nodes(state, nodes);
  state.counters["matches"] = benchmark::Counter(matches, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Saturate)
    ->ArgNames({"terms", "incremental"})
    ->ArgsProduct({{8, 10}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// Runs all rules of the tests, with values and conditions, for a number of iterations without
// budgets, so that every variant ends with the same e-graph.
void BM_MathRules(benchmark::State& state) {
  size_t nodes = 0;
  double match_us = 0;
  for (auto _ : state) {
    MathConstants values(&Shared());
    EGraph graph(&Shared().language(), &values);
    const std::vector<Rule> rules = MathRules(Shared(), &values);
    Shared().Add(&graph, "(d x (* (+ x 1) (* (+ x 2) (* (+ x 3) (+ x y)))))");
    const Report report = Runner(&graph, rules,
                                 {.limits = {.iterations = 6, .nodes = 10'000'000},
                                  .match_limit = 1'000'000'000,
                                  .incremental = state.range(0) != 0,
                                  .share = state.range(1) != 0})
                              .Run();
    nodes = graph.num_nodes();
    for (const IterationReport& it : report.iterations) match_us += it.match_us;
  }
  Nodes(state, nodes);
  state.counters["size"] = static_cast<double>(nodes);
  state.counters["match ms"] =
      benchmark::Counter(match_us / 1000, benchmark::Counter::kAvgIterations);
}
BENCHMARK(BM_MathRules)
    ->ArgNames({"incremental", "share"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

void BM_Extract(benchmark::State& state) {
  MathConstants values(&Shared());
  EGraph graph(&Shared().language(), &values);
  const std::vector<Rule> rules = MathRules(Shared(), &values);
  const ClassId root = Shared().Add(&graph, "(d x (* (+ x 1) (* (+ x 2) (* (+ x 3) (+ x y)))))");
  Runner(&graph, rules, {.limits = {.iterations = 40, .nodes = 50'000}}).Run();
  const NodeCost cost = [&](NodeId n) { return graph.op(n) == OpId{kMul} ? 4.0 : 1.0; };
  for (auto _ : state) {
    const Extractor extractor(graph, cost);
    if (state.range(0) == 0) {
      benchmark::DoNotOptimize(extractor.tree());
    } else {
      benchmark::DoNotOptimize(extractor.Extract({root}));
    }
  }
  Nodes(state, graph.num_nodes());
}
BENCHMARK(BM_Extract)->ArgName("dag")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace athanor::egraph
