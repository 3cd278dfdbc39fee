#include "server/base/retry_after.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

TEST(RetryAfterTest, IsNoted) {
  const absl::Status refused = absl::ResourceExhaustedError("full");
  EXPECT_EQ(RetryAfter(refused), milliseconds(0));
  EXPECT_EQ(RetryAfterSeconds(refused), "1");
  const absl::Status noted = WithRetryAfter(refused, std::chrono::microseconds(1'200'500));
  EXPECT_EQ(noted.code(), refused.code());
  EXPECT_EQ(noted.message(), "full");
  EXPECT_EQ(RetryAfter(noted), milliseconds(1'201));
  EXPECT_EQ(RetryAfterSeconds(noted), "2");
}

TEST(RetryAfterTest, IsBounded) {
  const absl::Status refused = absl::ResourceExhaustedError("full");
  EXPECT_EQ(RetryAfter(WithRetryAfter(refused, std::chrono::nanoseconds(1))), milliseconds(1));
  EXPECT_EQ(RetryAfter(WithRetryAfter(refused, std::chrono::nanoseconds::max())),
            milliseconds(60'000));
}

TEST(RetryAfterTest, HasADefaultBeforeAnythingIsMeasured) {
  const absl::Status refused = absl::ResourceExhaustedError("full");
  for (int nanoseconds : {0, -5}) {
    const auto after = std::chrono::nanoseconds(nanoseconds);
    EXPECT_EQ(RetryAfter(WithRetryAfter(refused, after)), milliseconds(100));
  }
}

}  // namespace
}  // namespace athanor
