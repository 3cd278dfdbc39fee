// Preemption, and blocks that sequences share.
#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/generate/schedule/scheduler_testing.h"

namespace athanor {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

using SharingTest = SchedulerTest;

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
    scheduler.Refused(scheduler.Next(now_, times_), absl::ResourceExhaustedError("no memory"),
                      /*waits=*/false);
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

TEST_F(SchedulerTest, AfterARefusalNoMoreRunThanDidAndOneMoreEvery32Steps) {
  BlockPool pool(100);
  Scheduler scheduler({.max_batched_tokens = 64, .max_sequences = 4, .block = 4}, &pool);
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      const Step step = scheduler.Next(now_, times_);
      scheduler.Done(step, Tell(step, 7));
    }
    return scheduler.running();
  };
  for (int id = 1; id < 9; ++id) ASSERT_TRUE(scheduler.Add(id, Prompt(1, 80)).ok());
  EXPECT_EQ(run(1), 4);
  for (int i = 0; i < 2; ++i) {
    scheduler.Refused(scheduler.Next(now_, times_), absl::ResourceExhaustedError("no memory"),
                      /*waits=*/false);
  }
  EXPECT_EQ(run(2), 2);
  scheduler.Cancel(1, absl::CancelledError("left"));
  EXPECT_EQ(run(1), 2) << "another has its place";
  EXPECT_EQ(run(29), 2);
  EXPECT_EQ(run(1), 3);
  EXPECT_EQ(run(31), 3);
  EXPECT_EQ(run(1), 4);
}

TEST_F(SharingTest, WaitsOnWhileTheOtherGoesOnAndStopsWhereTheyDiffer) {
  BlockPool pool(100);
  SchedulerOptions options = kSmall;
  options.max_batched_tokens = 4;
  Scheduler scheduler(options, &pool);
  ASSERT_TRUE(scheduler.Add(1, Rooted(24)).ok());
  SequenceRequest other = Rooted(24);
  other.prompt[17] = 1;  // in the fifth block
  ASSERT_TRUE(scheduler.Add(2, other).ok());
  for (int step = 0; step < 4; ++step) {
    scheduler.Done(scheduler.Next(now_, times_), {});
    EXPECT_FALSE(scheduler.Find(2)->running) << step;
  }
  scheduler.Next(now_, times_);
  EXPECT_TRUE(scheduler.Find(2)->running);
  EXPECT_EQ(scheduler.Find(2)->cached, 16);
}

TEST_F(SchedulerTest, AStepWithoutMemoryComesAgainWithoutTheLastUntilOneIsAlone) {
  for (int id = 1; id < 4; ++id) ASSERT_TRUE(scheduler_.Add(id, Prompt(2)).ok());
  std::vector<std::vector<SequenceId>> steps;
  for (int i = 0; i < 3; ++i) {
    const Step step = scheduler_.Next(now_, times_);
    steps.push_back(step.tables);
    scheduler_.Refused(step, absl::ResourceExhaustedError("no memory"), /*waits=*/false);
  }
  EXPECT_THAT(steps, ElementsAre(ElementsAre(1, 2, 3), ElementsAre(1, 2), ElementsAre(1)));
  EXPECT_THAT(Ends(), ElementsAre("1 RESOURCE_EXHAUSTED: no memory"));
  EXPECT_EQ(Run().size(), 2u) << "the others get another chance, one by one";
  EXPECT_EQ(scheduler_.running(), 1);
}

TEST_F(SharingTest, WhoeverIsAloneStartsAnewThreeTimes) {
  EXPECT_FALSE(scheduler_.StartAnew()) << "nobody runs";
  ASSERT_TRUE(scheduler_.Add(1, Rooted(6, 9)).ok());
  ASSERT_TRUE(scheduler_.Add(2, Prompt(2)).ok());
  Run();
  EXPECT_EQ(scheduler_.running(), 2);
  EXPECT_FALSE(scheduler_.StartAnew()) << "it is not alone";
  scheduler_.Cancel(2, absl::CancelledError("left"));
  const absl::Status none = absl::ResourceExhaustedError("no memory");
  for (int i = 0; i < 3; ++i) {
    Run();
    EXPECT_TRUE(scheduler_.Refused(scheduler_.Next(now_, times_), none, /*waits=*/true));
    EXPECT_TRUE(scheduler_.StartAnew());
    pool_.Shed(10);
    EXPECT_EQ(scheduler_.running(), 0);
    EXPECT_EQ(pool_.free(), pool_.blocks());
  }
  EXPECT_EQ(Run().size(), 8u) << "all of its tokens";
  EXPECT_FALSE(scheduler_.StartAnew());
  RunAll();
  EXPECT_EQ(scheduler_.TakeEnded()[1].preemptions, 3);
}

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
  scheduler_.Refused(scheduler_.Next(now_, times_), absl::ResourceExhaustedError("no memory"),
                     /*waits=*/false);
  EXPECT_FALSE(scheduler_.Find(2)->running);
  EXPECT_EQ(pool_.kept(), 2);
  Run();
  scheduler_.Cancel(1, absl::CancelledError("left"));
  EXPECT_EQ(Run().size(), 3u) << "8 of 11 are there";
  EXPECT_EQ(scheduler_.Find(2)->cached, 0) << "at its first admission there was nothing";
  EXPECT_EQ(scheduler_.counts().recomputed_tokens, 2);
}

