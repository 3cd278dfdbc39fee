#include "server/generate/schedule/scheduler.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/generate/schedule/scheduler_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
