#include "server/generate/scheduler.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const SequenceTime kNow = SequenceTime(std::chrono::hours(1));
constexpr SchedulerOptions kSmall{
    .max_batched_tokens = 8, .max_sequences = 3, .max_model_len = 32, .max_waiting = 4, .block = 4};

SequenceRequest Prompt(int tokens, int64_t max_tokens = 4) {
  SequenceRequest request{.max_tokens = max_tokens};
  for (int i = 0; i < tokens; ++i) request.prompt.push_back(100 + i);
  return request;
}

class SchedulerTest : public ::testing::Test {
 protected:
  // Runs a step in which each wanted row chooses `token`; returns its rows.
  std::vector<Row> Run(int32_t token = 7) {
    const Step step = scheduler_.Next(now_, times_);
    scheduler_.Done(step, Tell(step, token));
    return step.rows;
  }
  static std::vector<Told> Tell(const Step& step, int32_t token) {
    std::vector<Told> told;
    for (const Row& row : step.rows) {
      if (row.wanted) told.push_back({.id = step.tables[row.sequence], .token = token});
    }
    return told;
  }
  // Ids that ended, each with its finish or its error.
  std::vector<std::string> Ends() {
    std::vector<std::string> ends;
    for (const Ended& ended : scheduler_.TakeEnded()) {
      ends.push_back(std::to_string(ended.id) + (ended.finish == Finish::kStop ? " stop"
                                                 : ended.finish == Finish::kLength
                                                     ? " length"
                                                     : " " + ended.status.ToString()));
    }
    return ends;
  }

  BlockPool pool_{11};
  Scheduler scheduler_{kSmall, &pool_};
  SequenceTime now_ = kNow;
  StepTimes times_;
};

TEST_F(SchedulerTest, HasNoRowsWithoutSequences) {
  EXPECT_THAT(scheduler_.Next(now_, times_).rows, IsEmpty());
  EXPECT_EQ(scheduler_.NextEnd(), SequenceTime::max());
}

TEST_F(SchedulerTest, AShortPromptGivesATokenAStep) {
  ASSERT_TRUE(scheduler_.Add(1, Prompt(2, 3)).ok());
  EXPECT_THAT(Run(7), ElementsAre(Row{0, 0, 100, false}, Row{0, 1, 101, true}));
  EXPECT_THAT(Run(8), ElementsAre(Row{0, 2, 7, true}));
  EXPECT_THAT(scheduler_.BlocksOf(1), ElementsAre(1));
  EXPECT_THAT(Run(9), ElementsAre(Row{0, 3, 8, true}));
  EXPECT_THAT(Ends(), ElementsAre("1 length"));
  EXPECT_EQ(scheduler_.Find(1), nullptr);
  EXPECT_EQ(pool_.free(), 10);
}

TEST_F(SchedulerTest, ALongPromptComesInPiecesBesideWhatDecodes) {
  ASSERT_TRUE(scheduler_.Add(1, Prompt(1, 9)).ok());
  Run();
  ASSERT_TRUE(scheduler_.Add(2, Prompt(10)).ok());
  ASSERT_TRUE(scheduler_.Add(3, Prompt(5)).ok());
  std::vector<Row> rows = Run();
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0], (Row{0, 1, 7, true}));
  EXPECT_EQ(rows[7], (Row{1, 6, 106, false}));
  rows = Run();
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[3], (Row{1, 9, 109, true})) << "the rest of the first";
  EXPECT_EQ(rows[7], (Row{2, 3, 103, false})) << "and what fits of the second";
}

