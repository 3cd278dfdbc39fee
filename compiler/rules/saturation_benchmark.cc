// Growth of the e-graph of a model's layers under all rows together, and its duration:
//
//   bazel run //compiler/rules:saturation_benchmark
//
// The counters are: nodes of the graph; e-nodes and classes at the end; iterations; peak bytes.
// ATHANOR_REPORT=1 prints the report of every rule.
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "benchmark/benchmark.h"
#include "compiler/egraph/report.h"
#include "compiler/rules/saturate.h"
#include "compiler/rules/terms_testing.h"

namespace athanor {
namespace {

void GrowAll(benchmark::State& state, const Graph& graph, const RuleChoice& choice) {
  egraph::Report report;
  size_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::unique_ptr<TermGraph> terms = TermGraph::Create(graph).value();
    state.ResumeTiming();
    report = Saturate(terms.get(), choice, {}).value();
    bytes = terms->terms().Bytes();
  }
  for (const egraph::IterationReport& i : report.iterations) bytes = std::max(bytes, i.bytes);
  state.counters["graph"] = static_cast<double>(graph.nodes.size());
  state.counters["nodes"] = static_cast<double>(report.iterations.back().nodes);
  state.counters["classes"] = static_cast<double>(report.iterations.back().classes);
  state.counters["bytes"] = static_cast<double>(bytes);
  state.counters["iterations"] = static_cast<double>(report.iterations.size());
  state.SetLabel(egraph::StopReasonText(report.reason));
  if (std::getenv("ATHANOR_REPORT") != nullptr) std::cerr << egraph::ReportText(report);
}

// Imports a graph into an e-graph and extracts it again.
void Import(benchmark::State& state) {
  const Graph graph = EncoderLayers(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    const std::unique_ptr<TermGraph> terms = TermGraph::Create(graph).value();
    benchmark::DoNotOptimize(terms->Extract(terms->Original()).value());
  }
}
BENCHMARK(Import)->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond);

void Encoder(benchmark::State& state) {
  GrowAll(state, EncoderLayers(static_cast<int>(state.range(0))), {});
}
BENCHMARK(Encoder)->Arg(1)->Arg(2)->Arg(4)->Unit(benchmark::kMillisecond);

void Decoder(benchmark::State& state) {
  GrowAll(state, DecoderLayers(static_cast<int>(state.range(0))), {});
}
BENCHMARK(Decoder)->Arg(1)->Arg(2)->Arg(4)->Unit(benchmark::kMillisecond);

// Leaves out the rows that decompose contractions and attention and recognise them again.
void EncoderRewrites(benchmark::State& state) {
  GrowAll(state, EncoderLayers(static_cast<int>(state.range(0))),
          {.disabled = {"decompose", "recognise"}});
}
BENCHMARK(EncoderRewrites)->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace athanor
