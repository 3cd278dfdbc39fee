// Measures a token's choice among SmolLM2's 49,152.
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "server/generate/sample/sampler.h"

namespace athanor {
namespace {

constexpr int64_t kVocabulary = 49'152;

// Most logits far below a few, as those of language models are; `flat`: all alike, the worst case.
void BM_Sample(benchmark::State& state, bool flat, const Sampling& sampling) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, flat ? 0.5f : 3);
  std::vector<float> logits(kVocabulary);
  for (float& logit : logits) logit = normal(random);
  TokenCounts counts;
  for (int32_t token = 0; token < 500; ++token) counts.Add(token * 31);
  Sampler sampler(kVocabulary);
  int64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.Sample(logits, sampling, counts, ++position, {}));
  }
}
BENCHMARK_CAPTURE(BM_Sample, greedy, false, {.temperature = 0});
BENCHMARK_CAPTURE(BM_Sample, temperature, false, {});
BENCHMARK_CAPTURE(BM_Sample, top_k_50, false, {.top_k = 50});
BENCHMARK_CAPTURE(BM_Sample, top_k_50_top_p, false, {.top_k = 50, .top_p = 0.9});
BENCHMARK_CAPTURE(BM_Sample, top_p, false, {.top_p = 0.9});
BENCHMARK_CAPTURE(BM_Sample, min_p, false, {.min_p = 0.1});
BENCHMARK_CAPTURE(BM_Sample, penalties, false, {.temperature = 0, .repetition = 1.1});
BENCHMARK_CAPTURE(BM_Sample, logprobs, false, {.temperature = 0, .logprobs = 5});
BENCHMARK_CAPTURE(BM_Sample, flat_temperature, true, {});
BENCHMARK_CAPTURE(BM_Sample, flat_top_k_5000, true, {.top_k = 5000});
BENCHMARK_CAPTURE(BM_Sample, flat_top_p, true, {.top_p = 0.9});

}  // namespace
}  // namespace athanor