TEST_F(SchedulerTest, WhoCannotFitIsRefusedWithTheNumbers) {
  EXPECT_THAT(scheduler_.Add(1, Prompt(32)).message(),
              HasSubstr("the prompt has 32 tokens, and the model takes at most 31"));
  BlockPool small(3);
  SchedulerOptions options = kSmall;
  options.more_blocks = "ask for more";
  Scheduler scheduler(options, &small);
  EXPECT_THAT(scheduler.Add(1, Prompt(9)).message(),
              HasSubstr("has 9 tokens, and the memory of keys and values holds 8: 2 blocks of 4; "
                        "ask for more"));
  EXPECT_TRUE(scheduler.Add(1, Prompt(8)).ok());
  BlockPool none(1);
  EXPECT_FALSE(Scheduler(kSmall, &none).Add(1, Prompt(1)).ok());
}

TEST_F(SchedulerTest, WrongFieldsAreRefused) {
  EXPECT_THAT(scheduler_.Add(1, Prompt(0)).message(), HasSubstr("no tokens"));
  EXPECT_THAT(scheduler_.Add(1, Prompt(1, 0)).message(), HasSubstr("max_tokens is 0"));
  SequenceRequest request = Prompt(1, 4);
  request.min_tokens = 5;
  EXPECT_THAT(scheduler_.Add(1, request).message(), HasSubstr("min_tokens is 5"));
  request.min_tokens = -1;
  EXPECT_EQ(scheduler_.Add(1, request).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(scheduler_.Add(1, Prompt(1)).ok());
  EXPECT_EQ(scheduler_.Add(1, Prompt(1)).code(), absl::StatusCode::kAlreadyExists);
  for (int id = 2; id < 5; ++id) ASSERT_TRUE(scheduler_.Add(id, Prompt(1)).ok());
  EXPECT_THAT(scheduler_.Add(5, Prompt(1)).message(), HasSubstr("4 sequences of the model wait"));
}

TEST_F(SchedulerTest, MaxTokensIsLoweredToTheContextAndToThePool) {
  ASSERT_TRUE(scheduler_.Add(1, Prompt(30, INT64_MAX)).ok());
  EXPECT_EQ(scheduler_.Find(1)->max_tokens, 2);
  BlockPool small(3);
  Scheduler scheduler(kSmall, &small);
  ASSERT_TRUE(scheduler.Add(1, Prompt(6, INT64_MAX)).ok());
  EXPECT_EQ(scheduler.Find(1)->max_tokens, 3) << "the last needs no position";
}

TEST_F(SchedulerTest, TheFirstWaitsForBlocksAndTheNextBehindIt) {
  ASSERT_TRUE(scheduler_.Add(1, Prompt(20, 5)).ok());  // 5 of 10 blocks
  ASSERT_TRUE(scheduler_.Add(2, Prompt(17, 2)).ok());  // 5, and one is kept free for the first
  ASSERT_TRUE(scheduler_.Add(3, Prompt(1, 1)).ok());
  Run();
  EXPECT_EQ(scheduler_.running(), 1);
  EXPECT_EQ(scheduler_.waiting(), 2);
  EXPECT_EQ(pool_.free(), 5);
  scheduler_.Cancel(1, absl::CancelledError("enough"));
  EXPECT_THAT(Ends(), ElementsAre("1 CANCELLED: enough"));
  EXPECT_EQ(Run().size(), 8u);
  EXPECT_EQ(scheduler_.running(), 2);
}

TEST_F(SchedulerTest, WhoNeedsABlockTakesThoseOfTheLastWhichGoesOnLater) {
  BlockPool pool(5);
  Scheduler scheduler(kSmall, &pool);
  ASSERT_TRUE(scheduler.Add(1, Prompt(4, 9)).ok());
  ASSERT_TRUE(scheduler.Add(2, Prompt(3, 7)).ok());
  std::vector<std::vector<Row>> steps;
  for (int32_t token = 1; token <= 11; ++token) {
    const Step step = scheduler.Next(now_, times_);
    steps.push_back(step.rows);
    scheduler.Done(step, Tell(step, token));
    ASSERT_TRUE(pool.Check().ok()) << pool.Check();
  }
  EXPECT_THAT(steps[4], ElementsAre(Row{0, 7, 4, true}, Row{1, 6, 4, true}));
  EXPECT_THAT(steps[5], ElementsAre(Row{0, 8, 5, true})) << "it needs a third block";
  EXPECT_THAT(steps[8], ElementsAre(Row{0, 11, 8, true}));
  ASSERT_EQ(steps[9].size(), 8u) << "all of the second's tokens";
  EXPECT_EQ(steps[9][2], (Row{0, 2, 102, false}));
  EXPECT_EQ(steps[9][7], (Row{0, 7, 5, true}));
  EXPECT_THAT(steps[10], ElementsAre(Row{0, 8, 10, true}));
  const std::vector<Ended> ended = scheduler.TakeEnded();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].preemptions, 0);
  EXPECT_EQ(ended[1].preemptions, 1);
  EXPECT_EQ(scheduler.counts().preemptions, 1);
  EXPECT_EQ(scheduler.counts().prompt_tokens, 7);
  EXPECT_EQ(scheduler.counts().recomputed_tokens, 7) << "its eighth was not computed before";
  EXPECT_EQ(pool.free(), 4);
}

