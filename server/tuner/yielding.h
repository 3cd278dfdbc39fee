// Work that gives way to requests: while there are any it has low priority, so that whoever serves
// takes the core almost at once.
//
//   YieldingWork yielding(&traffic);
//   yielding.Run([&] { compile(); });
//
// A process may lower its priority and, without privileges, never raise it again. So the work is
// done by a thread of its own, and the priority ends with the thread; processes forked by it keep
// it. Without requests nothing is lowered: an idle server's search is no slower for it.
//
// Rejected: SCHED_IDLE. On a machine that is busy with other things as well, it leaves a thread
// next to nothing: compiling a kernel would run into its time limit.
#ifndef ATHANOR_SERVER_TUNER_YIELDING_H_
#define ATHANOR_SERVER_TUNER_YIELDING_H_

#include "absl/functional/function_ref.h"
#include "server/traffic.h"

namespace athanor {

// Used by one thread.
class YieldingWork {
 public:
  // `traffic` outlives it.
  explicit YieldingWork(const TrafficReader* traffic) : traffic_(*traffic) {}

  // Returns when `work` has. It begins at low priority if a request ran since the last call,
  // or is running; else that comes as soon as one does. This thread only waits meanwhile, so the
  // process may be forked as if it had one thread.
  void Run(absl::FunctionRef<void()> work);

 private:
  const TrafficReader& traffic_;
  TrafficState seen_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_YIELDING_H_
