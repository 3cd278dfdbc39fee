#include "server/generate/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/value/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Samples with new scratch memory.
absl::StatusOr<Sampled> SampleOf(const std::vector<float>& logits, const Sampling& sampling,
                                 int64_t position = 0, const TokenCounts& counts = TokenCounts(),
                                 const std::vector<int32_t>& banned = {}) {
  return Sampler(static_cast<int64_t>(logits.size()))
      .Sample(logits, sampling, counts, position, banned);
}
int32_t TokenOf(const std::vector<float>& logits, const Sampling& sampling, int64_t position = 0,
                const TokenCounts& counts = TokenCounts(),
                const std::vector<int32_t>& banned = {}) {
  return SampleOf(logits, sampling, position, counts, banned).value().token;
}
std::vector<float> RandomLogits(int64_t size, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// The tokens by descending logit, then ascending.
template <typename Logits>
std::vector<int32_t> OrderOf(const Logits& logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  return order;
}

// The probability of each token, by sorting all of them. `*near` is set if rounding may
// decide what is kept.
std::vector<double> Probabilities(const std::vector<float>& logits, const Sampling& sampling,
                                  const TokenCounts& counts, const std::vector<int32_t>& banned,
                                  bool* near) {
  std::vector<float> adjusted = logits;  // f32, which decides what is equal
  for (const auto& [token, added] : sampling.bias) adjusted[token] += added;
  for (int32_t token : banned) adjusted[token] = -kInf;
  for (const auto& [token, count] : counts.counts()) {
    float& logit = adjusted[token];
    logit = logit > 0 ? logit / sampling.repetition : logit * sampling.repetition;
    logit -= sampling.frequency * static_cast<float>(count.generated);
    logit -= count.generated > 0 ? sampling.presence : 0;
  }
  const std::vector<int32_t> order = OrderOf(adjusted);
  std::vector<double> weights(logits.size(), 0);
  double all = 0;
  const size_t most = sampling.top_k > 0 ? sampling.top_k : logits.size();
  for (size_t i = 0; i < std::min(most, order.size()); ++i) {
    weights[order[i]] =
        std::exp((double{adjusted[order[i]]} - adjusted[order[0]]) / sampling.temperature);
    all += weights[order[i]];
  }
  double sum = 0, kept = 0;
  for (int32_t token : order) {
    const double reached = sum / all;
    if (std::abs(reached - sampling.top_p) < 1e-5 && sampling.top_p < 1) *near = true;
    sum += weights[token];
    if (reached >= sampling.top_p && sampling.top_p < 1) weights[token] = 0;
    if (std::abs(weights[token] - sampling.min_p) < 1e-5 && sampling.min_p > 0) *near = true;
    if (weights[token] < sampling.min_p) weights[token] = 0;
    kept += weights[token];
  }
  for (double& weight : weights) weight /= kept;
  return weights;
}

TEST(SamplerTest, GreedyTakesTheLowestOfTheHighest) {
  const Sampling greedy{.temperature = 0};
  for (const int64_t size : {1, 2, 7, 8, 63, 64, 65, 127, 1000}) {
    std::vector<float> logits(size, -1);
    EXPECT_EQ(TokenOf(logits, greedy), 0) << size;
    for (int64_t token = size - 1; token >= 0; --token) {
      logits[token] = 3;
      ASSERT_EQ(TokenOf(logits, greedy), token) << size;
    }
  }
  EXPECT_EQ(TokenOf({-kInf, -kInf, -100}, greedy), 2);
}

TEST(SamplerTest, LogitsThatAreNoNumbersAreNamed) {
  for (const float bad : {kNan, kInf}) {
    for (const int64_t token : {0, 5, 63, 64, 99}) {
      std::vector<float> logits(100, 1);
      logits[token] = bad;
      const absl::Status status = SampleOf(logits, {}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(status.message(), HasSubstr("logit of token " + std::to_string(token) + " is"));
    }
  }
}

TEST(SamplerTest, LogitsBeyondTheVocabularyAreIgnored) {
  Sampler sampler(2);
  const std::vector<float> logits = {1, 2, 100, kNan};
  Sampling sampling{.temperature = 0, .logprobs = 5};
  const Sampled sampled = sampler.Sample(logits, sampling, {}, 0, {}).value();
  EXPECT_EQ(sampled.token, 1);
  EXPECT_EQ(sampled.likeliest.size(), 2u);
  sampling.temperature = 1;
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_LT(sampler.Sample(logits, sampling, {}, i, {}).value().token, 2);
  }
}

TEST(SamplerTest, BannedTokensNeverCome) {
  const std::vector<float> logits = {5, 4, 3};
  EXPECT_EQ(TokenOf(logits, {.temperature = 0}, 0, {}, {0, 2, -1, 99}), 1);
  EXPECT_THAT(SampleOf(logits, {}, 7, TokenCounts(), {0, 1, 2}).status().message(),
              HasSubstr("no token can follow at position 7"));
  EXPECT_FALSE(SampleOf({-kInf, -kInf}, {}).ok());
}

TEST(SamplerTest, BiasAndPenaltiesMoveTheHighest) {
  const std::vector<float> logits = {2, 1.5, -1};
  Sampling sampling{.temperature = 0, .bias = {{2, 4.f}}};
  EXPECT_EQ(TokenOf(logits, sampling), 2);
  TokenCounts counts(std::vector<int32_t>{0, 2});
  sampling = {.temperature = 0, .repetition = 1.4};
  EXPECT_EQ(TokenOf(logits, sampling, 0, counts), 1) << "2 / 1.4 < 1.5";
  sampling.repetition = 1.3;
  EXPECT_EQ(TokenOf(logits, sampling, 0, counts), 0) << "2 / 1.3 > 1.5";
  EXPECT_EQ(TokenOf({-5, -4}, {.temperature = 0, .repetition = 0.5}, 0, counts), 0)
      << "below 0 it multiplies";
  sampling = {.temperature = 0, .presence = 0.6};
  EXPECT_EQ(TokenOf(logits, sampling, 0, counts), 0) << "the prompt does not count";
  counts.Add(0);
  EXPECT_EQ(TokenOf(logits, sampling, 0, counts), 1);
  sampling = {.temperature = 0, .frequency = 0.3};
  EXPECT_EQ(TokenOf(logits, sampling, 0, counts), 0) << "2 - 0.3 > 1.5";
  counts.Add(0);
  EXPECT_EQ(TokenOf(logits, sampling, 0, counts), 1) << "2 - 0.6 < 1.5";
}

// The draw is by a known number over tokens in order, so each token can be foretold.
TEST(SamplerTest, IsASortOfAllTokensOverRandomSettings) {
  std::mt19937 random(5);
  const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % end); };
  int near_ones = 0;
  for (int i = 0; i < 20'000; ++i) {
    SCOPED_TRACE(i);
    const int64_t size = 1 + below(below(20) == 0 ? 3000 : 100);
    std::vector<float> logits = RandomLogits(size, 0.1f + below(5), i);
    if (below(2) == 0) {  // equal ones
      for (float& logit : logits) logit = std::round(logit);
    }
    for (int64_t j = below(3); j > 0; --j) logits[below(size)] = -kInf;
    logits[below(size)] = 1;
    Sampling sampling{.temperature = 0.2f + static_cast<float>(below(20)) / 8,
                      .top_k = below(2) * below(size + 2),
                      .top_p = below(2) == 0 ? 1 : 0.01f + static_cast<float>(below(99)) / 100,
                      .min_p = below(2) == 0 ? 0 : static_cast<float>(below(99)) / 300,
                      .seed = random() * uint64_t{0x100000001}};
    TokenCounts counts;
    if (below(2) == 0) {
      counts = TokenCounts(std::vector<int32_t>{static_cast<int32_t>(below(size))});
      for (int64_t j = below(9); j > 0; --j) counts.Add(static_cast<int32_t>(below(size)));
      sampling.repetition = 1.2f;
      sampling.presence = 0.7f;
      sampling.frequency = -0.3f;
      sampling.bias = {{static_cast<int32_t>(below(size)), 1.3f}};
    }
    std::vector<int32_t> banned;
    if (size > 5 && below(2) == 0) banned = {static_cast<int32_t>(below(size))};
    bool near = false;
    const std::vector<double> probabilities =
        Probabilities(logits, sampling, counts, banned, &near);
    const absl::StatusOr<Sampled> sampled = SampleOf(logits, sampling, i, counts, banned);
    if (std::isnan(probabilities[0])) {
      EXPECT_FALSE(sampled.ok());
      continue;
    }
    const PhiloxBlock words = Philox(i, sampling.seed);
    const double u = std::ldexp(words[0], -32) + std::ldexp(words[1] >> 11, -53);
    double sum = 0;
    int32_t expected = 0;
    for (int32_t token = 0; token < size; ++token) {
      if (probabilities[token] == 0) continue;
      expected = token;
      sum += probabilities[token];
      if (std::abs(sum - u) < 1e-5) near = true;
      if (sum > u) break;
    }
    near_ones += near ? 1 : 0;
    if (!near) {
      ASSERT_EQ(sampled.value().token, expected);
    }
  }
  EXPECT_LT(near_ones, 1000);
}