TEST_F(SchedulerTest, WhoNobodyReadsGivesUpItsPlaceToWhoWaits) {
  for (int id = 1; id < 5; ++id) ASSERT_TRUE(scheduler_.Add(id, Prompt(1, 9)).ok());
  EXPECT_EQ(Run().size(), 3u);
  scheduler_.Pause(1, now_);
  scheduler_.Pause(2, now_ - seconds(1));
  EXPECT_EQ(Run().size(), 2u) << "the fourth has the place of the second, which pauses longest";
  EXPECT_FALSE(scheduler_.Find(2)->running);
  EXPECT_TRUE(scheduler_.Find(1)->running);
  EXPECT_EQ(scheduler_.paused(), 1);
  scheduler_.Resume(2);
  EXPECT_EQ(Run().size(), 4u) << "it comes back for that of the first, with its token";
  EXPECT_FALSE(scheduler_.Find(1)->running);
  scheduler_.Cancel(1, absl::CancelledError("left"));
  EXPECT_THAT(Ends(), ElementsAre("1 CANCELLED: left"));
}

TEST_F(SchedulerTest, PausesEndAlsoWhileTheyWait) {
  for (int id = 1; id < 5; ++id) ASSERT_TRUE(scheduler_.Add(id, Prompt(1, 9)).ok());
  Run();
  scheduler_.Pause(1, now_);
  Run();
  EXPECT_FALSE(scheduler_.Find(1)->running);
  EXPECT_EQ(scheduler_.NextEnd(), kNow + seconds(30));
  now_ += seconds(30);
  Run();
  EXPECT_THAT(
      Ends(),
      ElementsAre("1 RESOURCE_EXHAUSTED: the client read nothing for 30 s; tokens generated: 1"));
}

TEST_F(SchedulerTest, ThoseWhoGainedMoreAndGaveUpLessGoFirst) {
  BlockPool pool(100);
  Scheduler scheduler({.max_batched_tokens = 64, .block = 4, .max_preemptions = 1}, &pool);
  SequenceRequest request = Prompt(4, 60);
  for (int id = 1; id < 5; ++id) {
    request.priority = id == 3 ? 7 : 100;  // so the third is the first in order
    ASSERT_TRUE(scheduler.Add(id, request).ok());
  }
  const auto run = [&] {
    const Step step = scheduler.Next(now_, times_);
    scheduler.Done(step, Tell(step, 7));
  };
  const auto refuse = [&] {
    scheduler.Refused(scheduler.Next(now_, times_), absl::ResourceExhaustedError("no memory"));
    SequenceId waits = 0;
    for (int id = 1; id < 5; ++id) {
      if (scheduler.Find(id) != nullptr && !scheduler.Find(id)->running) waits = waits * 10 + id;
    }
    return waits;
  };
  for (int i = 0; i < 20; ++i) run();
  EXPECT_EQ(refuse(), 4) << "the last of those of equal order";
  scheduler.Cancel(1, absl::CancelledError("left"));  // then the fourth is admitted again
  run();                                              // the rest of the step that was refused
  run();
  EXPECT_TRUE(scheduler.Find(4)->running);
  EXPECT_EQ(refuse(), 2) << "the fourth has given up its blocks once";
  EXPECT_EQ(refuse(), 24) << "but goes before the first in order";
  EXPECT_THAT(scheduler.Next(now_, times_).tables, ElementsAre(3)) << "nobody is admitted";
}

