// Measures what an engine itself takes for a step: all but the runner, whose logits lie ready. The
// counter cpu_us is the time of the engine's thread alone, which a busy machine changes less.
// SmolLM2's 49,152 tokens.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "benchmark/benchmark.h"
#include "server/generate/engine.h"

namespace athanor {
namespace {

constexpr int64_t kVocabulary = 49'152;
constexpr int64_t kPrompt = 128;

// Processor time of an engine's thread between its runs.
struct OwnTime {
  std::atomic<int64_t> nanoseconds{0}, steps{0};
};

int64_t ThreadNanoseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

class ReadyRunner : public StepRunner {
 public:
  ReadyRunner(int64_t rows, OwnTime* own) : own_(*own), logits_(rows * kVocabulary) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    for (float& logit : logits_) logit = normal(random);
  }
  absl::StatusOr<absl::Span<const float>> Run(
      const Step& step, absl::Span<const absl::Span<const int32_t>>) override {
    const int64_t now = ThreadNanoseconds();
    if (last_ != 0) {
      own_.nanoseconds += now - last_;
      ++own_.steps;
    }
    last_ = now;
    int64_t wanted = 0;
    for (const Row& row : step.rows) wanted += row.wanted ? 1 : 0;
    return absl::MakeConstSpan(logits_).subspan(0, wanted * kVocabulary);
  }
  absl::Status Commit(int32_t) override { return absl::OkStatus(); }
  void Decommit(int32_t) override {}
  bool Trim() override { return false; }
  int64_t committed_bytes() const override { return 0; }
  std::string signature() override { return ""; }
  const std::string& plan_id() const override { return plan_id_; }

 private:
  OwnTime& own_;
  int64_t last_ = 0;  // thread time at the last run, which itself takes next to none
  std::vector<float> logits_;
  const std::string plan_id_ = "0123456789abcdef0123456789abcdef";
};

// Pieces of up to six letters, so a step makes text too.
std::shared_ptr<const Tokenizer> Words() {
  TokenizerData data;
  for (int64_t i = 0; i < kVocabulary; ++i) data.pieces.push_back(std::to_string(i) + " ");
  data.pieces[0] = "a";
  return *Tokenizer::Create(std::move(data));
}

// An iteration is a step in which all sequences say a token; 300 are timed at once, by the times
// that the engine tells.
void BM_Step(benchmark::State& state, const Sampling& sampling, bool stops) {
  constexpr int64_t kSteps = 300;
  const int64_t sequences = state.range(0);
  EngineOptions options{.vocabulary = kVocabulary, .outbox_events = 64};
  options.scheduler.max_sequences = sequences;
  options.scheduler.max_batched_tokens = kPrompt * sequences;  // they begin together
  options.blocks = static_cast<int32_t>(sequences * (kPrompt + kSteps) / 16 + sequences + 1);
  static const auto* const kWords = new std::shared_ptr<const Tokenizer>(Words());
  OwnTime own;
  const auto engine =
      Engine::Create(options, std::make_unique<ReadyRunner>(sequences, &own), *kWords);
  for (auto _ : state) {
    std::vector<std::shared_ptr<Outbox>> outboxes;
    for (int64_t i = 0; i < sequences; ++i) {
      GenerateInput input{.sequence = {.prompt = std::vector<int32_t>(kPrompt, 7),
                                       .max_tokens = kSteps,
                                       .stop_tokens = {1, 2}},
                          .sampling = sampling};
      input.sampling.seed = i;
      if (stops) input.stop = {"\n\n", "User:"};
      outboxes.push_back(engine->Start(std::move(input), [] {})->outbox);
    }
    SequenceTime first = SequenceTime::max(), last;
    for (int64_t left = sequences; left > 0;) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      for (const std::shared_ptr<Outbox>& outbox : outboxes) {
        for (const GenerateEvent& event : outbox->Take().events) {
          if (!event.summary.has_value()) continue;
          --left;
          first = std::min(first, event.summary->first_token);
          last = std::max(last, event.summary->last_token);
        }
      }
    }
    state.SetIterationTime(std::chrono::duration<double>(last - first).count() / (kSteps - 1));
  }
  state.counters["cpu_us"] = 1e-3 * static_cast<double>(own.nanoseconds) / own.steps;
}
BENCHMARK_CAPTURE(BM_Step, greedy, {.temperature = 0}, false)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Arg(1)
    ->Arg(8)
    ->Arg(64);
BENCHMARK_CAPTURE(BM_Step, greedy_stops, {.temperature = 0}, true)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Arg(8);
BENCHMARK_CAPTURE(BM_Step, top_k_50_top_p, {.top_k = 50, .top_p = 0.9}, false)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Arg(8);
BENCHMARK_CAPTURE(BM_Step, top_p, {.top_p = 0.9}, false)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Arg(8)
    ->Arg(64);

}  // namespace
}  // namespace athanor
