// A sequence of tokens as the scheduler has it: a prompt, then the tokens generated so far.
#ifndef ATHANOR_SERVER_GENERATE_SCHEDULE_SEQUENCE_H_
#define ATHANOR_SERVER_GENERATE_SCHEDULE_SEQUENCE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/generate/schedule/block_key.h"
#include "server/generate/schedule/fair_order.h"

namespace athanor {

using SequenceId = int64_t;
using SequenceTime = std::chrono::steady_clock::time_point;

// Says why a sequence came to its end without an error.
enum class Finish : uint8_t {
  kNone,    // it has not, or it ended with an error
  kStop,    // a stop token, or a stop string
  kLength,  // max_tokens, the model's context, or all of its blocks
};

struct SequenceRequest {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 512;  // at least 1
  // No stop token may be chosen before so many other tokens were.
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_tokens;
  SequenceTime deadline = SequenceTime::max();
  // Names who asks: clients with work have equal shares of places and steps.
  std::string client;
  int64_t priority = 100;  // among sequences that wait, lower ones go first
  // The key ahead of the first block. Without one, no blocks are shared with other sequences.
  std::optional<BlockKey> root;
  // Keys of the prompt's first whole blocks; Scheduler::Add makes those that are missing.
  std::vector<BlockKey> keys;
};

struct Sequence {
  int64_t generated() const { return static_cast<int64_t>(tokens.size()) - prompt; }
  // Reports whether the next token may be a stop token. If not, the sampler has to leave
  // `stop_tokens` out.
  bool MayStop() const { return generated() >= min_tokens; }
  // Number of tokens that a step has yet to compute.
  int64_t left() const { return static_cast<int64_t>(tokens.size()) - stored; }
  // Reports whether its next row gives a token behind generated ones. If not, it has a prompt to
  // compute, or after a preemption all of its tokens.
  bool Decodes() const { return generated() > 0 && left() == 1; }
  // Number of tokens generated since the last admission.
  int64_t gained() const { return static_cast<int64_t>(tokens.size()) - admitted; }
  // Number of tokens that it had at the last admission and that are yet to compute.
  int64_t owed() const { return running && stored < admitted ? admitted - stored : 0; }

  SequenceId id = 0;
  int64_t arrival = 0;          // number of those that came before it
  std::vector<int32_t> tokens;  // the prompt, then generated ones
  int64_t prompt = 0;           // number of the prompt's tokens
  int64_t max_tokens = 0;       // as asked, or less: what context and pool have room for
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_tokens;
  SequenceTime deadline;
  int64_t priority = 100;

  std::optional<BlockKey> root;
  std::vector<BlockKey> keys;  // of its first blocks: with a root, at least of those of the prompt

  int64_t stored = 0;    // number of tokens whose keys and values are in the blocks
  int64_t computed = 0;  // the most that `stored` was: further rows are computed for the first time
  int64_t cached = 0;    // number of the prompt's tokens found in the pool at the first admission
  int64_t preemptions = 0;
  int64_t restarts = 0;         // of these: by StartAnew
  std::vector<int32_t> blocks;  // block j holds positions j * block to j * block + block - 1
  FairOrder::Client* client = nullptr;  // the scheduler's
  bool running = false;                 // it is admitted
  int64_t admitted = 0;                 // number of its tokens at the last admission
  int64_t found = 0;                    // number of them that were stored already
  int64_t passed = 0;                   // number of later ones of its client admitted before it
  int64_t last_step = 0;                // number of the last step that had rows of it
  std::optional<SequenceTime> paused;   // since when
  SequenceTime end;                     // of its deadline or its pause, the earlier one
  // While it waits: a running sequence, and the number of a block that it is about to store, which
  // this one will share.
  std::optional<std::pair<SequenceId, int64_t>> awaits;
  // While it waits: the pool's blocks that it would share, as they were when so many keys were
  // gone.
  std::vector<int32_t> hits;
  int64_t hits_at = 0;
  bool in_step = false;                // a step with rows of it is running
  std::optional<absl::Status> failed;  // ends with this once its step has run
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SCHEDULE_SEQUENCE_H_
