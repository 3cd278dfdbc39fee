// Cost of the frontend: binding a small request, importing a graph of n nodes.
#include <string>

#include "benchmark/benchmark.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/infer_request.h"
#include "compiler/frontend/testing.h"

namespace athanor {
namespace {

void BM_BindAddOf16(benchmark::State& state) {
  Graph graph;
  graph.dims = {{"n", 1, 64}};
  GraphBuilder builder(&graph);
  const TensorType type{DType::kF32, {Expr::Symbol("n")}};
  const NodeId a = builder.Input("a", type).value();
  const NodeId b = builder.Input("b", type).value();
  builder.Output("sum", builder.Add(Op::kAdd, {a, b}).value());
  const RequestBinder binder = RequestBinder::Create(graph).value();
  RequestMessage m;
  for (const char* name : {"a", "b"}) m.Tensor(name, "FP32", {16}).Raw(std::string(64, '\0'));
  for (auto _ : state) benchmark::DoNotOptimize(binder.Bind(m.request));
}
BENCHMARK(BM_BindAddOf16);

void BM_ImportChain(benchmark::State& state) {
  GraphMessage m;
  m.Dim("b", 1, 64).Dim("s", 1, 512).Input("n0", "f32", {"b", "s", "384"});
  const int nodes = static_cast<int>(state.range(0));
  for (int i = 1; i < nodes; ++i) {
    m.Node("n" + std::to_string(i), "Exp", {"n" + std::to_string(i - 1)});
  }
  m.Output("y", "n" + std::to_string(nodes - 1));
  for (auto _ : state) benchmark::DoNotOptimize(ImportGraph(m.graph));
}
BENCHMARK(BM_ImportChain)->Arg(100)->Arg(10000);

}  // namespace
}  // namespace athanor
