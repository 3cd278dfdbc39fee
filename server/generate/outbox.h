// Carries what a sequence generates from its engine's thread to whoever sends it to the client.
//
//   auto outbox = std::make_shared<Outbox>(64, tell_the_sender, [e, id] { e->Resume(id); });
//   if (!outbox->Put(std::move(event))) scheduler.Pause(id, now);   // the engine
//   outbox->Close(status);
//   Outbox::Content content = outbox->Take();                       // the sender
//
// Bounded: who is told that it is full pauses its sequence until `drained`. Thread-safe, for one
// thread that puts and one that takes. Callbacks run without the lock, on the thread of the call
// that causes them, and may only pass the news on.
#ifndef ATHANOR_SERVER_GENERATE_OUTBOX_H_
#define ATHANOR_SERVER_GENERATE_OUTBOX_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/generate/sample/sampler.h"
#include "server/generate/schedule/sequence.h"

namespace athanor {

// Tells what is known of a sequence once it has come to its end.
struct SequenceSummary {
  SequenceTime started, first_token, last_token;  // its first step began; tokens were chosen
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt: found in blocks at the first admission
  int64_t preemptions = 0;
  std::optional<int32_t> stop_token;  // that ended it
  std::string stop_text;              // that ended it
  std::string plan_id;                // of its last step
};

struct GenerateEvent {
  std::string text;  // of these tokens and earlier ones, whole code points; may be empty
  std::vector<Sampled> tokens;
  Finish finish = Finish::kNone;
  std::optional<SequenceSummary> summary;  // if `finish` is not kNone
};

class Outbox {
 public:
  using Callback = std::function<void()>;

  // Holds up to `most` events, at least 1. `filled` tells that there is something to take, once
  // until it is taken; `drained` that an outbox that was full is empty.
  Outbox(int64_t most, Callback filled, Callback drained)
      : most_(most), filled_(std::move(filled)), drained_(std::move(drained)) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Adds an event; returns false if it is full now. REQUIRES: it is not full, nor closed.
  [[nodiscard]] bool Put(GenerateEvent event);
  // Says that no event follows, and how the sequence ended. The first status counts.
  void Close(absl::Status status);
  // Reports whether it is full. Whoever pauses a sequence for that asks again behind it: it may
  // have been drained in between.
  bool full() const {
    MutexLock lock(mu_);
    return full_;
  }

  struct Content {
    std::vector<GenerateEvent> events;
    std::optional<absl::Status> end;  // no event follows
  };
  // Returns what is there, which may be nothing.
  Content Take();
  // Says that nobody takes any more: what is put is dropped, and nobody is told of it.
  void Abandon();

 private:
  const int64_t most_;
  const Callback filled_, drained_;
  mutable Mutex mu_;
  std::vector<GenerateEvent> events_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  bool told_ ABSL_GUARDED_BY(mu_) = false;  // `filled` was called since the last Take
  bool full_ ABSL_GUARDED_BY(mu_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_OUTBOX_H_
