#include "server/rpc/generate/response_message.h"

#include <chrono>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/generate/scripted_engine_testing.h"

namespace athanor {
namespace {

std::vector<GenerateEvent> One(GenerateEvent event) {
  std::vector<GenerateEvent> events;
  events.push_back(std::move(event));
  return events;
}

TEST(ResponseMessageTest, EventsAreOneMessage) {
  std::vector<GenerateEvent> events = One({.text = "a", .tokens = {{.token = 1}}});
  events.push_back({.text = "b", .tokens = {{.token = 2}, {.token = 3}}});
  events.push_back(LastEvent(Finish::kLength, 3));
  const v1::GenerateResponse message = ResponseMessage(std::move(events), {.seed = 9});
  EXPECT_EQ(message.text(), "ab");
  ASSERT_EQ(message.tokens_size(), 3);
  EXPECT_EQ(message.tokens(2), 3);
  EXPECT_EQ(message.finish(), v1::FINISH_LENGTH);
  EXPECT_EQ(message.usage().seed(), 9u);
  EXPECT_EQ(message.logprobs_size(), 0) << "nobody asked for them";
}

TEST(ResponseMessageTest, TimesCountFromArrival) {
  const SequenceTime arrived = SequenceTime::clock::now();
  GenerateEvent last = LastEvent(Finish::kStop, 0);
  last.summary->preemptions = 2;
  last.summary->started = arrived - std::chrono::milliseconds(5);  // clocks of two threads
  const v1::GenerateResponse message =
      ResponseMessage(One(std::move(last)), {.arrived = arrived, .model_version = "4"});
  EXPECT_EQ(message.times().started_us(), 0);
  EXPECT_EQ(message.times().first_token_us(), 0) << "there is none";
  EXPECT_EQ(message.usage().model_version(), "4");
  EXPECT_EQ(message.usage().preemptions(), 2);
}

TEST(ResponseMessageTest, TokensOfNoTokenizerHaveNoBytes) {
  const v1::GenerateResponse message =
      ResponseMessage(One({.tokens = {{.token = 7, .logprob = -1, .likeliest = {{8, -0.5f}}}}}),
                      {.logprobs = true});
  ASSERT_EQ(message.logprobs_size(), 1);
  EXPECT_EQ(message.logprobs(0).chosen().text(), "");
  EXPECT_EQ(message.logprobs(0).likeliest(0).token(), 8);
}

}  // namespace
}  // namespace athanor
