// Chooses a token by its logits.
//
//   Sampler sampler(vocabulary);
//   RETURN_IF_ERROR(sampling.Check(vocabulary));       // once
//   TokenCounts counts(prompt);
//   ASSIGN_OR_RETURN(Sampled next, sampler.Sample(row, sampling, counts, position, stop_tokens));
//   counts.Add(next.token);
//
// In this order, which is that of Hugging Face's transformers (`_get_logits_processor` of
// generation/utils.py) and, up to top-p, of vLLM (v1/sample/sampler.py):
//   1. bias is added; `banned` tokens are left out
//   2. repetition, of tokens in the prompt or generated: a logit above 0 is divided by it, others
//      are multiplied (Keskar et al., CTRL, 2019); frequency, times how often the token was
//      generated, and presence, if it was, are subtracted (OpenAI's definition)
//   3. temperature divides the logits
//   4. top-k keeps so many tokens
//   5. top-p keeps the fewest of those whose share of the probability is at least p (Holtzman et
//      al., 2020)
//   6. min-p keeps tokens with at least that share of the likeliest one's probability (Nguyen et
//      al., 2024)
//   7. one is drawn by a random number of (seed, position): equal in any batch
// Equal logits are ordered by token, the lowest first, so each count is exact. Tokens less likely
// than the first by e^87 are never drawn. Log probabilities are of the logits as they came, as in
// vLLM and OpenAI's interface, and are not changed by any of the above.
#ifndef ATHANOR_SERVER_GENERATE_SAMPLE_SAMPLER_H_
#define ATHANOR_SERVER_GENERATE_SAMPLE_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/generate/sample/sampling.h"

namespace athanor {

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm
  bool operator==(const TokenLogprob&) const = default;
};

struct Sampled {
  int32_t token = 0;
  // If `Sampling::logprobs` asks for them: the chosen token's, and the likeliest ones by descending
  // probability.
  float logprob = 0;
  std::vector<TokenLogprob> likeliest;
};

// Holds scratch memory of some bytes for each token. Not thread-safe; serves any sequences in turn.
class Sampler {
 public:
  // REQUIRES: vocabulary >= 1
  explicit Sampler(int64_t vocabulary) : vocabulary_(vocabulary) {}

  // Chooses the token at `position` of its sequence. Logits beyond the vocabulary are ignored, -inf
  // means never. Returns DATA_LOSS, naming the token, if a logit is NaN or +inf, and
  // FAILED_PRECONDITION if no token is left. REQUIRES: Sampling::Check was OK, and there are at
  // least `vocabulary` logits.
  absl::StatusOr<Sampled> Sample(absl::Span<const float> logits, const Sampling& sampling,
                                 const TokenCounts& counts, int64_t position,
                                 absl::Span<const int32_t> banned);

 private:
  // A place in the order by descending logit, then by token; those up to it, itself included, are
  // kept.
  struct Cut {
    float logit;
    int32_t token;
  };
  // Applies bias, bans and penalties to a copy of the logits, if there are any.
  absl::Span<const float> Adjust(absl::Span<const float> logits, const Sampling& sampling,
                                 const TokenCounts& counts, absl::Span<const int32_t> banned);
  // Sets `maxima_`. Returns the highest logit's token, the lowest of equal ones, or the error of a
  // logit that is no number.
  absl::StatusOr<int32_t> FindHighest(absl::Span<const float> logits);
  // Returns a logit that at least `count` tokens reach; -inf if it would take long to find one.
  float ReachedBy(int64_t count) const;
  // Sets the candidates to the tokens with logits of at least `low`, by ascending token.
  // REQUIRES: FindHighest was called with these logits, and `low` is finite.
  void Gather(absl::Span<const float> logits, float low);
  // Returns the last of the fewest candidates whose amounts reach `target`. An amount is 1, or the
  // candidate's weight. REQUIRES: the logits of all are from `low` to `high`.
  Cut CutAt(double target, bool by_weight, double low, double high);
  // Removes the candidates that `keep`, given an index, does not keep. They may have no weights
  // yet.
  template <typename Keep>
  void Filter(const Keep& keep);
  // Sets the weights of such logits, 1 that of the highest; returns their sum.
  double Weigh(absl::Span<const float> logits, float highest, float temperature);
  void KeepUpTo(const Cut& cut);
  int32_t Draw(uint64_t seed, int64_t position) const;
  void AddLogprobs(absl::Span<const float> logits, float highest, int64_t likeliest,
                   Sampled* sampled);

  const int64_t vocabulary_;
  std::vector<float> adjusted_;
  std::vector<float> maxima_;  // the highest logit of each block of tokens
  // The candidates: tokens, their logits, and their probabilities divided by the highest one.
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;
  std::vector<float> weights_;
  std::vector<double> bins_;
  std::vector<int32_t> order_;  // of indices of candidates
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SAMPLE_SAMPLER_H_
