// Random requests, some with equal beginnings, readers of any pace, cancels, deadlines, failing
// steps, lack of memory and closes, from several threads at once. Each sequence must say what it
// says alone, as far as it comes, and end as it may; no block is lost.
//
// ATHANOR_SEQUENCES=100000 runs so many sequences instead of CI's 2,000.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>

#include "absl/algorithm/container.h"
#include "gtest/gtest.h"
#include "server/generate/engine.h"
#include "server/generate/engine_testing.h"

namespace athanor {
namespace {

using std::chrono::microseconds;

constexpr int64_t kVocabulary = 44;

// Says by the hash and the sampler alone what the sequence generates.
struct Said {
  std::vector<int32_t> tokens;
  Finish finish = Finish::kNone;
};
Said Alone(const GenerateInput& input, const EngineOptions& options) {
  const SequenceRequest& asked = input.sequence;
  const auto prompt = static_cast<int64_t>(asked.prompt.size());
  const int64_t most = std::min(asked.max_tokens, options.scheduler.max_model_len - prompt);
  Said said;
  TokenCounts counts(asked.prompt);
  Sampler sampler(kVocabulary);
  uint64_t hash = 0;
  for (int64_t i = 0; i < prompt; ++i) hash = MixHash(hash, CellOf(i, asked.prompt[i]));
  while (said.finish == Finish::kNone) {
    std::vector<float> logits;
    AppendLogits(hash, kVocabulary, &logits);
    const auto generated = static_cast<int64_t>(said.tokens.size());
    const bool may_stop = generated >= asked.min_tokens;
    const auto next = sampler.Sample(logits, input.sampling, counts, prompt + generated,
                                     may_stop ? absl::Span<const int32_t>() : asked.stop_tokens);
    const int32_t token = next->token;
    said.tokens.push_back(token);
    counts.Add(token);
    hash = MixHash(hash, CellOf(prompt + generated, token));
    if (absl::c_linear_search(asked.stop_tokens, token)) {
      said.finish = Finish::kStop;
    } else if (generated + 1 == most) {
      said.finish = Finish::kLength;
    }
  }
  return said;
}

class Fuzz {
 public:
  explicit Fuzz(uint32_t seed) : random_(seed) {
    options_ = {.scheduler = {.max_batched_tokens = int64_t{1} << Below(8),
                              .max_sequences = 1 + Below(12),
                              .max_model_len = 40,
                              .max_waiting = 1000,
                              .block = int64_t{1} << Below(4),
                              .longest_pause = std::chrono::seconds(100)},
                .vocabulary = kVocabulary,
                .block_bytes = HashRunner::kBlockBytes,
                .outbox_events = 1 + Below(6),
                .room_wait = std::chrono::milliseconds(Below(30))};
    // Room for one long sequence, or for several; in some, memory for fewer of their blocks.
    const int64_t longest = (40 + options_.scheduler.block - 1) / options_.scheduler.block;
    options_.blocks = static_cast<int32_t>(longest + 2 + Below(60));
    if (Below(3) == 0) knobs_->most_committed = longest + Below(10);
    if (Below(3) == 0) options_.lacks = [this] { return ++looks_ % 16 == 0; };
    if (Below(2) == 0) options_.scheduler.itl_target = microseconds(Below(200));
    options_.scheduler.max_preemptions = 1 + Below(3);
    engine_ = Engine::Create(options_, std::make_unique<HashRunner>(options_, knobs_), nullptr);
  }

