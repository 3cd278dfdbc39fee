#include "server/base/search_policy.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SearchBudgetTest, EveryForm) {
  const struct {
    const char* text;
    SearchBudget budget;
  } kRows[] = {
      {"0", {.search = false}},
      {"30s", {.time = milliseconds(30'000)}},
      {"250ms", {.time = milliseconds(250)}},
      {"720h", {.time = std::chrono::hours(720)}},
      {"200c", {.candidates = 200}},
      {"1000000c", {.candidates = 1'000'000}},
      {"fast", {.mode = v1::SEARCH_FAST}},
      {"exhaust", {.mode = v1::SEARCH_EXHAUST}},
      {"fast:10s", {.mode = v1::SEARCH_FAST, .time = milliseconds(10'000)}},
      {"exhaust:5m", {.mode = v1::SEARCH_EXHAUST, .time = milliseconds(300'000)}},
      {"exhaust:7c", {.mode = v1::SEARCH_EXHAUST, .candidates = 7}},
  };
  for (const auto& row : kRows) {
    const absl::StatusOr<SearchBudget> budget = ParseSearchBudget(row.text);
    ASSERT_TRUE(budget.ok()) << budget.status();
    EXPECT_TRUE(*budget == row.budget) << row.text;
    const absl::StatusOr<SearchBudget> again = ParseSearchBudget(ToText(*budget));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(*again == *budget) << row.text << " as " << ToText(*budget);
  }
}

TEST(SearchBudgetTest, WhatIsWrongIsSaidAndWhatIsRight) {
  const struct {
    const char* text;
    const char* why;
  } kRows[] = {
      {"", "it is empty"},
      {"soon", "'soon' is neither a time nor a number of candidates"},
      {"30", "'30' is neither a time nor a number of candidates"},
      {"30 s", "'30 s' is neither"},
      {" 30s", "' 30s' is neither"},
      {"30S", "'30S' is neither"},
      {"1e3s", "'1e3s' is neither"},
      {"s", "'s' is neither"},
      {"0s", "0s leaves nothing to search with"},
      {"0c", "0c leaves nothing to search with"},
      {"fast:0", "'0' is neither"},
      {"exhaust:0ms", "0ms leaves nothing"},
      {"-5s", "-5s is negative"},
      {"-1c", "-1c is negative"},
      {"fast:-1s", "-1s is negative"},
      {"c", "'c' is not a number of candidates"},
      {"1.5c", "'1.5c' is not a number of candidates"},
      {"+5c", "'+5c' is not a number of candidates"},
      {"721h", "721h is more than 720h"},
      {"99999999999999999999s", "99999999999999999999s is more than 720h"},
      {"9223372036854775807h", "9223372036854775807h is more than 720h"},
      {"1000001c", "1000001c is more than 1000000c"},
      {"99999999999999999999c", "99999999999999999999c is more than 1000000c"},
      {"fastest", "'fastest' is neither"},
      {"fast:", "'' is neither"},
      {"exhaust 5m", "'exhaust 5m' is neither"},
      {"fast:exhaust", "'exhaust' is neither"},
  };
  for (const auto& row : kRows) {
    const absl::Status status = ParseSearchBudget(row.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << row.text;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(row.why));
    EXPECT_THAT(message, HasSubstr("a time such as 30s (up to 720h)"));
  }
}

TEST(RuleNamesTest, ReadsAndRefuses) {
  EXPECT_THAT(ParseRuleNames("").value(), ElementsAre());
  EXPECT_THAT(ParseRuleNames("layout,algebra,layout").value(), ElementsAre("algebra", "layout"));
  for (const char* wrong : {",", "a,", "Algebra", "a b", "a-b", "\n"}) {
    EXPECT_EQ(ParseRuleNames(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(SearchPolicyTest, OfFlagsAndAsMessage) {
  ServerOptions options;
  options.search_budget = "exhaust:40c";
  options.search_seed = 9;
  options.disable_rules = "layout,algebra";
  const v1::SearchOptions message = ServerPolicy(options).ToProto();
  EXPECT_EQ(message.budget(), "exhaust:40c");
  EXPECT_EQ(message.seed(), 9u);
  EXPECT_THAT(message.disabled_rules(), ElementsAre("algebra", "layout"));
  EXPECT_FALSE(message.approximate());
  EXPECT_EQ(message.use(), v1::SearchOptions::SERVE);
}

}  // namespace
}  // namespace athanor