// Prompts with roots, which share blocks of 4.
class SharingTest : public SchedulerTest {
 protected:
  static SequenceRequest Rooted(int tokens, int64_t max_tokens = 4, const char* salt = "") {
    SequenceRequest request = Prompt(tokens, max_tokens);
    request.root = RootKey("signature", salt);
    return request;
  }
  // Runs steps until all have ended; returns the number of their rows.
  int64_t RunAll() {
    int64_t rows = 0;
    while (scheduler_.running() + scheduler_.waiting() > 0) {
      rows += static_cast<int64_t>(Run().size());
    }
    return rows;
  }
};

TEST_F(SharingTest, AnEqualBeginningIsComputedOnce) {
  ASSERT_TRUE(scheduler_.Add(1, Rooted(11, 1)).ok());
  EXPECT_EQ(RunAll(), 11);
  EXPECT_EQ(pool_.kept(), 2) << "two whole blocks";
  EXPECT_EQ(pool_.free(), 10);
  ASSERT_TRUE(scheduler_.Add(2, Rooted(11, 1)).ok());
  EXPECT_THAT(Run(),
              ElementsAre(Row{0, 8, 108, false}, Row{0, 9, 109, false}, Row{0, 10, 110, true}));
  const std::vector<Ended> ended = scheduler_.TakeEnded();
  EXPECT_EQ(ended[0].cached_tokens, 0);
  EXPECT_EQ(ended[1].cached_tokens, 8);
  EXPECT_EQ(scheduler_.counts().queried_tokens, 22);
  EXPECT_EQ(scheduler_.counts().cached_tokens, 8);
  EXPECT_EQ(scheduler_.counts().prompt_tokens, 14);
}

TEST_F(SharingTest, TheLastTokenIsComputedInABlockOfItsOwn) {
  ASSERT_TRUE(scheduler_.Add(1, Rooted(8, 1)).ok());
  EXPECT_EQ(RunAll(), 8);
  ASSERT_TRUE(scheduler_.Add(2, Rooted(8, 2)).ok());
  EXPECT_EQ(scheduler_.Next(now_, times_).rows.size(), 4u);
  EXPECT_NE(scheduler_.BlocksOf(2)[1], pool_.Find(scheduler_.Find(2)->keys[1]));
}

TEST_F(SharingTest, GeneratedTokensAreSharedToo) {
  ASSERT_TRUE(scheduler_.Add(1, Rooted(3, 6)).ok());
  RunAll();  // 100 to 102, then 7 six times, of which the last is not computed
  SequenceRequest next = Rooted(3, 1);
  next.prompt.insert(next.prompt.end(), 6, 7);
  next.prompt.push_back(9);
  ASSERT_TRUE(scheduler_.Add(2, next).ok());
  EXPECT_EQ(RunAll(), 2) << "of 10: two blocks are there";
}

TEST_F(SharingTest, OthersSaltsAndRootlessOnesShareNothing) {
  ASSERT_TRUE(scheduler_.Add(1, Rooted(8, 1, "mine")).ok());
  ASSERT_TRUE(scheduler_.Add(2, Rooted(8, 1, "yours")).ok());
  ASSERT_TRUE(scheduler_.Add(3, Prompt(8, 1)).ok());
  EXPECT_EQ(RunAll(), 24);
  EXPECT_EQ(scheduler_.counts().queried_tokens, 16);
}

