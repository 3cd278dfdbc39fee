#include "server/plans/bucket_choice.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;

BucketCandidate Candidate(int bucket, double gain, std::vector<PlanMemory::Weight> weights) {
  return {.bucket = bucket, .gain = gain, .weights = std::move(weights)};
}

double GainOf(const BucketChoiceInput& input, const std::vector<int>& chosen) {
  double gain = 0;
  for (const int c : chosen) gain += c < 0 ? 0 : input.candidates[c].gain;
  return gain;
}

// Independent of the code under test: each key once.
int64_t CountBytes(const BucketChoiceInput& input, const std::vector<int>& chosen) {
  int64_t bytes = 0;
  std::set<std::string> seen;
  for (const int c : chosen) {
    if (c < 0) continue;
    bytes += input.candidates[c].bytes;
    for (const auto& weight : input.candidates[c].weights) {
      if (weight.key.empty() || seen.insert(weight.key).second) bytes += weight.bytes;
    }
  }
  return bytes;
}

// The best of all choices: greatest gain, then fewest bytes.
std::vector<int> BruteForce(const BucketChoiceInput& input) {
  std::vector<int> chosen(input.buckets, -1), best = chosen;
  const auto count = static_cast<int>(input.candidates.size());
  for (;;) {
    bool valid = CountBytes(input, chosen) <= input.bytes_free;
    for (int b = 0; b < input.buckets; ++b) {
      valid &= chosen[b] < 0 || input.candidates[chosen[b]].bucket == b;
    }
    const double gain = GainOf(input, chosen), best_gain = GainOf(input, best);
    if (valid && (gain > best_gain ||
                  (gain == best_gain && CountBytes(input, chosen) < CountBytes(input, best)))) {
      best = chosen;
    }
    int b = 0;
    while (b < input.buckets && ++chosen[b] == count) chosen[b++] = -1;
    if (b == input.buckets) return best;
  }
}

TEST(BucketChoiceTest, AllWhereAllFit) {
  BucketChoiceInput input{.buckets = 3, .bytes_free = 100};
  input.candidates = {Candidate(0, 1, {{"a", 60}}), Candidate(2, 1, {{"a", 60}, {"b", 40}})};
  EXPECT_THAT(ChoosePlans(input), ElementsAre(0, -1, 1));
  EXPECT_EQ(BytesOf(input, {0, -1, 1}), 100);
}

TEST(BucketChoiceTest, SharedWeightsGoTogether) {
  // Alone "c" is worth most, but the other two share what they hold.
  BucketChoiceInput input{.buckets = 3, .bytes_free = 100};
  input.candidates = {Candidate(0, 2, {{"a", 100}}), Candidate(1, 2, {{"a", 100}}),
                      Candidate(2, 3, {{"c", 100}})};
  EXPECT_THAT(ChoosePlans(input), ElementsAre(0, 1, -1));
}

TEST(BucketChoiceTest, ASlowerPlanThatSharesIsTakenWhereTheFasterDoesNotFit) {
  BucketChoiceInput input{.buckets = 2, .bytes_free = 120};
  input.candidates = {Candidate(0, 3, {{"a", 100}}), Candidate(1, 3, {{"b", 100}}),
                      Candidate(1, 2, {{"a", 100}, {"d", 20}})};
  EXPECT_THAT(ChoosePlans(input), ElementsAre(0, 2));
}

TEST(BucketChoiceTest, NoneWithoutMemory) {
  BucketChoiceInput input{.buckets = 1, .bytes_free = 10};
  input.candidates = {Candidate(0, 1, {{"", 8}})};
  input.candidates[0].bytes = 3;
  EXPECT_THAT(ChoosePlans(input), ElementsAre(-1));
  input.bytes_free = 11;
  EXPECT_THAT(ChoosePlans(input), ElementsAre(0));
  input.bytes_free = -1;
  EXPECT_THAT(ChoosePlans(input), ElementsAre(-1));
}

BucketChoiceInput RandomInput(std::mt19937& random, int buckets, int candidates) {
  BucketChoiceInput input{.buckets = buckets};
  for (int i = 0; i < candidates; ++i) {
    BucketCandidate candidate{.bucket = static_cast<int>(random() % buckets)};
    candidate.gain = 1 + static_cast<double>(random() % 4);
    candidate.bytes = random() % 3;
    for (int w = static_cast<int>(random() % 4); w > 0; --w) {
      const int key = static_cast<int>(random() % 5);
      // All weights of one key have the same bytes; key 0 is shared with nobody.
      candidate.weights.push_back({key == 0 ? "" : absl::StrCat(key), 1 + 3 * key});
    }
    input.candidates.push_back(std::move(candidate));
  }
  input.bytes_free = static_cast<int64_t>(random() % 40);
  return input;
}

TEST(BucketChoiceTest, AsGoodAsAllChoicesTried) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int buckets = 1 + static_cast<int>(random() % 4);
    const BucketChoiceInput input = RandomInput(random, buckets, static_cast<int>(random() % 7));
    const std::vector<int> best = BruteForce(input), chosen = ChoosePlans(input);
    EXPECT_EQ(GainOf(input, chosen), GainOf(input, best)) << round;
    EXPECT_EQ(CountBytes(input, chosen), CountBytes(input, best)) << round;
    EXPECT_EQ(BytesOf(input, chosen), CountBytes(input, chosen)) << round;
    for (int b = 0; b < buckets; ++b) {
      if (chosen[b] >= 0) EXPECT_EQ(input.candidates[chosen[b]].bucket, b) << round;
    }
  }
}

// Too many to try all: within the limit, no bucket left out that still fits, and better than the
// best single plan.
TEST(BucketChoiceTest, ManyBuckets) {
  std::mt19937 random(8);
  for (int round = 0; round < 20; ++round) {
    const BucketChoiceInput input = RandomInput(random, 32, 64);
    const std::vector<int> chosen = ChoosePlans(input);
    ASSERT_EQ(chosen.size(), 32);
    EXPECT_LE(CountBytes(input, chosen), input.bytes_free) << round;
    double most = 0;
    for (size_t c = 0; c < input.candidates.size(); ++c) {
      const BucketCandidate& candidate = input.candidates[c];
      std::vector<int> one(32, -1), more = chosen;
      one[candidate.bucket] = static_cast<int>(c);
      if (CountBytes(input, one) <= input.bytes_free) most = std::max(most, candidate.gain);
      if (chosen[candidate.bucket] >= 0) continue;
      more[candidate.bucket] = static_cast<int>(c);
      EXPECT_GT(CountBytes(input, more), input.bytes_free) << round;
    }
    EXPECT_GE(GainOf(input, chosen), most) << round;
  }
}

}  // namespace
}  // namespace athanor
