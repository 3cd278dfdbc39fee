// Learns how long an engine's turns take by the number of rows that they compute.
//
//   StepTimes times;
//   times.Learn(/*rows=*/24, took);               // a whole turn: waits and sampling included
//   int64_t rows = times.RowsWithin(milliseconds(50), /*most=*/512);
//
// Keeps an average of rows and of time for turns of 1, 2 to 3, 4 to 7, ... rows, linear between
// them, and from no time for no rows. Pure; not thread-safe.
#ifndef ATHANOR_SERVER_GENERATE_SCHEDULE_STEP_TIMES_H_
#define ATHANOR_SERVER_GENERATE_SCHEDULE_STEP_TIMES_H_

#include <array>
#include <chrono>
#include <cstdint>

namespace athanor {

class StepTimes {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // A turn counts as at most 4 times as long as expected: one that waited for a plan changes
  // little. Averages of fewer rows are lowered to the new one: what was slow once does not stay if
  // its rows do not come again. REQUIRES: rows >= 1
  void Learn(int64_t rows, Duration took);
  // Returns the time that a turn of so many rows is expected to take, which is never less for more
  // rows. Zero if nothing is learned yet.
  Duration Of(int64_t rows) const;
  // Returns the most rows, up to `most`, for which Of is at most `time`; `most` if nothing is
  // learned yet. REQUIRES: most >= 0
  int64_t RowsWithin(Duration time, int64_t most) const;

 private:
  struct Average {
    double rows = 0, seconds = 0;
    double weight = 0;  // of the turns in it; 0: none
  };
  double SecondsOf(double rows) const;

  std::array<Average, 64> averages_;  // of turns of 2^i rows up to twice as many
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SCHEDULE_STEP_TIMES_H_