TEST_F(SharingTest, ThoseThatBeginEquallyWaitForTheOneThatComputesIt) {
  for (int id = 1; id < 4; ++id) ASSERT_TRUE(scheduler_.Add(id, Rooted(14, 2)).ok());
  ASSERT_TRUE(scheduler_.Add(4, Prompt(1, 2)).ok());
  int64_t rows = static_cast<int64_t>(Run().size());
  EXPECT_EQ(scheduler_.running(), 2) << "the fourth has another prompt";
  rows += RunAll();
  EXPECT_EQ(rows, (14 + 1) + 2 * (2 + 1) + (1 + 1));
}

TEST_F(SharingTest, NobodyWaitsForAPausedOneOrForALaterOne) {
  ASSERT_TRUE(scheduler_.Add(1, Rooted(20, 2)).ok());
  Run();
  ASSERT_TRUE(scheduler_.Add(2, Rooted(20, 2)).ok());
  Run();
  EXPECT_FALSE(scheduler_.Find(2)->running) << "it waits for the first";
  scheduler_.Pause(1, now_);
  EXPECT_EQ(Run().size(), 4u) << "16 of 20 are stored";
  EXPECT_TRUE(scheduler_.Find(2)->running);

  SchedulerOptions options = kSmall;
  options.max_batched_tokens = 4;
  BlockPool pool(100);
  Scheduler scheduler(options, &pool);
  SequenceRequest urgent = Rooted(20, 2);
  urgent.priority = 1;
  ASSERT_TRUE(scheduler.Add(1, Rooted(20, 2)).ok());
  scheduler.Done(scheduler.Next(now_, times_), {});
  ASSERT_TRUE(scheduler.Add(2, urgent).ok());
  ASSERT_TRUE(scheduler.Add(3, Rooted(20, 2)).ok());
  scheduler.Next(now_, times_);
  EXPECT_TRUE(scheduler.Find(2)->running);
  EXPECT_FALSE(scheduler.Find(3)->running);
}

TEST_F(SharingTest, APreemptedOneFindsItsBlocks) {
  ASSERT_TRUE(scheduler_.Add(1, Prompt(1, 20)).ok());
  ASSERT_TRUE(scheduler_.Add(2, Rooted(6, 20)).ok());
  for (int i = 0; i < 5; ++i) Run();  // the second has 6 + 5 tokens, of which 10 are stored
  scheduler_.Refused(scheduler_.Next(now_, times_), absl::ResourceExhaustedError("no memory"));
  EXPECT_FALSE(scheduler_.Find(2)->running);
  EXPECT_EQ(pool_.kept(), 2);
  Run();
  scheduler_.Cancel(1, absl::CancelledError("left"));
  EXPECT_EQ(Run().size(), 3u) << "8 of 11 are there";
  EXPECT_EQ(scheduler_.Find(2)->cached, 0) << "at its first admission there was nothing";
  EXPECT_EQ(scheduler_.counts().recomputed_tokens, 2);
}

TEST_F(SharingTest, WhatIsForgottenIsComputedAnewAndNotNamedByWhatRuns) {
  ASSERT_TRUE(scheduler_.Add(1, Rooted(8, 1)).ok());
  RunAll();
  ASSERT_TRUE(scheduler_.Add(2, Rooted(20, 20)).ok());
  Run();
  EXPECT_EQ(scheduler_.counts().cached_tokens, 8);
  scheduler_.Forget();
  Run();
  ASSERT_TRUE(scheduler_.Add(3, Rooted(9, 1)).ok());
  EXPECT_EQ(Run().size(), 8u) << "the second's token, and 7 of 9";
  Run();
  EXPECT_EQ(scheduler_.counts().cached_tokens, 8);
  EXPECT_EQ(pool_.kept(), 2) << "the third names what it computes";
}

