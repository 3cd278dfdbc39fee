// Benchmarks of cutting and of forms; README.md has figures.
#include "benchmark/benchmark.h"
#include "compiler/rules/decompose/decompose.h"
#include "compiler/rules/terms_testing.h"
#include "compiler/search/regions/region.h"
#include "compiler/search/regions/region_forms.h"
#include "compiler/search/regions/region_testing.h"

namespace athanor {
namespace {

// Equal layers of 12 nodes.
void BM_Cut(benchmark::State& state) {
  const Graph graph = Layers(static_cast<int>(state.range(0)));
  size_t distinct = 0;
  for (auto _ : state) distinct = CutRegions(graph).distinct.size();
  state.counters["regions"] = static_cast<double>(distinct);
  state.counters["per layer"] =
      benchmark::Counter(static_cast<double>(state.range(0) * state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Cut)->Arg(6)->Arg(24)->Arg(48)->Arg(480)->Unit(benchmark::kMillisecond);

void BM_Stitch(benchmark::State& state) {
  const Graph graph = Layers(static_cast<int>(state.range(0)));
  const Regions regions = CutRegions(graph);
  std::vector<const Graph*> own;
  for (const Region& r : regions.distinct) own.push_back(&r.graph);
  for (auto _ : state) benchmark::DoNotOptimize(Stitch(graph, regions, own).ok());
}
BENCHMARK(BM_Stitch)->Arg(6)->Arg(24)->Arg(48)->Arg(480)->Unit(benchmark::kMillisecond);

// Cuts, saturates and extracts a post-norm encoder of width 384, in composites that have kernels.
void BM_Forms(benchmark::State& state) {
  const Graph layers = EncoderLayers(static_cast<int>(state.range(0)));
  const Graph graph = *Decompose(
      layers, [](const Node& n) { return OpInfo(n.op).composite() && n.op != Op::kContract; });
  RegionFormsOptions options{.sizes = {SizePoint(graph.dims.size(), 32)},
                             .machine = Machine::Typical({})};
  std::vector<RegionReport> reports;
  for (auto _ : state) reports = (*RegionForms::Create(graph, options))->Report();
  state.counters["regions"] = static_cast<double>(reports.size());
  const auto forms = *RegionForms::Create(graph, options);
  state.counters["variants"] = static_cast<double>(forms->joins()->variants().size());
  for (const RegionReport& r : reports) {
    if (r.instances < state.range(0) - 1) continue;
    state.counters["e-nodes"] = static_cast<double>(r.e_nodes);
    state.counters["iterations"] = r.iterations;
    state.counters["saturation ms"] = 1e3 * r.seconds;
    state.counters["peak MB"] = static_cast<double>(r.peak_bytes) / 1e6;
  }
}
BENCHMARK(BM_Forms)->Arg(1)->Arg(6)->Arg(24)->Arg(48)->Unit(benchmark::kMillisecond);

// The layers of region_joins_test, each of which prefers its stream with heads before rows.
// Measures the space with and without joins, and the choice of joins when all prices are known.
Graph AttentionLayers(int count) {
  BodyWriter w;
  int x = w.Node("Input \"x\" : f32[b, s, 4, 8]");
  for (int i = 0; i < count; ++i) {
    const int heads = w.Node("IndexMap(@0) {map=map[b, 4, s, 8]($0, $2, $1, $3)}", {x});
    const int mixed = w.Node("Attention(@0, @0, @0) {scale=0.5}", {heads});
    const int back = w.Node("IndexMap(@0) {map=map[b, s, 4, 8]($0, $2, $1, $3)}", {mixed});
    x = w.Node("Add(@0, @1)", {x, back});
  }
  w.Output(x);
  return w.Build();
}

RegionFormsOptions AttentionOptions(bool joins) {
  RegionFormsOptions options{
      .sizes = {{8, 32}}, .machine = Machine::Typical({}), .cut = {.max_nodes = 4, .min_nodes = 3}};
  if (!joins) options.rules.disabled = {"boundary_layouts"};
  return options;
}

void BM_JoinSpace(benchmark::State& state) {
  const Graph graph = AttentionLayers(static_cast<int>(state.range(0)));
  const RegionFormsOptions options = AttentionOptions(state.range(1) != 0);
  for (auto _ : state) benchmark::DoNotOptimize(RegionForms::Create(graph, options).ok());
}
BENCHMARK(BM_JoinSpace)->ArgsProduct({{6, 24, 48}, {0, 1}})->Unit(benchmark::kMillisecond);

void BM_Join(benchmark::State& state) {
  const Graph graph = AttentionLayers(static_cast<int>(state.range(0)));
  const auto forms = *RegionForms::Create(graph, AttentionOptions(true));
  std::vector<double> costs, prices;
  for (const Region& r : forms->regions().distinct) {
    costs.push_back(static_cast<double>(r.graph.nodes.size()));
  }
  for (const RegionJoins::Variant& v : forms->joins()->variants()) {
    prices.push_back(static_cast<double>(v.stored.nodes.size()));
  }
  size_t joins = 0;
  for (auto _ : state) joins = forms->joins()->Best(costs, prices, 2).size();
  state.counters["joins"] = static_cast<double>(joins);
  state.counters["variants"] = static_cast<double>(prices.size());
}
BENCHMARK(BM_Join)->Arg(6)->Arg(24)->Arg(48)->Unit(benchmark::kMillisecond);

void BM_Neighbours(benchmark::State& state) {
  const Graph layers = EncoderLayers(static_cast<int>(state.range(0)));
  const Graph graph = *Decompose(
      layers, [](const Node& n) { return OpInfo(n.op).composite() && n.op != Op::kContract; });
  RegionFormsOptions options{.sizes = {SizePoint(graph.dims.size(), 32)},
                             .machine = Machine::Typical({})};
  size_t count = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const auto forms = *RegionForms::Create(graph, options);
    state.ResumeTiming();
    count = forms->Neighbours(0).size();
  }
  state.counters["neighbours"] = static_cast<double>(count);
}
BENCHMARK(BM_Neighbours)->Arg(1)->Arg(6)->Arg(24)->Arg(48)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace athanor