// A thousand that wait for one long prompt: what a step looks up is what has changed.
TEST_F(SharingTest, LooksUpBlocksOnceASequence) {
  constexpr int64_t kSequences = 1000, kShared = 255;  // blocks of 4,096 tokens, but the last
  BlockPool pool(20'000);
  Scheduler scheduler({.max_batched_tokens = 512,
                       .max_sequences = 64,
                       .max_model_len = 5000,
                       .max_waiting = kSequences,
                       .block = 16},
                      &pool);
  SequenceRequest request = Rooted(4096, 100);
  AddKeys(*request.root, request.prompt, 16, &request.keys);
  for (int64_t id = 0; id < kSequences; ++id) ASSERT_TRUE(scheduler.Add(id, request).ok());
  const auto run = [&] {
    const int64_t before = pool.lookups();
    const Step step = scheduler.Next(now_, times_);
    const int64_t lookups = pool.lookups() - before;
    scheduler.Done(step, Tell(step, 7));
    return lookups;
  };
  EXPECT_LE(run(), 2 * kSequences) << "each learns whom it waits for";
  for (int i = 1; i < 8; ++i) EXPECT_LE(run(), 2) << i;
  EXPECT_EQ(scheduler.running(), 1);
  EXPECT_LE(run(), (64 + 8) * (kShared + 1)) << "of those admitted, and those looked at";
  EXPECT_EQ(scheduler.running(), 64);
  EXPECT_LE(run(), 2);
  scheduler.Cancel(5, absl::CancelledError("left"));
  EXPECT_LE(run(), 2 * (kShared + 1)) << "of one more";
  EXPECT_EQ(scheduler.running(), 64);
  EXPECT_EQ(scheduler.Find(64)->found, kShared * 16);
}

// Blocks that a waiting sequence has found may go before it is admitted.
TEST_F(SharingTest, ForgetsBlocksThatAreGone) {
  ASSERT_TRUE(scheduler_.Add(1, Rooted(17, 1)).ok());
  RunAll();
  EXPECT_EQ(pool_.kept(), 4);
  SequenceRequest large = Prompt(28, 4);
  large.priority = 1;
  ASSERT_TRUE(scheduler_.Add(2, large).ok());
  ASSERT_TRUE(scheduler_.Add(3, Rooted(17, 1)).ok());
  Run();  // seven of ten blocks are the second's: one that was kept is gone
  EXPECT_EQ(pool_.kept(), 3);
  EXPECT_FALSE(scheduler_.Find(3)->running);
  scheduler_.Cancel(2, absl::CancelledError("left"));
  EXPECT_EQ(Run().size(), 5u) << "the fourth block anew, and the last token";
  EXPECT_EQ(Ends().size(), 3u);
  scheduler_.Forget();
  ASSERT_TRUE(scheduler_.Add(4, Rooted(17, 1)).ok());
  EXPECT_EQ(Run().size(), 8u);
}

TEST_F(SharingTest, WhatLedToAnErrorIsComputedAnew) {
  ASSERT_TRUE(scheduler_.Add(1, Rooted(6)).ok());
  const Step step = scheduler_.Next(now_, times_);
  scheduler_.Done(step, {{.id = 1, .status = absl::DataLossError("NaN")}});
  EXPECT_EQ(pool_.kept(), 0);
  ASSERT_TRUE(scheduler_.Add(2, Rooted(6)).ok());
  EXPECT_EQ(Run().size(), 6u);
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

}  // namespace
}  // namespace athanor
