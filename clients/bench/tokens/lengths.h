// Distributions of the lengths of prompts and outputs, in tokens.
//
//   absl::StatusOr<Lengths> input = Lengths::Parse("--input_tokens", "lognormal:161:1", kInputKey);
//   int64_t tokens = input->Draw(&random, number);
//
//   128                    always so many
//   uniform:32:512         each length from 32 to 512 alike
//   lognormal:MEAN:SIGMA   mean of the lengths, standard deviation of their logarithms
//   chat                   lognormal with ShareGPT's means, 161 of prompts and 338 of outputs,
//   sigma 1 file:PATH              in order, from a file of JSON lines: {"input_tokens": 9,
//   "output_tokens": 80}
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_LENGTHS_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_LENGTHS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor::bench {

inline constexpr char kInputKey[] = "input_tokens", kOutputKey[] = "output_tokens";
inline constexpr int64_t kMostTokens = 1'000'000;  // longest prompt or output

// Returns which of `size` rows call `number` uses: 0 the first, -1 the last, each again after
// `size` calls. REQUIRES: size is above 0.
inline size_t InRotation(int64_t number, size_t size) {
  const auto rows = static_cast<int64_t>(size);
  return static_cast<size_t>((number % rows + rows) % rows);
}

// Copyable; thread-safe once made.
class Lengths {
 public:
  explicit Lengths(int64_t fixed) : low_(fixed), high_(fixed) {}
  // `key` is kInputKey or kOutputKey: a file's key, and the side of `chat`. INVALID_ARGUMENT names
  // the flag, what is wrong, and what would be right.
  static absl::StatusOr<Lengths> Parse(absl::string_view flag, const std::string& text,
                                       absl::string_view key);

  // Returns the length of call `number`, 1 to kMostTokens.
  int64_t Draw(std::mt19937_64* random, int64_t number) const;
  // Returns the only length; 0 if there are several.
  int64_t fixed() const { return listed_.empty() && sigma_ < 0 && low_ == high_ ? low_ : 0; }

 private:
  int64_t low_ = 0, high_ = 0;    // uniform, both included
  double mean_ = 0, sigma_ = -1;  // lognormal if sigma is not negative
  std::vector<int64_t> listed_;   // used in rotation
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_LENGTHS_H_
