// Runs work that yields to requests: while requests come it has low priority, so that serving
// threads get the core almost at once.
//
//   YieldingWork yielding(&traffic, /*cpus=*/{0, 1});
//   yielding.Run(/*threads=*/1, [&] { compile(); });
//
// A process may lower its priority but, without privileges, never raise it again. So the work runs
// on a thread of its own, and the priority ends with the thread; processes forked by it keep it.
// Without requests nothing is lowered, so the search of an idle server is not slower.
//
// Low means SCHED_IDLE: a waking thread takes the core from it at once, and the scheduler places
// threads as if the core were idle. With niceness alone (10), 7 times as many server threads waited
// longer than a millisecond for a search's thread, and with the shortest time slice 4 times as
// many, because a running thread keeps its slice. Even so a waiting thread, the client's or the
// server's, is sometimes passed over until the next clock tick (cpu_ticks.h), on any CPU the work
// uses. So the work also keeps to as many CPUs as it has threads, always the same, which get ticks
// of their own.
//
// Measured p99 of requests beside a search over p99 alone, with the digits and MLP models of
// tests/bench/neighbour.py: without both, kept to one CPU, and with ticks every 100 microseconds.
// At 200 requests a second: 5.5, 1.1, 1.1. One request after the other: 2.7, 2.4, 1.0.
//
// If the machine is also busy with other programs, SCHED_IDLE gets almost no time, and compiling a
// kernel would exceed its time limit. So after work was starved, later work is nice instead for a
// minute.
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
  // `traffic` must outlive it. While it yields, work of n threads keeps to the first n of `cpus`;
  // if that is empty, it may use any. A next request is expected for `recent` after the last.
  YieldingWork(const TrafficReader* traffic, std::vector<int> cpus,
               std::chrono::milliseconds recent = std::chrono::seconds(2))
      : traffic_(*traffic), cpus_(std::move(cpus)), recent_(recent) {}

  // Runs `work`, which uses at most `threads` threads at once, and returns when it is done. It
  // yields from the start if a request is running, ran recently, or ran since the last call;
  // otherwise as soon as a request runs. The calling thread only waits, so the process may be
  // forked as if it had one thread.
  void Run(int threads, absl::FunctionRef<void()> work);
  // Reports whether work that begins now would not yield from the start.
  bool Quiet();

 private:
  using Clock = std::chrono::steady_clock;

  // Reports whether requests began or ended since the last call.
  bool Look();

  const TrafficReader& traffic_;
  const std::vector<int> cpus_;
  const std::chrono::milliseconds recent_;
  TrafficState seen_;
  Clock::time_point last_{};  // when a request was seen last
  Clock::time_point starved_until_{};
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_YIELDING_H_
