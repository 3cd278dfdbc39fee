// Speed of the pass over a weight's contents, in bytes per second.
#include <string>

#include "benchmark/benchmark.h"
#include "compiler/ir/graph/magnitude.h"

namespace athanor {
namespace {

void BM_MagnitudeOf(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const std::string contents(static_cast<size_t>(state.range(1)), '\x01');
  for (auto _ : state) benchmark::DoNotOptimize(MagnitudeOf(dtype, contents));
  state.SetBytesProcessed(state.iterations() * state.range(1));
  state.SetLabel(std::string(DTypeName(dtype)));
}

// Sizes within the caches and far beyond them.
BENCHMARK(BM_MagnitudeOf)
    ->ArgsProduct({{static_cast<int64_t>(DType::kBF16), static_cast<int64_t>(DType::kF32),
                    static_cast<int64_t>(DType::kF64)},
                   {256 << 10, 256 << 20}});

}  // namespace
}  // namespace athanor
