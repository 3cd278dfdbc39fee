// Chooses a sequence's tokens, makes text of them, and puts both into its outbox.
//
//   Reply reply(input, tokenizer, metrics, outbox, arrived);
//   Told told = reply.Choose(logits, position, &sampler);   // of a step's wanted row
//   if (!reply.Send(now)) ...                               // the outbox is full
//   reply.Finish(Finish::kStop, facts, now);                // instead of the last Send
//
// The text of a stop token, and a stop string with all that follows it, are left out. Used by an
// engine's thread alone, but for the outbox.
#ifndef ATHANOR_SERVER_GENERATE_REPLY_H_
#define ATHANOR_SERVER_GENERATE_REPLY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/generate/engine.h"
#include "server/generate/outbox.h"
#include "server/generate/sample/sampler.h"
#include "server/generate/sample/sampling.h"
#include "server/generate/sample/stop_watcher.h"
#include "server/text/tokens/detokenizer.h"

namespace athanor {

// Holds what a reply does not know of its sequence.
struct SequenceFacts {
  std::string plan_id;  // of its last step
  int64_t cached_tokens = 0, preemptions = 0;
};

class Reply {
 public:
  // `tokenizer` and `metrics` may be null. REQUIRES: CheckInput was OK.
  Reply(const GenerateInput& input, std::shared_ptr<const Tokenizer> tokenizer,
        std::shared_ptr<VersionMetrics> metrics, std::shared_ptr<Outbox> outbox,
        SequenceTime arrived);

  // Notes that a step with rows of the sequence begins.
  void Start(SequenceTime now);
  // Chooses the token at `position` and says what it means for the sequence; `id` is left out.
  Told Choose(absl::Span<const float> logits, int64_t position, Sampler* sampler);
  // Reports whether there is something to send.
  bool has_chosen() const { return !next_.tokens.empty(); }
  // Sends what was chosen; returns false if the outbox is full then.
  [[nodiscard]] bool Send(SequenceTime now);
  // Sends what was chosen, if anything, with all that was held back and a summary; closes the
  // outbox.
  void Finish(Finish finish, const SequenceFacts& facts, SequenceTime now);
  // Closes the outbox with an error.
  void Fail(const absl::Status& status);

  const Outbox& outbox() const { return *outbox_; }

 private:
  bool IsStopToken(int32_t token) const;
  void NoteTime(SequenceTime now);
  // Counts, if there are metrics.
  void Observe(Metric metric, SequenceTime::duration time);
  void CountEnd(FinishedReason reason);

  const Sampling sampling_;
  const std::vector<int32_t> stop_tokens_;
  const int64_t min_tokens_;
  const std::shared_ptr<VersionMetrics> metrics_;
  const std::shared_ptr<Outbox> outbox_;
  const SequenceTime arrived_;
  const bool counts_matter_;  // to `sampling_`
  TokenCounts counts_;
  std::optional<Detokenizer> detokenizer_;  // none: there is no text
  StopWatcher watcher_;
  bool stopped_ = false;  // a stop string was found: no text follows
  GenerateEvent next_;    // what was chosen and is not sent
  SequenceSummary summary_;
};

// Returns how many tokens may be chosen: logits may have rows beyond the tokenizer's, to a round
// number, which no text can be made of. `tokenizer` may be null.
int64_t TokensToChoose(int64_t vocabulary, const Tokenizer* tokenizer);

// Returns INVALID_ARGUMENT, naming the field, if one is out of its range. What has to do with the
// scheduler's room is Scheduler::Add's. `tokenizer` may be null.
absl::Status CheckInput(const GenerateInput& input, int64_t vocabulary, const Tokenizer* tokenizer);

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_REPLY_H_
