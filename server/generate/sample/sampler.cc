#include "server/generate/sample/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/philox.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5f;
// e^-kFarthest is near the lowest normal number.
constexpr float kFarthest = 87;
constexpr int64_t kBlock = 64;  // tokens of a maximum
constexpr int kLanes = 8;       // of loops that a compiler makes vectors of
constexpr int64_t kBins = 8192;

// e^x for x <= 0, 0 below -kFarthest: 2^n * e^r, |r| <= ln(2) / 2, by Taylor's series to r^7, whose
// error is below half a bit. The compiler makes vectors of it; libm's it does not.
inline float ExpOf(float x) {
  const float bounded = x > -kFarthest ? x : -kFarthest;
  constexpr float kRound = 12582912;  // 1.5 * 2^23: adding it rounds to a whole number
  const float shifted = bounded * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // ln(2) in two parts, the first with trailing zeros, so that its product with n is exact.
  const float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  float sum = 1.f / 5040;
  sum = sum * r + 1.f / 720;
  sum = sum * r + 1.f / 120;
  sum = sum * r + 1.f / 24;
  sum = sum * r + 1.f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1;
  sum = sum * r + 1;
  const int32_t exponent = (std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound)) << 23;
  const float result = std::bit_cast<float>(std::bit_cast<int32_t>(sum) + exponent);
  return x > -kFarthest ? result : 0;
}

// Returns the sum of value(i) over [first, last), always in the same order.
template <typename Value>
double SumOf(int64_t first, int64_t last, const Value& value) {
  std::array<double, kLanes> sums = {};
  int64_t i = first;
  for (; i + kLanes <= last; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += value(i + lane);
  }
  for (; i < last; ++i) sums[0] += value(i);
  double sum = 0;
  for (double part : sums) sum += part;
  return sum;
}

// A number in [0, 1), of 53 bits.
double Uniform(uint64_t seed, int64_t position) {
  const PhiloxBlock words = Philox(static_cast<uint64_t>(position), seed);
  return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

}  // namespace

absl::StatusOr<Sampled> Sampler::Sample(absl::Span<const float> logits, const Sampling& sampling,
                                        const TokenCounts& counts, int64_t position,
                                        absl::Span<const int32_t> banned) {
  logits = logits.first(vocabulary_);
  ASSIGN_OR_RETURN(const int32_t raw_highest, FindHighest(logits));
  Sampled sampled;
  const absl::Span<const float> adjusted = Adjust(logits, sampling, counts, banned);
  int32_t highest = raw_highest;
  if (adjusted.data() != logits.data()) {
    ASSIGN_OR_RETURN(highest, FindHighest(adjusted));
  }
  if (adjusted[highest] == kNever) {
    return absl::FailedPreconditionError(absl::StrCat("no token can follow at position ", position,
                                                      ": the logits of all are -inf or banned"));
  }
  sampled.token = highest;
  if (sampling.temperature >= kGreedyBelow) {
    const float high = adjusted[highest];
    const bool some = sampling.top_k > 0 && sampling.top_k < vocabulary_;
    const float low = std::max({-FLT_MAX, high - kFarthest * sampling.temperature,
                                some ? ReachedBy(sampling.top_k) : kNever});
    Gather(adjusted, low);
    weights_.clear();
    if (some) KeepUpTo(CutAt(static_cast<double>(sampling.top_k), false, low, high));
    const double all = Weigh(logits_, high, sampling.temperature);
    if (sampling.top_p < 1) KeepUpTo(CutAt(all * sampling.top_p, true, low, high));
    if (sampling.min_p > 0) {
      Filter([&](int64_t i) { return weights_[i] >= sampling.min_p; });
    }
    sampled.token = Draw(sampling.seed, position);
  }
  if (sampling.logprobs.has_value()) {
    if (adjusted.data() != logits.data()) {
      RETURN_IF_ERROR(FindHighest(logits).status());  // for Gather
    }
    AddLogprobs(logits, logits[raw_highest], *sampling.logprobs, &sampled);
  }
  return sampled;
}