struct Golden {
  int64_t size;
  uint32_t stream;
  float temperature;
  int64_t top_k;
  float top_p, min_p, repetition, presence, frequency;
  uint64_t seed;
  int64_t position;
  int32_t token;
};
constexpr Golden kGoldens[] = {
#include "server/generate/sample/sampler_golden.inc"
};

// The logits and counts of sampler_golden.py.
TEST(SamplerTest, ChoosesWhatNumpyChooses) {
  for (const Golden& golden : kGoldens) {
    std::vector<float> logits(golden.size);
    std::vector<int32_t> prompt;
    for (uint32_t token = 0; token < golden.size; ++token) {
      uint32_t x = token * 2654435761u + golden.stream * 97;
      x ^= x >> 15;
      x *= 2246822519u;
      x ^= x >> 13;
      const auto value = static_cast<float>(x >> 20);
      logits[token] = value * value / (1 << 20);
      if (token % 3 == 0) prompt.push_back(static_cast<int32_t>(token));
    }
    TokenCounts counts(prompt);
    for (int32_t token = 1; token < golden.size; token += 5) {
      counts.Add(token);
      counts.Add(token);
    }
    const Sampling sampling{.temperature = golden.temperature,
                            .top_k = golden.top_k,
                            .top_p = golden.top_p,
                            .min_p = golden.min_p,
                            .repetition = golden.repetition,
                            .presence = golden.presence,
                            .frequency = golden.frequency,
                            .seed = golden.seed};
    EXPECT_EQ(TokenOf(logits, sampling, golden.position, counts), golden.token)
        << (&golden - kGoldens);
  }
}

