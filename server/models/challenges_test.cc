#include "server/models/challenges.h"

#include <set>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Clock = Challenges::Clock;

TEST(ChallengesTest, EachIsGoodForOneUpload) {
  Challenges challenges;
  const Clock::time_point now{};
  const std::string nonce = challenges.New(now), other = challenges.New(now);
  EXPECT_EQ(nonce.size(), 32u);
  EXPECT_NE(nonce, other);
  EXPECT_TRUE(challenges.IsGood(nonce, now));
  EXPECT_TRUE(challenges.IsGood(nonce, now));
  EXPECT_TRUE(challenges.Take(nonce, now));
  EXPECT_FALSE(challenges.Take(nonce, now));
  EXPECT_FALSE(challenges.IsGood(nonce, now));
  EXPECT_TRUE(challenges.Take(other, now));
  EXPECT_FALSE(challenges.Take("", now));
  EXPECT_FALSE(challenges.Take(std::string(32, 'x'), now));
}

TEST(ChallengesTest, NoneIsGoodForLong) {
  Challenges challenges;
  const Clock::time_point now{};
  const std::string first = challenges.New(now);
  const std::string second = challenges.New(now + std::chrono::seconds(1));
  const Clock::time_point end = now + Challenges::kLifetime;
  EXPECT_TRUE(challenges.IsGood(first, end - std::chrono::nanoseconds(1)));
  EXPECT_FALSE(challenges.Take(first, end));
  EXPECT_TRUE(challenges.Take(second, end));
}

TEST(ChallengesTest, OfTooManyTheOldestGo) {
  Challenges challenges;
  const Clock::time_point now{};
  const std::string first = challenges.New(now), second = challenges.New(now);
  for (size_t i = 0; i + 1 < Challenges::kMost; ++i) challenges.New(now);
  EXPECT_FALSE(challenges.IsGood(first, now));
  EXPECT_TRUE(challenges.IsGood(second, now));
}

}  // namespace
}  // namespace athanor
