// What cutting costs; README.md has figures.
#include "benchmark/benchmark.h"
#include "compiler/rules/decompose.h"
#include "compiler/rules/terms_testing.h"
#include "compiler/search/region.h"
#include "compiler/search/region_forms.h"
#include "compiler/search/region_testing.h"

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

// A post-norm encoder of width 384 in composites that have kernels: cut, saturated, extracted.
void BM_Forms(benchmark::State& state) {
  const Graph layers = EncoderLayers(static_cast<int>(state.range(0)));
  const Graph graph = *Decompose(
      layers, [](const Node& n) { return OpInfo(n.op).composite() && n.op != Op::kContract; });
  RegionFormsOptions options{.sizes = {SizePoint(graph.dims.size(), 32)},
                             .machine = Machine::Typical({})};
  std::vector<RegionReport> reports;
  for (auto _ : state) reports = (*RegionForms::Create(graph, options))->Report();
  state.counters["regions"] = static_cast<double>(reports.size());
  for (const RegionReport& r : reports) {
    if (r.instances < state.range(0) - 1) continue;
    state.counters["e-nodes"] = static_cast<double>(r.e_nodes);
    state.counters["iterations"] = r.iterations;
    state.counters["saturation ms"] = 1e3 * r.seconds;
    state.counters["peak MB"] = static_cast<double>(r.peak_bytes) / 1e6;
  }
}
BENCHMARK(BM_Forms)->Arg(1)->Arg(6)->Arg(24)->Arg(48)->Unit(benchmark::kMillisecond);

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