// Pearson's chi-square of 20,000 draws; fixed seeds, so it cannot fail by chance.
TEST(SamplerTest, DrawsByTheProbabilities) {
  const std::vector<float> logits = RandomLogits(40, 1.5, 3);
  for (const Sampling& sampling :
       {Sampling{.seed = 1}, Sampling{.temperature = 0.7, .seed = 2}, Sampling{.top_k = 9},
        Sampling{.temperature = 2, .top_p = 0.8, .seed = 3}, Sampling{.min_p = 0.1, .seed = 4}}) {
    bool near = false;
    const std::vector<double> probabilities = Probabilities(logits, sampling, {}, {}, &near);
    Sampler sampler(40);
    std::vector<int64_t> drawn(40);
    constexpr int64_t kDraws = 20'000;
    for (int64_t i = 0; i < kDraws; ++i) {
      ++drawn[sampler.Sample(logits, sampling, {}, i, {}).value().token];
    }
    double statistic = 0;
    int64_t freedom = -1;
    for (size_t token = 0; token < logits.size(); ++token) {
      const double expected = probabilities[token] * kDraws;
      if (expected == 0) {
        EXPECT_EQ(drawn[token], 0);
        continue;
      }
      ++freedom;
      statistic += (drawn[token] - expected) * (drawn[token] - expected) / expected;
    }
    // Above the mean by four deviations at most.
    EXPECT_LT(statistic, freedom + 4 * std::sqrt(2.0 * freedom)) << freedom;
  }
}

