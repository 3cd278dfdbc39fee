// Sends the calls of one run, takes their answers and keeps a record of each.
//
//   Sender sender({backend, timeout, seed, first_number}, start, &progress);
//   Slot* slot = sender.NewSlot();
//   sender.Send(slot, due_ns, phase, [&](Slot* slot, bool answered) { ... });
//   LoadResult result = sender.Collect();   // once nothing is out
#ifndef ATHANOR_CLIENTS_BENCH_LOAD_SENDER_H_
#define ATHANOR_CLIENTS_BENCH_LOAD_SENDER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "clients/bench/load/call.h"
#include "clients/bench/load/load.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor::bench {

// State of one call at a time, and the records of all calls that used it. Owned by the caller of
// NewSlot until Send, then by the call until its callback.
struct Slot {
  int index = 0;
  CallRecord record;
  std::unique_ptr<Call> call;
  std::vector<CallRecord> records;
  std::string
      plan_id;  // the latest call's; a new plan's number is only looked up when this changes
  int32_t plan = -1;
};

// Thread-safe.
class Sender {
 public:
  struct Target {
    Backend* backend;
    absl::Duration timeout;
    uint64_t seed;         // of the requests
    int64_t first_number;  // of the calls
  };
  using Done = std::function<void(Slot* slot, bool answered)>;

  Sender(const Target& target, Clock::time_point start, Progress* progress)
      : target_(target), start_(start), progress_(*progress), next_number_(target.first_number) {}
  // Waits until every thread that began a call has left its backend; a call may be over before
  // that. REQUIRES: no call is out.
  ~Sender();

  // Returns a slot that lives as long as this sender. Must not run concurrently with Collect.
  Slot* NewSlot();
  // Begins a call. `done` runs on a thread of the backend and must not block. Returns false, and
  // sends nothing, if the call's time is already over.
  [[nodiscard]] bool Send(Slot* slot, int64_t due_ns, int phase, const Done& done);
  // Counts a call that is not sent, so that those behind it keep their numbers.
  void Skip() { ++next_number_; }
  // Begins a call that is due now, so never too late.
  void SendNow(Slot* slot, int phase, const Done& done);

  int64_t Now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }
  Clock::time_point TimeOf(int64_t ns) const { return start_ + std::chrono::nanoseconds(ns); }

  // Returns all records by due time. REQUIRES: no call is out.
  LoadResult Collect();

 private:
  void Begin(Slot* slot, int64_t due_ns, int phase, const Done& done);
  void Record(Slot* slot, const absl::Status& status);
  int32_t PlanNumber(const std::string& plan_id);

  const Target target_;
  const Clock::time_point start_;
  Progress& progress_;
  std::atomic<int64_t> next_number_;
  std::atomic<int> outstanding_ = 0, most_outstanding_ = 0;
  std::atomic<int> beginning_ = 0;  // threads that are inside a backend
  Mutex mu_;
  std::deque<Slot> slots_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> plan_ids_ ABSL_GUARDED_BY(mu_);
  std::map<int32_t, std::string> messages_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_SENDER_H_
