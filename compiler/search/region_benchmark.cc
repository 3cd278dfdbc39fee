// What cutting costs; README.md has figures.
#include "benchmark/benchmark.h"
#include "compiler/search/region.h"
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

}  // namespace
}  // namespace athanor