TEST_F(SchedulerTest, AStepWithoutMemoryComesAgainWithoutTheLastUntilOneIsAlone) {
  for (int id = 1; id < 4; ++id) ASSERT_TRUE(scheduler_.Add(id, Prompt(2)).ok());
  std::vector<std::vector<SequenceId>> steps;
  for (int i = 0; i < 3; ++i) {
    const Step step = scheduler_.Next(now_, times_);
    steps.push_back(step.tables);
    scheduler_.Refused(step, absl::ResourceExhaustedError("no memory"));
  }
  EXPECT_THAT(steps, ElementsAre(ElementsAre(1, 2, 3), ElementsAre(1, 2), ElementsAre(1)));
  EXPECT_THAT(Ends(), ElementsAre("1 RESOURCE_EXHAUSTED: no memory"));
  EXPECT_EQ(Run().size(), 4u) << "the others get another chance";
}

TEST_F(SchedulerTest, StopTokensCountOnlyAfterMinTokens) {
  SequenceRequest request = Prompt(1, 9);
  request.stop_tokens = {5, 7};
  request.min_tokens = 2;
  ASSERT_TRUE(scheduler_.Add(1, request).ok());
  Run(7);
  EXPECT_FALSE(scheduler_.Find(1)->MayStop());
  Run(7);
  EXPECT_TRUE(scheduler_.Find(1)->MayStop());
  Run(6);
  EXPECT_THAT(Ends(), IsEmpty());
  Run(7);
  EXPECT_THAT(Ends(), ElementsAre("1 stop"));
}

TEST_F(SchedulerTest, AStopStringAndAnErrorEndTheirSequenceAlone) {
  for (int id = 1; id < 4; ++id) ASSERT_TRUE(scheduler_.Add(id, Prompt(1)).ok());
  const Step step = scheduler_.Next(now_, times_);
  std::vector<Told> told = Tell(step, 7);
  told[0].stop = true;
  told[1].status = absl::DataLossError("NaN");
  scheduler_.Done(step, told);
  EXPECT_THAT(Ends(), ElementsAre("1 stop", "2 DATA_LOSS: NaN"));
  EXPECT_EQ(Run().size(), 1u);
}

