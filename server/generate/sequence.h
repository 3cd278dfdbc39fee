// A sequence of tokens as the scheduler has it: a prompt, then the tokens generated so far.
#ifndef ATHANOR_SERVER_GENERATE_SEQUENCE_H_
#define ATHANOR_SERVER_GENERATE_SEQUENCE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

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
};

struct Sequence {
  int64_t generated() const { return static_cast<int64_t>(tokens.size()) - prompt; }
  // Reports whether the next token may be a stop token. If not, the sampler has to leave
  // `stop_tokens` out.
  bool MayStop() const { return generated() >= min_tokens; }
  // Number of tokens that a step has yet to compute.
  int64_t left() const { return static_cast<int64_t>(tokens.size()) - stored; }

  SequenceId id = 0;
  std::vector<int32_t> tokens;  // the prompt, then generated ones
  int64_t prompt = 0;           // number of the prompt's tokens
  int64_t max_tokens = 0;       // as asked, or less: what context and pool have room for
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_tokens;
  SequenceTime deadline;

  int64_t stored = 0;                  // number of tokens whose keys and values are in the blocks
  std::vector<int32_t> blocks;         // block j holds positions j * block to j * block + block - 1
  int64_t promised = 0;                // number of blocks it may have in all
  std::optional<SequenceTime> paused;  // since when
  bool in_step = false;                // a step with rows of it is running
  std::optional<absl::Status> failed;  // ends with this once its step has run
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SEQUENCE_H_
