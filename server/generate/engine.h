// Generates for the sequences of one version: a thread that plans a step, runs it, chooses tokens,
// and puts them and their text into outboxes.
//
//   auto engine = Engine::Create(options, std::move(runner), text->tokenizer);
//   ASSIGN_OR_RETURN(Engine::Started started, engine->Start(std::move(input), tell_the_sender));
//   ... started.outbox->Take() ...
//   engine->Cancel(started.id, absl::CancelledError("the client left"));
//
// Thread-safe. Callbacks run on the engine's thread and may only pass the news on.
#ifndef ATHANOR_SERVER_GENERATE_ENGINE_H_
#define ATHANOR_SERVER_GENERATE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/generate/block_room.h"
#include "server/generate/outbox.h"
#include "server/generate/sample/sampling.h"
#include "server/generate/schedule/scheduler.h"
#include "server/generate/schedule/sequence.h"
#include "server/generate/step_runner.h"
#include "server/metrics/metrics.h"
#include "server/text/tokens/tokenizer.h"

namespace athanor {

struct EngineOptions {
  SchedulerOptions scheduler;
  int64_t vocabulary = 0;  // logits of a row
  int32_t blocks = 0;      // of keys and values, block 0 included
  // Bytes of keys and values of a block; 0: blocks share pages so much that only all of them
  // together give any back.
  int64_t block_bytes = 0;
  int64_t outbox_events = 64;               // of a sequence, until it is paused
  std::shared_ptr<VersionMetrics> metrics;  // null: nothing is counted
  // Reports whether others lack memory: then blocks that are kept for their contents give up
  // theirs. Called between two steps, must be short. Null: nobody does.
  std::function<bool()> lacks;
  // Called when a step finds no memory for a block; for a sequence that is alone once each time it
  // comes so far, however often it tries the same step. Must be short. Null: nobody wants to know.
  std::function<void()> refused;
  // The time for which a sequence that is alone waits for memory of a block: engines that were
  // asked for room give it between two of their steps, and requests end.
  SequenceTime::duration room_wait = std::chrono::seconds(5);
};

// The engine makes the keys of the prompt's blocks: `sequence` needs none.
struct GenerateInput {
  SequenceRequest sequence;
  std::string cache_group, cache_salt;  // inputs share blocks where both are equal
  Sampling sampling;
  std::vector<std::string> stop;  // texts that end the sequence
  bool special_in_text = false;   // special tokens are written as text
  bool continues = false;         // the text goes on with a prompt's: spaces at its beginning count
};

// Counts what an engine does now, and has done since it was made.
struct EngineView {
  int64_t running = 0, waiting = 0, paused = 0;  // sequences
  int64_t blocks = 0, free_blocks = 0;
  int64_t kept_blocks = 0;      // free ones that hold what prompts may begin with
  int64_t committed_bytes = 0;  // of keys and values
  int64_t steps = 0, prompt_tokens = 0, generated_tokens = 0;
  int64_t queried_tokens = 0, cached_tokens = 0;  // of prompts: looked for in blocks, found
  int64_t preemptions = 0, recomputed_tokens = 0;
  std::string plan_id;  // of the last step
};

class Engine {
 public:
  // `tokenizer` may be null: then events have no text, and stop texts are refused.
  static std::unique_ptr<Engine> Create(const EngineOptions& options,
                                        std::unique_ptr<StepRunner> runner,
                                        std::shared_ptr<const Tokenizer> tokenizer);
  virtual ~Engine() = default;  // closes it

  struct Started {
    SequenceId id = 0;
    std::shared_ptr<Outbox> outbox;
  };
  // Lets a sequence wait for its turn. INVALID_ARGUMENT names the field that is wrong, or says that
  // the prompt can never fit, with the numbers; RESOURCE_EXHAUSTED: too many wait; otherwise what
  // Close was given. `filled` is called when there is something in the outbox.
  virtual absl::StatusOr<Started> Start(GenerateInput input, Outbox::Callback filled) = 0;
  // Ends a sequence between two steps; its outbox closes with `why`. Does nothing if it has ended.
  virtual void Cancel(SequenceId id, const absl::Status& why) = 0;
  // Ends all sequences between two steps with this error, and later ones at once. Returns when the
  // thread has ended. The first status counts.
  virtual void Close(const absl::Status& status) = 0;
  // Returns by what others ask for memory of its blocks.
  virtual std::weak_ptr<BlockRoom> room() { return {}; }
  virtual EngineView view() const = 0;
  virtual const EngineOptions& options() const = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_ENGINE_H_
