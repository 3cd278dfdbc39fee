// For tests of the scheduler: a small one over a pool of 10 blocks of 4, whose steps are told
// tokens by hand.
#ifndef ATHANOR_SERVER_GENERATE_SCHEDULE_SCHEDULER_TESTING_H_
#define ATHANOR_SERVER_GENERATE_SCHEDULE_SCHEDULER_TESTING_H_

#include <chrono>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/generate/schedule/block_key.h"
#include "server/generate/schedule/block_pool.h"
#include "server/generate/schedule/scheduler.h"
#include "server/generate/schedule/step_times.h"

namespace athanor {

inline const SequenceTime kNow = SequenceTime(std::chrono::hours(1));
inline constexpr SchedulerOptions kSmall{
    .max_batched_tokens = 8, .max_sequences = 3, .max_model_len = 32, .max_waiting = 4, .block = 4};

inline SequenceRequest Prompt(int tokens, int64_t max_tokens = 4) {
  SequenceRequest request{.max_tokens = max_tokens};
  for (int i = 0; i < tokens; ++i) request.prompt.push_back(100 + i);
  return request;
}

// Makes one that shares blocks.
inline SequenceRequest Rooted(int tokens, int64_t max_tokens = 4, const char* salt = "") {
  SequenceRequest request = Prompt(tokens, max_tokens);
  request.root = RootKey("signature", salt);
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
  // Runs steps until all have ended; returns the number of their rows.
  int64_t RunAll() {
    int64_t rows = 0;
    while (scheduler_.running() + scheduler_.waiting() > 0) {
      rows += static_cast<int64_t>(Run().size());
    }
    return rows;
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

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SCHEDULE_SCHEDULER_TESTING_H_
