// An engine whose sequences do what the test says: it computes nothing and has no thread.
//
//   ScriptedEngine engine(options);
//   ScriptedEngine::Sequence sequence = engine.Await(0);     // the first one that was started
//   sequence.outbox->Put({.text = "a", .tokens = {{.token = 5}}});
//   sequence.outbox->Put(LastEvent(Finish::kStop, 1));
#ifndef ATHANOR_SERVER_GENERATE_SCRIPTED_ENGINE_TESTING_H_
#define ATHANOR_SERVER_GENERATE_SCRIPTED_ENGINE_TESTING_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/generate/engine.h"

namespace athanor {

// Returns the last event of a sequence that has generated so many tokens.
inline GenerateEvent LastEvent(Finish finish, int64_t generated) {
  const SequenceTime now = std::chrono::steady_clock::now();
  return {.finish = finish,
          .summary = SequenceSummary{.started = now,
                                     .first_token = now,
                                     .last_token = now,
                                     .prompt_tokens = 3,
                                     .generated_tokens = generated,
                                     .plan_id = "p-7"}};
}

// Thread-safe.
class ScriptedEngine final : public Engine {
 public:
  struct Sequence {
    SequenceId id = 0;
    GenerateInput input;
    std::shared_ptr<Outbox> outbox;
  };

  explicit ScriptedEngine(EngineOptions options) : options_(std::move(options)) {}

  // Has Start fail with this.
  void Refuse(absl::Status status) {
    MutexLock lock(mu_);
    refusal_ = std::move(status);
  }
  // Has Start call this ahead of its return.
  void AtStart(std::function<void(Sequence)> call) {
    MutexLock lock(mu_);
    at_start_ = std::move(call);
  }
  // Waits until so many sequences and one more were started; returns that one.
  Sequence Await(size_t index) {
    MutexLock lock(mu_);
    while (sequences_.size() <= index) cv_.Wait(lock);
    return sequences_[index];
  }
  // Waits until a sequence is cancelled; returns why.
  absl::Status AwaitCancel(SequenceId id) {
    MutexLock lock(mu_);
    while (true) {
      for (const auto& [cancelled, why] : cancelled_) {
        if (cancelled == id) return why;
      }
      cv_.Wait(lock);
    }
  }
  size_t started() const {
    MutexLock lock(mu_);
    return sequences_.size();
  }
  size_t cancelled() const {
    MutexLock lock(mu_);
    return cancelled_.size();
  }
  int drained() const { return drained_; }  // how often an outbox that was full was emptied
  void SetView(EngineView view) {
    MutexLock lock(mu_);
    view_ = std::move(view);
  }

  absl::StatusOr<Started> Start(GenerateInput input, Outbox::Callback filled) override {
    Sequence sequence{.input = std::move(input)};
    std::function<void(Sequence)> at_start;
    {
      MutexLock lock(mu_);
      if (!refusal_.ok()) return refusal_;
      sequence.id = static_cast<SequenceId>(sequences_.size()) + 1;
      sequence.outbox = std::make_shared<Outbox>(options_.outbox_events, std::move(filled),
                                                 [this] { ++drained_; });
      sequences_.push_back(sequence);
      at_start = at_start_;
      cv_.NotifyAll();
    }
    if (at_start) at_start(sequence);
    return Started{sequence.id, sequence.outbox};
  }
  void Cancel(SequenceId id, const absl::Status& why) override {
    MutexLock lock(mu_);
    cancelled_.emplace_back(id, why);
    cv_.NotifyAll();
  }
  void Close(const absl::Status& status) override {
    std::vector<Sequence> sequences;
    {
      MutexLock lock(mu_);
      if (refusal_.ok()) refusal_ = status;
      sequences = sequences_;
    }
    for (const Sequence& sequence : sequences) sequence.outbox->Close(status);
  }
  EngineView view() const override {
    MutexLock lock(mu_);
    return view_;
  }
  const EngineOptions& options() const override { return options_; }

 private:
  const EngineOptions options_;
  std::atomic<int> drained_{0};
  mutable Mutex mu_;
  CondVar cv_;
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  std::function<void(Sequence)> at_start_ ABSL_GUARDED_BY(mu_);
  std::vector<Sequence> sequences_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<SequenceId, absl::Status>> cancelled_ ABSL_GUARDED_BY(mu_);
  EngineView view_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SCRIPTED_ENGINE_TESTING_H_
