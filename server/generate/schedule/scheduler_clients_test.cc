// Tests who waits for whom: priorities, clients, shares.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/generate/schedule/scheduler_testing.h"

namespace athanor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

SequenceRequest From(const char* client, SequenceRequest request) {
  request.client = client;
  return request;
}

class ClientsTest : public SchedulerTest {
 protected:
  // Runs a step; returns its sequences.
  std::vector<SequenceId> Step(Scheduler* scheduler) {
    const athanor::Step step = scheduler->Next(now_, times_);
    scheduler->Done(step, Tell(step, 7));
    return step.tables;
  }
  // Returns one with 4 places and room for all.
  Scheduler Wide(SchedulerOptions options = {}) {
    options.max_batched_tokens = 64;
    options.max_sequences = 4;
    options.block = 4;
    return Scheduler(options, &large_);
  }

  BlockPool large_{1000};
};

TEST_F(ClientsTest, LowerPrioritiesGoFirst) {
  for (int id = 1; id < 5; ++id) {
    SequenceRequest request = Prompt(2, 1);
    request.priority = id == 3 ? 1 : id == 2 ? 101 : 100;
    ASSERT_TRUE(scheduler_.Add(id, request).ok());
  }
  EXPECT_THAT(Step(&scheduler_), ElementsAre(3, 1, 4));
  EXPECT_THAT(Step(&scheduler_), ElementsAre(2));
}

TEST_F(ClientsTest, AmongClientsThoseWithFewerTokensGoFirst) {
  SchedulerOptions options = kSmall;
  options.max_sequences = 1;
  options.max_waiting = 100;
  Scheduler scheduler(options, &pool_);
  for (int id = 1; id < 5; ++id) ASSERT_TRUE(scheduler.Add(id, From("ann", Prompt(4, 1))).ok());
  ASSERT_TRUE(scheduler.Add(5, From("bob", Prompt(6, 1))).ok());
  ASSERT_TRUE(scheduler.Add(6, From("bob", Prompt(6, 1))).ok());
  std::vector<SequenceId> order;
  for (int i = 0; i < 6; ++i) order.push_back(Step(&scheduler).at(0));
  EXPECT_THAT(order, ElementsAre(1, 5, 2, 6, 3, 4));
}

TEST_F(ClientsTest, PlacesOfOneStepAreSharedToo) {
  Scheduler scheduler = Wide();
  for (int id = 1; id < 7; ++id) ASSERT_TRUE(scheduler.Add(id, From("ann", Prompt(4, 9))).ok());
  for (int id = 7; id < 9; ++id) ASSERT_TRUE(scheduler.Add(id, From("bob", Prompt(4, 9))).ok());
  EXPECT_THAT(Step(&scheduler), UnorderedElementsAre(1, 2, 7, 8));
}

TEST_F(ClientsTest, WhoHasMoreThanItsShareGivesUpItsYoungestOneAStep) {
  Scheduler scheduler = Wide();
  for (int id = 1; id < 5; ++id) ASSERT_TRUE(scheduler.Add(id, From("ann", Prompt(4, 99))).ok());
  for (int i = 0; i < 10; ++i) Step(&scheduler);
  for (int id = 5; id < 8; ++id) ASSERT_TRUE(scheduler.Add(id, From("bob", Prompt(4, 99))).ok());
  EXPECT_THAT(Step(&scheduler), ElementsAre(1, 2, 3, 4)) << "they have gained too little";
  for (int i = 0; i < 5; ++i) Step(&scheduler);
  EXPECT_THAT(Step(&scheduler), ElementsAre(5)) << "the prompt alone: the others are put off";
  EXPECT_FALSE(scheduler.Find(4)->running);
  EXPECT_TRUE(scheduler.Find(3)->running);
  EXPECT_THAT(Step(&scheduler), ElementsAre(1, 2, 5, 6)) << "each has its share: nobody is put off";
  EXPECT_FALSE(scheduler.Find(3)->running);
  EXPECT_THAT(Step(&scheduler), ElementsAre(1, 2, 5, 6)) << "bob has his share";
  EXPECT_EQ(scheduler.counts().preemptions, 2);
}