TEST(SamplerTest, ATokenDependsOnSeedAndPositionAlone) {
  Sampler sampler(1000);
  const std::vector<float> one = RandomLogits(1000, 2, 1);
  const std::vector<float> other = RandomLogits(1000, 3, 2);
  sampler.Sample(other, {.temperature = 1e-4}, {}, 0, {}).value();  // few candidates at first
  std::map<int32_t, int> tokens;
  for (int64_t i = 0; i < 100; ++i) {
    const Sampling sampling{.top_k = i % 3 == 0 ? 500 : 0, .top_p = 0.95, .seed = 7};
    const int32_t alone = TokenOf(one, sampling, i);
    // In a sampler that others use by turns.
    sampler.Sample(other, {.temperature = 0.5, .min_p = 0.1, .logprobs = 3}, {}, i, {}).value();
    EXPECT_EQ(sampler.Sample(one, sampling, {}, i, {}).value().token, alone);
    ++tokens[alone];
  }
  EXPECT_GT(tokens.size(), 30u) << "positions differ";
  int equal = 0;
  for (int64_t i = 0; i < 100; ++i) {
    equal += TokenOf(one, {.seed = 1}, i) == TokenOf(one, {.seed = uint64_t{1} << 32}, i) ? 1 : 0;
  }
  EXPECT_LT(equal, 20) << "seeds differ, in their high words too";
}

TEST(SamplerTest, SettingsThatKeepOneTokenAreGreedyAndThoseThatKeepAllAreNone) {
  for (int64_t i = 0; i < 200; ++i) {
    std::vector<float> logits = RandomLogits(300, 2, i);
    for (float& logit : logits) logit = std::round(logit * 2) / 2;
    const int32_t greedy = TokenOf(logits, {.temperature = 0});
    EXPECT_EQ(TokenOf(logits, {.temperature = 9, .top_k = 1}, i), greedy);
    EXPECT_EQ(TokenOf(logits, {.top_p = 1e-9}, i), greedy);
    EXPECT_EQ(TokenOf(logits, {.top_k = 299, .top_p = 1e-9}, i), greedy);
    EXPECT_EQ(logits[TokenOf(logits, {.min_p = 1}, i)], logits[greedy]);
    EXPECT_EQ(logits[TokenOf(logits, {.temperature = 1e-4}, i)], logits[greedy]);
    const int32_t all = TokenOf(logits, {}, i);
    EXPECT_EQ(TokenOf(logits, {.top_k = 300}, i), all);
    EXPECT_EQ(TokenOf(logits, {.top_k = 5000}, i), all);
    EXPECT_EQ(TokenOf(logits, {.min_p = 1e-30}, i), all);
  }
}

TEST(SamplerTest, EqualLogitsAreKeptByTheLowestTokens) {
  const std::vector<float> logits(1000, 2.5);
  for (const Sampling& sampling : {Sampling{.top_k = 10}, Sampling{.top_p = 0.01}}) {
    std::map<int32_t, int> drawn;
    for (int64_t i = 0; i < 2000; ++i) ++drawn[TokenOf(logits, sampling, i)];
    EXPECT_EQ(drawn.size(), 10u);
    EXPECT_EQ(drawn.rbegin()->first, 9);
  }
}

TEST(SamplerTest, FarLogitsAndSettingsDoNotOverflow) {
  const std::vector<float> far = {-3e38f, 3e38f, -kInf, 0};
  for (const float temperature : {0.f, 1e-5f, 1.f, 1000.f}) {
    for (const int64_t top_k : {0, 2, 3}) {
      const Sampling sampling{
          .temperature = temperature, .top_k = top_k, .top_p = 0.9, .min_p = 0.1, .logprobs = 20};
      const Sampled sampled = SampleOf(far, sampling).value();
      EXPECT_EQ(sampled.token, 1);
      EXPECT_EQ(sampled.logprob, 0);
    }
  }
}

