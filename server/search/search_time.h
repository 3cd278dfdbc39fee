// A search's time by the clock on the wall: from its first step on, whatever it waits for.
//
//   SearchTime time;
//   time.Begin(std::chrono::seconds(5), now);
//   search->Until(time.end());
//   if (time.MustFinish(now, of_a_plan)) search->Finish();   // the best plan is measured whole
//   if (time.Over(now)) ...
//
// Plain data.
#ifndef ATHANOR_SERVER_SEARCH_SEARCH_TIME_H_
#define ATHANOR_SERVER_SEARCH_SEARCH_TIME_H_

#include <chrono>

#include "proto/athanor/v1/search.pb.h"

namespace athanor {

class SearchTime {
 public:
  using Clock = std::chrono::steady_clock;

  // 0: without an end.
  void Begin(Clock::duration budget, Clock::time_point now);
  bool begun() const { return begun_; }
  Clock::time_point end() const { return end_; }  // the clock's last where there is none
  bool Over(Clock::time_point now) const { return now >= end_; }
  // None before it began.
  Clock::duration Used(Clock::time_point now) const;
  // Whether what is left is what measuring and verifying a plan may need: a quarter of all, but at
  // least 2.5 s and at most 10 s, or a quarter more than a plan has taken; never more than half.
  bool MustFinish(Clock::time_point now, Clock::duration of_a_plan) const;

 private:
  bool begun_ = false;
  Clock::time_point start_{};
  Clock::time_point end_ = Clock::time_point::max();
};

// What a plan has taken so far to be measured whole and verified; 0: none was.
SearchTime::Clock::duration TimeOfAPlan(const v1::SearchProgress& progress);

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_SEARCH_TIME_H_
