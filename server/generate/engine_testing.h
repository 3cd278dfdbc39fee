// For tests of engines: a runner whose logits are a hash of all that it reads in its blocks, so a
// wrong row, position, block or token changes them; and a client that reads.
#ifndef ATHANOR_SERVER_GENERATE_ENGINE_TESTING_H_
#define ATHANOR_SERVER_GENERATE_ENGINE_TESTING_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/mutex.h"
#include "gtest/gtest.h"
#include "server/generate/engine.h"

namespace athanor {

// Prompts with these tokens do harm.
inline constexpr int32_t kFailingToken = 40, kNanToken = 41;

inline uint64_t MixHash(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}
inline uint64_t CellOf(int64_t position, int32_t token, int64_t signature = 0) {
  return static_cast<uint64_t>(signature) << 48 | (position * 1000 + token);
}

// Appends the logits that follow a sequence with this hash. Harmful tokens never follow.
inline void AppendLogits(uint64_t hash, int64_t vocabulary, std::vector<float>* logits) {
  for (int64_t token = 0; token < vocabulary; ++token) {
    const float logit = static_cast<float>(MixHash(hash, token) >> 40) / (1 << 21) - 4;  // -4 to 4
    const bool harms = token == kFailingToken || token == kNanToken;
    logits->push_back(harms ? -std::numeric_limits<float>::infinity() : logit);
  }
}

class HashRunner : public StepRunner {
 public:
  static constexpr int64_t kBlockBytes = 100;

  // Tests watch and change these, from any thread.
  struct Knobs {
    std::atomic<int64_t> steps{0}, rows{0}, committed{0}, most_sequences{0};
    std::atomic<int64_t> most_committed{std::numeric_limits<int64_t>::max()};
    std::atomic<int64_t> missing_logits{0}, trims{0};
    std::atomic<int64_t> refused{0};        // commits
    std::atomic<int64_t> signature{0};      // another one: other logits
    std::atomic<int64_t> failing_steps{0};  // so many of the next ones fail, if shared by several
    std::function<void(int64_t step)> before;  // runs in each step; set ahead of the first
  };

  HashRunner(const EngineOptions& options, std::shared_ptr<Knobs> knobs)
      : block_(options.scheduler.block),
        vocabulary_(options.vocabulary),
        knobs_(std::move(knobs)),
        cells_(options.blocks * block_, kPoison),
        committed_(options.blocks) {}

  absl::StatusOr<absl::Span<const float>> Run(
      const Step& step, absl::Span<const absl::Span<const int32_t>> tables) override {
    if (knobs_->before) knobs_->before(knobs_->steps);
    ++knobs_->steps;
    const auto sequences = static_cast<int64_t>(tables.size());
    if (sequences > knobs_->most_sequences) knobs_->most_sequences = sequences;
    if (sequences > 1 && knobs_->failing_steps > 0) {
      --knobs_->failing_steps;
      return absl::UnavailableError("all fail");
    }
    logits_.clear();
    for (const Row& row : step.rows) {
      const absl::Span<const int32_t> table = tables[row.sequence];
      if (row.token == kFailingToken) return absl::UnavailableError("the failing token");
      CellAt(table, row.position) = CellOf(row.position, row.token, knobs_->signature);
      if (!row.wanted) continue;
      uint64_t hash = 0;
      bool nan = false;
      for (int32_t i = 0; i <= row.position; ++i) {
        const uint64_t cell = CellAt(table, i);
        nan |= cell == CellOf(i, kNanToken);
        hash = MixHash(hash, cell);
      }
      AppendLogits(hash, vocabulary_, &logits_);
      if (nan) logits_[logits_.size() - 3] = std::numeric_limits<float>::quiet_NaN();
    }
    knobs_->rows += static_cast<int64_t>(step.rows.size());
    plan_id_ = absl::StrCat("plan", knobs_->steps.load());
    return absl::MakeConstSpan(logits_).subspan(knobs_->missing_logits);
  }

