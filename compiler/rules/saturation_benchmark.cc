// How far all rows together grow the e-graph of a model's layers, and how long that takes:
//
//   bazel run -c opt //compiler/rules:saturation_benchmark
//
// ATHANOR_REPORT=1 prints what every rule did.
#include <cstdlib>
#include <iostream>

#include "benchmark/benchmark.h"
#include "compiler/egraph/report.h"
#include "compiler/rules/terms_testing.h"

namespace athanor {
namespace {

void Saturate(benchmark::State& state, const Graph& graph) {
  egraph::Report report;
  for (auto _ : state) {
    state.PauseTiming();
    Terms t(graph);
    state.ResumeTiming();
    report = t.Run(RewritingRows());
  }
  state.counters["graph"] = static_cast<double>(graph.nodes.size());
  state.counters["nodes"] = static_cast<double>(report.iterations.back().nodes);
  state.counters["classes"] = static_cast<double>(report.iterations.back().classes);
  state.counters["bytes"] = static_cast<double>(report.iterations.back().bytes);
  state.counters["iterations"] = static_cast<double>(report.iterations.size());
  state.SetLabel(egraph::StopReasonText(report.reason));
  if (std::getenv("ATHANOR_REPORT") != nullptr) std::cerr << egraph::ReportText(report);
}

void Encoder(benchmark::State& state) {
  Saturate(state, EncoderLayers(static_cast<int>(state.range(0))));
}
BENCHMARK(Encoder)->Arg(1)->Arg(2)->Arg(4)->Unit(benchmark::kMillisecond);

void Decoder(benchmark::State& state) {
  Saturate(state, DecoderLayers(static_cast<int>(state.range(0))));
}
BENCHMARK(Decoder)->Arg(1)->Arg(2)->Arg(4)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace athanor