TEST_F(SchedulerTest, AFailedStepComesAgainByHalvesUntilTheGuiltyOneIsAlone) {
  for (int id = 1; id < 4; ++id) ASSERT_TRUE(scheduler_.Add(id, Prompt(2)).ok());
  std::vector<std::vector<SequenceId>> steps;
  for (int i = 0; i < 5; ++i) {
    const Step step = scheduler_.Next(now_, times_);
    steps.push_back(step.tables);
    const bool guilty = std::find(step.tables.begin(), step.tables.end(), 2) != step.tables.end();
    if (guilty) {
      scheduler_.Failed(step, absl::UnavailableError("device"));
    } else {
      scheduler_.Done(step, Tell(step, 7));
    }
  }
  EXPECT_THAT(steps, ElementsAre(ElementsAre(1, 2, 3), ElementsAre(1), ElementsAre(2, 3),
                                 ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(Ends(), ElementsAre("2 UNAVAILABLE: device"));
  EXPECT_THAT(Run(), ElementsAre(Row{0, 2, 7, true}, Row{1, 2, 7, true}));
}

TEST_F(SchedulerTest, WhoIsCancelledInAStepKeepsItsBlocksUntilItHasRun) {
  ASSERT_TRUE(scheduler_.Add(1, Prompt(2)).ok());
  const Step step = scheduler_.Next(now_, times_);
  scheduler_.Cancel(1, absl::CancelledError("gone"));
  scheduler_.Cancel(1, absl::CancelledError("twice"));
  EXPECT_THAT(Ends(), IsEmpty());
  EXPECT_EQ(pool_.free(), 9);
  scheduler_.Done(step, Tell(step, 7));
  EXPECT_THAT(Ends(), ElementsAre("1 CANCELLED: gone"));
  EXPECT_EQ(pool_.free(), 10);
}

TEST_F(SchedulerTest, DeadlinesEndWhatRunsAndWhatWaits) {
  for (int id = 1; id < 5; ++id) {
    SequenceRequest request = Prompt(1, 9);
    request.deadline = kNow + seconds(id % 2 == 1 ? 1 : 5);
    ASSERT_TRUE(scheduler_.Add(id, request).ok());
  }
  EXPECT_EQ(Run().size(), 3u);
  EXPECT_EQ(scheduler_.NextEnd(), kNow + seconds(1));
  now_ += seconds(1);
  EXPECT_EQ(Run().size(), 2u) << "the fourth takes a free place";
  EXPECT_THAT(Ends(), ElementsAre("1 DEADLINE_EXCEEDED: the deadline passed; tokens generated: 1",
                                  "3 DEADLINE_EXCEEDED: the deadline passed; tokens generated: 1"));
}

TEST_F(SchedulerTest, APausedOneHasNoRowsAndEndsIfNobodyReads) {
  ASSERT_TRUE(scheduler_.Add(1, Prompt(1, 9)).ok());
  ASSERT_TRUE(scheduler_.Add(2, Prompt(1, 9)).ok());
  Run();
  EXPECT_EQ(scheduler_.paused(), 0);
  scheduler_.Pause(1, now_);
  EXPECT_EQ(scheduler_.paused(), 1);
  EXPECT_EQ(Run().size(), 1u);
  scheduler_.Resume(1);
  EXPECT_EQ(Run().size(), 2u);
  scheduler_.Pause(2, now_);
  EXPECT_EQ(scheduler_.NextEnd(), kNow + seconds(30));
  now_ += seconds(30);
  EXPECT_EQ(Run().size(), 1u);
  EXPECT_THAT(
      Ends(),
      ElementsAre("2 RESOURCE_EXHAUSTED: the client read nothing for 30 s; tokens generated: 3"));
}

TEST_F(SchedulerTest, StepsWithDecodersKeepTheTargetAndAlwaysHaveSomeRowsOfPrompts) {
  BlockPool pool(1000);
  Scheduler scheduler({.max_model_len = 2048, .itl_target = milliseconds(50)}, &pool);
  times_.Learn(1, milliseconds(10));
  times_.Learn(512, milliseconds(10 + 511));
  ASSERT_TRUE(scheduler.Add(1, Prompt(600, 9)).ok());
  Step step = scheduler.Next(now_, times_);
  EXPECT_EQ(step.rows.size(), 512u) << "nobody decodes beside it";
  scheduler.Done(step, Tell(step, 7));
  step = scheduler.Next(now_, times_);
  EXPECT_EQ(step.rows.size(), 88u);
  scheduler.Done(step, Tell(step, 7));
  ASSERT_TRUE(scheduler.Add(2, Prompt(1000, 9)).ok());
  step = scheduler.Next(now_, times_);
  EXPECT_EQ(step.rows.size(), 41u) << "10 + 40 ms";
  scheduler.Done(step, Tell(step, 7));
  for (int i = 0; i < 100; ++i) times_.Learn(1, milliseconds(60));
  step = scheduler.Next(now_, times_);
  EXPECT_EQ(step.rows.size(), 17u) << "the target is passed without prompts";
}

TEST_F(SchedulerTest, NoMoreSequencesAreAdmittedThanAStepHasRows) {
  BlockPool pool(100);
  Scheduler scheduler({.max_batched_tokens = 2, .max_sequences = 64}, &pool);
  for (int id = 0; id < 5; ++id) ASSERT_TRUE(scheduler.Add(id, Prompt(3)).ok());
  EXPECT_EQ(scheduler.Next(now_, times_).rows.size(), 2u);
  EXPECT_EQ(scheduler.running(), 2);
}

}  // namespace
}  // namespace athanor