  void Run(int sequences) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([this, sequences, seed = static_cast<uint32_t>(Below(1 << 30))] {
        std::mt19937 random(seed);
        for (int n = 0; n < sequences / 4; n += 5) Group(&random);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const EngineView view = engine_->view();
    EXPECT_EQ(view.running + view.waiting + view.paused, 0);
    EXPECT_EQ(view.free_blocks, view.blocks) << "blocks leaked";
  }
  // Closes it while sequences run.
  void Close() {
    std::thread closing([this] { engine_->Close(absl::UnavailableError("closed")); });
    std::mt19937 random(7);
    closing_ = true;
    for (int i = 0; i < 4; ++i) Group(&random);
    closing.join();
    EXPECT_EQ(engine_->view().free_blocks, engine_->view().blocks);
  }
  int64_t finished() const { return finished_; }
  int64_t steps() const { return knobs_->steps; }
  EngineView view() const { return engine_->view(); }

 private:
  int64_t Below(int64_t end) { return BelowOf(&random_, end); }
  static int64_t BelowOf(std::mt19937* random, int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(*random);
  }

  struct Asked {
    GenerateInput input;
    bool nan = false, failing = false;
    std::unique_ptr<Client> client;
    // Cancels once it has read so many tokens: how long they take changes nothing.
    size_t leaves_at = std::numeric_limits<size_t>::max();
    bool cancelled = false;
  };

  Asked Ask(std::mt19937* random) {
    const auto below = [random](int64_t end) { return BelowOf(random, end); };
    Asked asked;
    SequenceRequest& sequence = asked.input.sequence;
    const int64_t length = 1 + below(below(2) == 0 ? 4 : 39);
    if (below(2) == 0) {
      // Draws one of three beginnings, up to any token.
      const int64_t which = below(3);
      const int64_t shared = below(length + 1);
      for (int64_t i = 0; i < shared; ++i) {
        sequence.prompt.push_back(static_cast<int32_t>((i * i + which) % 40));
      }
    }
    while (static_cast<int64_t>(sequence.prompt.size()) < length) {
      sequence.prompt.push_back(static_cast<int32_t>(below(40)));
    }
    asked.input.cache_salt = below(4) == 0 ? "salt" : "";
    sequence.client = absl::StrCat(below(3));
    if (below(4) == 0) sequence.priority = below(200);
    sequence.max_tokens = 1 + below(40);
    sequence.min_tokens = std::min(below(6), sequence.max_tokens);
    for (int64_t i = below(3); i > 0; --i) {
      sequence.stop_tokens.push_back(static_cast<int32_t>(below(40)));
    }
    if (below(10) == 0) {
      sequence.deadline = std::chrono::steady_clock::now() + microseconds(below(2000));
    }
    asked.input.sampling = {.temperature = below(2) == 0 ? 0.0f : 1.0f,
                            .top_k = below(3) == 0 ? 5 : 0,
                            .frequency = below(3) == 0 ? 0.5f : 0.0f,
                            .seed = static_cast<uint64_t>(below(100))};
    if (below(8) == 0) asked.leaves_at = below(20);
    asked.nan = below(25) == 0;
    asked.failing = !asked.nan && below(25) == 0;
    if (asked.nan) sequence.prompt.back() = kNanToken;
    if (asked.failing) sequence.prompt.back() = kFailingToken;
    return asked;
  }

  // Starts some sequences and reads them by turns to their ends.
  void Group(std::mt19937* random) {
    std::vector<Asked> group;
    for (int i = 0; i < 5; ++i) {
      group.push_back(Ask(random));
      group.back().client = std::make_unique<Client>(engine_.get(), group.back().input);
    }
    if (BelowOf(random, 4) == 0) knobs_->failing_steps += BelowOf(random, 3);
    if (BelowOf(random, 16) == 0) {
      engine_->room().lock()->Await(BelowOf(random, 40) * HashRunner::kBlockBytes,
                                    SequenceTime::max());
    }
    for (size_t left = group.size(); left > 0;) {
      left = 0;
      for (Asked& asked : group) {
        if (BelowOf(random, 4) != 0 && !asked.client->Read()) continue;
        ++left;
        if (asked.cancelled || asked.client->heard().tokens.size() < asked.leaves_at) continue;
        asked.cancelled = true;
        engine_->Cancel(asked.client->id(), absl::CancelledError("left"));
      }
      std::this_thread::sleep_for(microseconds(BelowOf(random, 100)));
    }
    for (const Asked& asked : group) Check(asked);
  }

  void Check(const Asked& asked) {
    const Heard& heard = asked.client->heard();
    const Said alone = Alone(asked.input, options_);
    if (!asked.nan && !asked.failing) {
      ASSERT_LE(heard.tokens.size(), alone.tokens.size());
      EXPECT_TRUE(std::equal(heard.tokens.begin(), heard.tokens.end(), alone.tokens.begin()));
    } else {
      EXPECT_TRUE(heard.tokens.empty());
    }
    switch (heard.end.code()) {
      case absl::StatusCode::kOk:
        ++finished_;
        EXPECT_EQ(heard.finish, alone.finish);
        EXPECT_EQ(heard.tokens, alone.tokens);
        EXPECT_EQ(heard.summary.generated_tokens, static_cast<int64_t>(alone.tokens.size()));
        break;
      case absl::StatusCode::kDataLoss:
        EXPECT_TRUE(asked.nan) << heard.end;
        break;
      case absl::StatusCode::kUnavailable:
        EXPECT_TRUE(asked.failing || closing_) << heard.end;
        break;
      case absl::StatusCode::kCancelled:
        EXPECT_TRUE(asked.cancelled) << heard.end;
        break;
      case absl::StatusCode::kDeadlineExceeded:
        EXPECT_LT(asked.input.sequence.deadline, std::chrono::steady_clock::now());
        break;
      default:
        ADD_FAILURE() << heard.end;
    }
  }

  std::mt19937 random_;
  EngineOptions options_;
  const std::shared_ptr<HashRunner::Knobs> knobs_ = std::make_shared<HashRunner::Knobs>();
  std::atomic<int64_t> looks_ = 0;  // of `lacks`
  std::unique_ptr<Engine> engine_;
  bool closing_ = false;
  std::atomic<int64_t> finished_ = 0;
};

TEST(EngineFuzzTest, EachSequenceSaysWhatItSaysAlone) {
  const char* asked = std::getenv("ATHANOR_SEQUENCES");
  const int64_t sequences = asked == nullptr ? 2'000 : std::atoll(asked);
  int64_t finished = 0, steps = 0, cached = 0, preemptions = 0;
  for (uint32_t seed = 0; seed * 200 < sequences && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Fuzz fuzz(seed);
    fuzz.Run(200);
    fuzz.Close();
    finished += fuzz.finished();
    steps += fuzz.steps();
    cached += fuzz.view().cached_tokens;
    preemptions += fuzz.view().preemptions;
  }
  RecordProperty("steps", std::to_string(steps));
  EXPECT_GT(finished, sequences / 2) << "most of them end well";
  EXPECT_GT(cached, 0);
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace athanor