TEST(SamplerTest, LogProbabilitiesAreOfTheLogitsAsTheyCame) {
  for (const int64_t size : {1, 3, 100, 5000}) {
    std::vector<float> logits = RandomLogits(size, 3, size);
    for (float& logit : logits) logit = std::round(logit * 8) / 8;
    double sum = 0;
    for (float logit : logits) sum += std::exp(double{logit});
    const Sampling sampling{.temperature = 0.3, .top_k = 7, .bias = {{0, 5.f}}, .logprobs = 20};
    const Sampled sampled = SampleOf(logits, sampling).value();
    EXPECT_NEAR(sampled.logprob, logits[sampled.token] - std::log(sum), 2e-6);
    ASSERT_EQ(sampled.likeliest.size(), std::min<size_t>(size, 20));
    const std::vector<int32_t> order = OrderOf(logits);
    for (size_t i = 0; i < sampled.likeliest.size(); ++i) {
      EXPECT_EQ(sampled.likeliest[i].token, order[i]);
      EXPECT_NEAR(sampled.likeliest[i].logprob, logits[order[i]] - std::log(sum), 2e-6);
    }
  }
  EXPECT_THAT(SampleOf({1, 2}, {}).value().likeliest, ElementsAre());
  std::vector<float> two_blocks(100, 0);
  two_blocks[3] = 1;
  two_blocks[70] = 3;
  const Sampled banned =
      SampleOf(two_blocks, {.temperature = 0, .logprobs = 1}, 0, TokenCounts(), {70}).value();
  EXPECT_EQ(banned.token, 3);
  EXPECT_EQ(banned.likeliest[0].token, 70);
  EXPECT_THAT(SampleOf({1, -kInf}, {.logprobs = 2}).value().likeliest,
              ElementsAre(TokenLogprob{0, 0}));
}

TEST(SamplingTest, FieldsOutOfRangeAreNamed) {
  const auto check = [](const Sampling& sampling) {
    return std::string(sampling.Check(10).message());
  };
  EXPECT_EQ(check({}), "");
  EXPECT_THAT(check({.temperature = kNan}), HasSubstr("temperature is nan; it has to be from 0"));
  EXPECT_THAT(check({.temperature = -1}), HasSubstr("temperature is -1"));
  EXPECT_THAT(check({.temperature = kInf}), HasSubstr("temperature is inf"));
  EXPECT_THAT(check({.top_k = -1}), HasSubstr("top_k is -1"));
  EXPECT_THAT(check({.top_p = 0}), HasSubstr("top_p is 0, which leaves no token"));
  EXPECT_THAT(check({.top_p = 1.5}), HasSubstr("top_p is 1.5"));
  EXPECT_THAT(check({.min_p = 2}), HasSubstr("min_p is 2"));
  EXPECT_THAT(check({.repetition = 0}), HasSubstr("repetition_penalty is 0"));
  EXPECT_THAT(check({.presence = 3}), HasSubstr("presence_penalty is 3"));
  EXPECT_THAT(check({.frequency = -3}), HasSubstr("frequency_penalty is -3"));
  EXPECT_THAT(check({.logprobs = 21}), HasSubstr("logprobs is 21"));
  EXPECT_THAT(check({.logprobs = -1}), HasSubstr("logprobs is -1"));
  EXPECT_THAT(check({.bias = {{10, 1.f}}}), HasSubstr("token 10; the model's are 0 to 9"));
  EXPECT_THAT(check({.bias = {{-1, 1.f}}}), HasSubstr("token -1"));
  EXPECT_THAT(check({.bias = {{3, 1.f}, {3, 2.f}}}), HasSubstr("token 3 twice"));
  EXPECT_THAT(check({.bias = {{3, kNan}}}), HasSubstr("bias of token 3 is nan"));
  EXPECT_THAT(check({.bias = std::vector<std::pair<int32_t, float>>(1025)}),
              HasSubstr("bias has 1025 tokens; it may have 1024"));
}

}  // namespace
}  // namespace athanor