  absl::Status Commit(int32_t block) override {
    if (knobs_->committed >= knobs_->most_committed) {
      ++knobs_->refused;
      return absl::ResourceExhaustedError("no memory for another block");
    }
    EXPECT_FALSE(committed_[block]) << block;
    EXPECT_GT(block, 0);
    committed_[block] = true;
    ++knobs_->committed;
    return absl::OkStatus();
  }
  void Decommit(int32_t block) override {
    EXPECT_TRUE(committed_[block]) << block;
    committed_[block] = false;
    --knobs_->committed;
    std::fill_n(cells_.begin() + block * block_, block_, kPoison);
  }
  bool Trim() override { return ++knobs_->trims > 0; }
  std::string signature() override { return absl::StrCat("signature", knobs_->signature.load()); }
  int64_t committed_bytes() const override { return knobs_->committed * kBlockBytes; }
  const std::string& plan_id() const override { return plan_id_; }

 private:
  static constexpr uint64_t kPoison = 0xdead;

  uint64_t& CellAt(absl::Span<const int32_t> table, int32_t position) {
    const int32_t block = table[position / block_];
    EXPECT_TRUE(committed_[block]) << block;
    return cells_[block * block_ + position % block_];
  }

  const int64_t block_, vocabulary_;
  const std::shared_ptr<Knobs> knobs_;
  std::vector<uint64_t> cells_;
  std::vector<bool> committed_;
  std::vector<float> logits_;
  std::string plan_id_;
};

// Collects what came of a sequence.
struct Heard {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<Sampled> sampled;
  int64_t events = 0;
  Finish finish = Finish::kNone;
  SequenceSummary summary;
  absl::Status end;
};

// A client of one sequence; starts it, and reads when asked to.
class Client {
 public:
  Client(Engine* engine, GenerateInput input) {
    // The callback may come after the client is gone.
    auto started = engine->Start(std::move(input), [inner = inner_] { inner->Tell(); });
    if (started.ok()) {
      id_ = started->id;
      outbox_ = std::move(started->outbox);
    } else {
      heard_.end = started.status();
    }
  }

  // Takes what is there, at most once; returns false once the end is known.
  bool Read() {
    if (outbox_ == nullptr) return false;
    Outbox::Content content = outbox_->Take();
    for (GenerateEvent& event : content.events) {
      EXPECT_EQ(heard_.finish, Finish::kNone) << "nothing follows the last event";
      ++heard_.events;
      heard_.text += event.text;
      for (Sampled& sampled : event.tokens) {
        heard_.tokens.push_back(sampled.token);
        heard_.sampled.push_back(std::move(sampled));
      }
      heard_.finish = event.finish;
      EXPECT_EQ(event.summary.has_value(), event.finish != Finish::kNone);
      if (event.summary.has_value()) heard_.summary = *std::move(event.summary);
    }
    if (!content.end.has_value()) return true;
    heard_.end = *content.end;
    EXPECT_EQ(heard_.end.ok(), heard_.finish != Finish::kNone) << heard_.end;
    outbox_ = nullptr;
    return false;
  }
  // Reads to the end.
  const Heard& Listen() {
    while (Read()) inner_->Wait();
    return heard_;
  }
  // Reads until there are so many tokens, or the end.
  const Heard& ListenFor(size_t tokens) {
    while (heard_.tokens.size() < tokens && Read()) {
      if (heard_.tokens.size() < tokens) inner_->Wait();
    }
    return heard_;
  }
  const Heard& heard() const { return heard_; }
  SequenceId id() const { return id_; }
  const std::shared_ptr<Outbox>& outbox() const { return outbox_; }

 private:
  struct Inner {
    void Tell() {
      MutexLock lock(mu);
      told = true;
      changed.NotifyOne();
    }
    void Wait() {
      MutexLock lock(mu);
      while (!std::exchange(told, false)) changed.Wait(lock);
    }
    Mutex mu;
    CondVar changed;
    bool told ABSL_GUARDED_BY(mu) = false;
  };

  const std::shared_ptr<Inner> inner_ = std::make_shared<Inner>();
  SequenceId id_ = 0;
  std::shared_ptr<Outbox> outbox_;
  Heard heard_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_ENGINE_TESTING_H_