TEST_F(ClientsTest, WhatHasNotBegunGivesWayAtOnce) {
  Scheduler scheduler = Wide();
  for (int id = 1; id < 5; ++id) ASSERT_TRUE(scheduler.Add(id, From("ann", Prompt(64, 9))).ok());
  EXPECT_THAT(Step(&scheduler), ElementsAre(1));
  ASSERT_TRUE(scheduler.Add(5, From("bob", Prompt(4, 9))).ok());
  EXPECT_THAT(Step(&scheduler), ElementsAre(5));
  EXPECT_FALSE(scheduler.Find(4)->running);
}

TEST_F(ClientsTest, NobodyGivesWayToALaterPriorityOrBeyondTheMostPreemptions) {
  for (const bool urgent : {false, true}) {
    SchedulerOptions options;
    options.max_preemptions = urgent ? 8 : 0;
    Scheduler scheduler = Wide(options);
    for (int id = 1; id < 5; ++id) {
      SequenceRequest request = From("ann", Prompt(4, 99));
      if (urgent) request.priority = 1;
      ASSERT_TRUE(scheduler.Add(id, request).ok());
    }
    for (int i = 0; i < 20; ++i) Step(&scheduler);
    ASSERT_TRUE(scheduler.Add(5, From("bob", Prompt(4, 99))).ok());
    EXPECT_THAT(Step(&scheduler), ElementsAre(1, 2, 3, 4));
    for (int id = 1; id < 6; ++id) scheduler.Cancel(id, absl::CancelledError("left"));
  }
}

TEST_F(ClientsTest, RowsOfWhoIsAboveItsShareTakeTurnsWithinTheTarget) {
  SchedulerOptions options;
  options.itl_target = milliseconds(10);
  Scheduler scheduler = Wide(options);
  times_.Learn(1, milliseconds(5));
  times_.Learn(16, milliseconds(80));
  for (int id = 1; id < 4; ++id) ASSERT_TRUE(scheduler.Add(id, From("ann", Prompt(1, 99))).ok());
  Step(&scheduler);
  EXPECT_THAT(Step(&scheduler), ElementsAre(1, 2, 3)) << "a client alone has all rows";
  ASSERT_TRUE(scheduler.Add(4, From("bob", Prompt(1, 99))).ok());
  EXPECT_THAT(Step(&scheduler), ElementsAre(4));
  std::map<SequenceId, int> rows;
  for (int i = 0; i < 9; ++i) {
    const std::vector<SequenceId> step = Step(&scheduler);
    ASSERT_EQ(step.size(), 2u) << "10 ms are two rows";
    ASSERT_EQ(step[0], 4) << "within its share";
    ++rows[step[1]];
  }
  EXPECT_THAT(rows, ElementsAre(Pair(1, 3), Pair(2, 3), Pair(3, 3)));
}

TEST_F(ClientsTest, OfAClientThoseThatShareMostGoFirstButNotForEver) {
  SchedulerOptions options = kSmall;
  options.max_sequences = 1;
  options.max_waiting = 100;
  Scheduler scheduler(options, &large_);
  ASSERT_TRUE(scheduler.Add(1, Rooted(9, 1)).ok());
  Step(&scheduler);
  Step(&scheduler);
  ASSERT_TRUE(scheduler.Add(2, Rooted(9, 1, "other")).ok());
  std::vector<SequenceId> order;
  for (int id = 3; id < 14; ++id) {
    ASSERT_TRUE(scheduler.Add(id, Rooted(9, 1)).ok());
    while (scheduler.Find(id) != nullptr && order.size() < 20) {
      const std::vector<SequenceId> step = Step(&scheduler);
      if (order.empty() || order.back() != step.at(0)) order.push_back(step[0]);
    }
  }
  EXPECT_THAT(order, ElementsAre(3, 4, 5, 6, 7, 8, 9, 10, 2, 11, 12, 13));
}

