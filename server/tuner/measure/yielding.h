// Work that gives way to requests: while there are any it has low priority, so that whoever serves
// takes the core almost at once.
//
//   YieldingWork yielding(&traffic, /*cpus=*/{0, 1});
//   yielding.Run(/*threads=*/1, [&] { compile(); });
//
// A process may lower its priority and, without privileges, never raise it again. So the work is
// done by a thread of its own, and the priority ends with the thread; processes forked by it keep
// it. Without requests nothing is lowered: an idle server's search is no slower for it.
//
// Low is SCHED_IDLE: a waking thread takes the core from it at once, and the scheduler places it as
// if the core were idle. With niceness alone (10), 7 times as many threads of the server waited
// longer than a millisecond for a search's, with the shortest time slice 4 times as many, because a
// running thread is left its slice. Even so a waiting thread is sometimes passed over until the
// next tick of the clock (cpu_ticks.h), the client's as well as the server's, on whichever CPU the
// work is. So it also keeps to as many CPUs as it has threads, always the same, which have ticks of
// their own. Requests at 200 a second and one after the other, p99 beside a search over alone,
// digits and MLP of tests/bench/neighbour.py, before, kept to one CPU, and with ticks every 100
// microseconds: 5.5, 1.1, 1.1 and 2.7, 2.4, 1.0 one after the other. But where a machine is busy
// with other things too, SCHED_IDLE gets next to nothing, and compiling a kernel would run into its
// time limit: work that is starved makes what follows, for a minute, nice instead.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_YIELDING_H_
#define ATHANOR_SERVER_TUNER_MEASURE_YIELDING_H_

#include <chrono>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/base/traffic.h"

namespace athanor {

// Used by one thread.
class YieldingWork {
 public:
  // `traffic` outlives it. Work of n threads keeps to the first n of `cpus` while it gives way;
  // none: it goes where it likes. The next request is expected for `recent` after the last.
  YieldingWork(const TrafficReader* traffic, std::vector<int> cpus,
               std::chrono::milliseconds recent = std::chrono::seconds(2))
      : traffic_(*traffic), cpus_(std::move(cpus)), recent_(recent) {}

  // Returns when `work` has, which runs `threads` at once at most. It gives way from the start if a
  // request is running, ran recently or since the last call; else as soon as one runs. This thread
  // only waits meanwhile, so the process may be forked as if it had one thread.
  void Run(int threads, absl::FunctionRef<void()> work);

 private:
  using Clock = std::chrono::steady_clock;

  // Whether requests came or went since the last look.
  bool Look();

  const TrafficReader& traffic_;
  const std::vector<int> cpus_;
  const std::chrono::milliseconds recent_;
  TrafficState seen_;
  Clock::time_point last_{};  // a request was seen
  Clock::time_point starved_until_{};
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_YIELDING_H_
