// Says how a sequence's next token is chosen, and the tokens that its penalties count.
#ifndef ATHANOR_SERVER_GENERATE_SAMPLE_SAMPLING_H_
#define ATHANOR_SERVER_GENERATE_SAMPLE_SAMPLING_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace athanor {

struct Sampling {
  // Most that `bias` may have, and that `logprobs` may ask for.
  static constexpr int64_t kMostBias = 1024, kMostLogprobs = 20;

  float temperature = 1;  // below 1e-5: greedy, the token with the highest logit
  int64_t top_k = 0;      // 0: all tokens
  float top_p = 1;        // 1: all tokens
  float min_p = 0;        // 0: all tokens
  float repetition = 1;   // 1: no penalty
  float presence = 0, frequency = 0;
  std::vector<std::pair<int32_t, float>> bias;  // token, what is added to its logit
  uint64_t seed = 0;
  // The number of the most likely tokens to report beside the chosen one's log probability.
  std::optional<int64_t> logprobs;

  // Returns INVALID_ARGUMENT, naming the field, if one is out of its range.
  absl::Status Check(int64_t vocabulary) const;
};

// Counts the tokens of a sequence. REQUIRES: no token is below 0.
class TokenCounts {
 public:
  struct Count {
    bool prompt = false;    // the prompt has it
    int64_t generated = 0;  // how often it was generated
  };
  TokenCounts() = default;
  explicit TokenCounts(absl::Span<const int32_t> prompt) {
    for (int32_t token : prompt) counts_[token].prompt = true;
  }

  void Add(int32_t generated) { ++counts_[generated].generated; }
  const absl::flat_hash_map<int32_t, Count>& counts() const { return counts_; }

 private:
  absl::flat_hash_map<int32_t, Count> counts_;  // by token
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SAMPLE_SAMPLING_H_
