// Tests what an engine's book learns of time, which its thread tells it.
#include "server/generate/engine_book.h"

#include <chrono>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class EngineBookTest : public ::testing::Test {
 protected:
  // Adds a sequence of one token.
  absl::Status Add(SequenceTime now) {
    const SequenceId id = book_.NewId();
    GenerateInput input{.sequence = {.prompt = {1}, .max_tokens = 1}};
    auto outbox = std::make_shared<Outbox>(64, [] {}, [] {});
    auto reply = std::make_unique<Reply>(input, nullptr, nullptr, std::move(outbox), now);
    return book_.Add(id, std::move(input.sequence), std::move(reply), now);
  }
  // Runs the step that ends the only sequence.
  void RunToEnd(SequenceTime from, SequenceTime to) {
    const EngineBook::Turn turn = book_.Next(from, StepTimes(), "plan");
    ASSERT_EQ(turn.step.tables.size(), 1u);
    const Told told{.id = turn.step.tables[0], .token = 2};
    EXPECT_EQ(book_.Done(turn, {told}, {}, to).size(), 1u);
  }

  EngineBook book_{{.scheduler = {.max_sequences = 1, .max_waiting = 1}, .blocks = 8}};
};

TEST_F(EngineBookTest, TheTimeToComeAgainIsOfWorkAlone) {
  const SequenceTime start = SequenceTime() + hours(1);
  ASSERT_TRUE(Add(start).ok());
  EXPECT_EQ(RetryAfter(Add(start)), kUnmeasuredRetry) << "none has ended";
  RunToEnd(start, start + milliseconds(200));
  const SequenceTime later = start + hours(3);
  ASSERT_TRUE(Add(later).ok());
  EXPECT_EQ(RetryAfter(Add(later)), milliseconds(200));
  RunToEnd(later, later + milliseconds(1'000));
  ASSERT_TRUE(Add(later + hours(3)).ok());
  EXPECT_EQ(RetryAfter(Add(later + hours(3))), milliseconds(300)) << "an average";
}

}  // namespace
}  // namespace athanor