absl::Span<const float> Sampler::Adjust(absl::Span<const float> logits, const Sampling& sampling,
                                        const TokenCounts& counts,
                                        absl::Span<const int32_t> banned) {
  const bool penalties =
      sampling.repetition != 1 || sampling.presence != 0 || sampling.frequency != 0;
  if (sampling.bias.empty() && banned.empty() && !penalties) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [token, added] : sampling.bias) adjusted_[token] += added;
  for (int32_t token : banned) {
    if (token >= 0 && token < vocabulary_) adjusted_[token] = kNever;
  }
  if (!penalties) return adjusted_;
  for (const auto& [token, count] : counts.counts()) {
    if (token >= vocabulary_) continue;
    float& logit = adjusted_[token];
    logit = logit > 0 ? logit / sampling.repetition : logit * sampling.repetition;
    logit -= sampling.frequency * static_cast<float>(count.generated);
    if (count.generated > 0) logit -= sampling.presence;
  }
  return adjusted_;
}

absl::StatusOr<int32_t> Sampler::FindHighest(absl::Span<const float> logits) {
  const auto size = static_cast<int64_t>(logits.size());
  maxima_.resize((size + kBlock - 1) / kBlock);
  const float* highest = nullptr;
  for (int64_t first = 0; first < size; first += kBlock) {
    const int64_t last = std::min(first + kBlock, size);
    std::array<float, kLanes> lanes;
    lanes.fill(kNever);
    bool wrong = false;
    int64_t i = first;
    for (; i + kLanes <= last; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const float logit = logits[i + lane];
        wrong |= !(logit <= FLT_MAX);  // NaN too
        lanes[lane] = logit > lanes[lane] ? logit : lanes[lane];
      }
    }
    for (; i < last; ++i) {
      wrong |= !(logits[i] <= FLT_MAX);
      lanes[0] = std::max(lanes[0], logits[i]);
    }
    if (wrong) {
      while (logits[--i] <= FLT_MAX) continue;
      return absl::DataLossError(absl::StrCat("the model's logit of token ", i, " is ", logits[i],
                                              "; it has to be a finite number or -inf"));
    }
    float& maximum = maxima_[first / kBlock];
    maximum = *std::max_element(lanes.begin(), lanes.end());
    if (highest == nullptr || maximum > *highest) highest = &maximum;
  }
  const int64_t block = highest - maxima_.data();
  const float* first = logits.data() + block * kBlock;
  return static_cast<int32_t>(std::find(first, logits.data() + size, *highest) - logits.data());
}

float Sampler::ReachedBy(int64_t count) const {
  // So many blocks have a token that reaches the lowest of their maxima.
  if (count > static_cast<int64_t>(maxima_.size())) return kNever;
  std::vector<float> maxima = maxima_;
  std::nth_element(maxima.begin(), maxima.begin() + count - 1, maxima.end(), std::greater<>());
  return maxima[count - 1];
}

void Sampler::Gather(absl::Span<const float> logits, float low) {
  // Room for all: a token is stored first, and counted if it is wanted.
  tokens_.resize(vocabulary_ + 1);
  logits_.resize(vocabulary_ + 1);
  int64_t count = 0;
  for (int64_t block = 0; block < static_cast<int64_t>(maxima_.size()); ++block) {
    if (maxima_[block] < low) continue;
    const int64_t last = std::min((block + 1) * kBlock, vocabulary_);
    for (int64_t token = block * kBlock; token < last; ++token) {
      tokens_[count] = static_cast<int32_t>(token);
      logits_[count] = logits[token];
      count += logits[token] >= low ? 1 : 0;
    }
  }
  tokens_.resize(count);
  logits_.resize(count);
}