// A machine whose steps take 18 ms and 1.2 ms a row, with closed loops of clients.
class Machine {
 public:
  struct Load {
    std::string client;
    int64_t streams = 1, prompt = 128, tokens = 64;
  };
  struct Seen {
    double first_ms = 0, gap_ms = 0;  // means
    int64_t tokens = 0;
  };
  // Runs for so long; returns what each client saw.
  static std::map<std::string, Seen> Run(const std::vector<Load>& loads, milliseconds target) {
    SchedulerOptions options;
    options.itl_target = target;
    BlockPool pool(8000);
    Scheduler scheduler(options, &pool);
    StepTimes times;
    struct Stream {
      const Load* load = nullptr;
      SequenceTime came, last;
      int64_t said = 0;
    };
    std::map<SequenceId, Stream> streams;
    struct Sums {
      double first = 0, gaps = 0;
      int64_t firsts = 0, tokens = 0;
    };
    std::map<std::string, Sums> sums;
    SequenceTime now = kNow;
    SequenceId id = 0;
    const auto add = [&](const Load& load) {
      ++id;
      SequenceRequest request{.prompt = std::vector<int32_t>(load.prompt, 1),
                              .max_tokens = load.tokens};
      request.client = load.client;
      EXPECT_TRUE(scheduler.Add(id, request).ok());
      streams[id] = {.load = &load, .came = now};
    };
    for (const Load& load : loads) {
      for (int64_t i = 0; i < load.streams; ++i) add(load);
    }
    const auto milliseconds_of = [](SequenceTime::duration time) {
      return std::chrono::duration<double, std::milli>(time).count();
    };
    while (now < kNow + std::chrono::minutes(1)) {
      const Step step = scheduler.Next(now, times);
      const auto took = microseconds(18'000 + 1200 * static_cast<int64_t>(step.rows.size()));
      now += took;
      times.Learn(static_cast<int64_t>(step.rows.size()), took);
      std::vector<Told> told;
      for (const Row& row : step.rows) {
        if (!row.wanted) continue;
        told.push_back({.id = step.tables[row.sequence], .token = 7});
        Stream& stream = streams[told.back().id];
        Sums& sum = sums[stream.load->client];
        if (stream.said++ == 0) {
          sum.first += milliseconds_of(now - stream.came);
          ++sum.firsts;
        } else {
          sum.gaps += milliseconds_of(now - stream.last);
        }
        stream.last = now;
        ++sum.tokens;
      }
      scheduler.Done(step, told);
      for (const Ended& ended : scheduler.TakeEnded()) {
        const Load& load = *streams[ended.id].load;
        streams.erase(ended.id);
        add(load);
      }
    }
    std::map<std::string, Seen> seen;
    for (const auto& [client, sum] : sums) {
      seen[client] = {.first_ms = sum.first / static_cast<double>(sum.firsts),
                      .gap_ms = sum.gaps / static_cast<double>(sum.tokens - sum.firsts),
                      .tokens = sum.tokens};
    }
    return seen;
  }
};

TEST(SharesTest, AGreedyClientDelaysAModestOneAtMostTwofold) {
  for (const int64_t greedy_prompt : {32, 128, 1000}) {
    const Machine::Load modest{.client = "modest"};
    const Machine::Load greedy{
        .client = "greedy", .streams = 64, .prompt = greedy_prompt, .tokens = 200};
    const Machine::Seen alone = Machine::Run({modest}, milliseconds(35))["modest"];
    std::map<std::string, Machine::Seen> both = Machine::Run({greedy, modest}, milliseconds(35));
    const Machine::Seen beside = both["modest"];
    EXPECT_GT(both["greedy"].tokens, beside.tokens) << "and is not starved by it";
    EXPECT_LT(beside.first_ms, 2 * alone.first_ms) << greedy_prompt;
    EXPECT_LT(beside.gap_ms, 2 * alone.gap_ms) << greedy_prompt;
  }
}

}  // namespace
}  // namespace athanor