Sampler::Cut Sampler::CutAt(double target, bool by_weight, double low, double high) {
  const auto count = static_cast<int64_t>(logits_.size());
  const auto amount = [&](int64_t i) { return by_weight ? weights_[i] : 1.0; };
  const double scale = low < high ? (kBins - 1) / (high - low) : 0;
  const auto bin = [&](int64_t i) { return static_cast<int64_t>((high - logits_[i]) * scale); };
  bins_.assign(kBins, 0);
  for (int64_t i = 0; i < count; ++i) bins_[bin(i)] += amount(i);
  // The bin in which the target is reached; the last one that has any, if rounding misses it.
  int64_t at = 0;
  double before = 0;
  double sum = 0;
  for (int64_t b = 0; b < kBins && sum < target; ++b) {
    if (bins_[b] == 0) continue;
    at = b;
    before = sum;
    sum += bins_[b];
  }
  order_.clear();
  for (int64_t i = 0; i < count; ++i) {
    if (bin(i) == at) order_.push_back(static_cast<int32_t>(i));
  }
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  });
  // The bin's amounts are added in another order now: if they miss the target, all are kept.
  int32_t last = order_.back();
  for (int32_t i : order_) {
    before += amount(i);
    if (before < target) continue;
    last = i;
    break;
  }
  return {logits_[last], tokens_[last]};
}

template <typename Keep>
void Sampler::Filter(const Keep& keep) {
  int64_t count = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(tokens_.size()); ++i) {
    const bool kept = keep(i);
    tokens_[count] = tokens_[i];
    logits_[count] = logits_[i];
    if (!weights_.empty()) weights_[count] = weights_[i];
    count += kept ? 1 : 0;
  }
  tokens_.resize(count);
  logits_.resize(count);
  if (!weights_.empty()) weights_.resize(count);
}

void Sampler::KeepUpTo(const Cut& cut) {
  Filter([&](int64_t i) {
    return logits_[i] > cut.logit || (logits_[i] == cut.logit && tokens_[i] <= cut.token);
  });
}

double Sampler::Weigh(absl::Span<const float> logits, float highest, float temperature) {
  const float scale = 1 / temperature;
  weights_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) weights_[i] = ExpOf((logits[i] - highest) * scale);
  return SumOf(0, static_cast<int64_t>(logits.size()),
               [&](int64_t i) { return double{weights_[i]}; });
}

int32_t Sampler::Draw(uint64_t seed, int64_t position) const {
  const auto count = static_cast<int64_t>(weights_.size());
  const auto weight = [&](int64_t i) { return double{weights_[i]}; };
  const auto sum_of_block = [&](int64_t first) {
    return SumOf(first, std::min(first + kBlock, count), weight);
  };
  double all = 0;
  for (int64_t first = 0; first < count; first += kBlock) all += sum_of_block(first);
  const double target = Uniform(seed, position) * all;
  double sum = 0;
  int64_t first = 0;
  int64_t chosen = 0;
  for (; first < count; first += kBlock) {
    const double block = sum_of_block(first);
    if (sum + block > target) break;
    sum += block;
  }
  // A block's sum may be rounded otherwise than that of its tokens one by one: then its last token
  // that can be drawn is.
  for (int64_t i = std::min(first, (count - 1) / kBlock * kBlock); i < count; ++i) {
    if (weights_[i] == 0) continue;
    chosen = i;
    sum += weights_[i];
    if (sum > target) break;
  }
  return tokens_[chosen];
}

void Sampler::AddLogprobs(absl::Span<const float> logits, float highest, int64_t likeliest,
                          Sampled* sampled) {
  const double log_sum = highest + std::log(Weigh(logits, highest, 1));
  const auto logprob = [&](float logit) { return static_cast<float>(logit - log_sum); };
  sampled->logprob = logprob(logits[sampled->token]);
  if (likeliest == 0) return;
  Gather(logits, std::max(-FLT_MAX, ReachedBy(likeliest)));
  const auto count = std::min(likeliest, static_cast<int64_t>(tokens_.size()));
  order_.resize(tokens_.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int32_t>(i);
  std::partial_sort(order_.begin(), order_.begin() + count, order_.end(),
                    [&](int32_t a, int32_t b) {
                      return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
                    });
  for (int64_t i = 0; i < count; ++i) {
    sampled->likeliest.push_back({tokens_[order_[i]], logprob(logits_[order_[i]])});
  }
}

}  // namespace athanor
