// The queue of requests that wait to be run. It is bounded per model, ordered by priority, fair
// between models and between the clients of a model, and joins requests into one call where their
// version allows it. Runner threads pull from it.
//
//   if (absl::Status s = queue.Admit(ticket); !s.ok()) return s;   // full, or too long a wait
//   queue.Push(request);                                           // shared with the queue
//   while (std::optional<Batch> batch = queue.Next()) {            // a runner
//     RunBatch(*std::move(batch), queue, staging);                 // ends with queue.Ran(...)
//   }
//
// Lower priority numbers go first. Among equal ones, the model that has had the least run time goes
// first, and within it the client that has: start-time fair queueing over predicted microseconds
// (P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queueing", SIGCOMM 1996). A model without a free
// context is skipped. Refusals follow the same order: a client's admission depends on the requests
// that would run before its own, not on those of others that would run after. Thread-safe.
#ifndef ATHANOR_SERVER_BATCH_REQUEST_QUEUE_H_
#define ATHANOR_SERVER_BATCH_REQUEST_QUEUE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/batch/admission.h"
#include "server/batch/queued_request.h"
#include "server/batch/run_paces.h"
#include "server/plans/served_plan.h"

namespace athanor {

class RequestQueue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RequestQueue(const QueueOptions& options) : options_(options), admission_(options) {}
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Decides whether a request may wait. Returns RESOURCE_EXHAUSTED, with the numbers and when to
  // come again by the measured pace of runs (server/base/retry_after.h), if the model's queue is
  // full and no client has more requests in it, if the client has its share of it, or if the
  // predicted wait exceeds `max_delay`. If the queue is full, refuses the newest request of the
  // client with the most, for a client that has fewer.
  absl::Status Admit(const Ticket& ticket);
  // Returns a context with a turn on the device if the request need not wait: no request of its
  // model waits, a context is free, and no others there go first; if it could share a call, also
  // its plan does not run, and the model's latest call was not shared. Otherwise returns an empty
  // lease.
  ContextPool::Lease TryNow(const Ticket& ticket, const ServedPlan& plan);
  // Waits for a context of `plan`, which must have at least one. For a runner that holds none.
  ContextPool::Lease AwaitContext(const ServedPlan& plan);
  void Push(std::shared_ptr<QueuedRequest> request);
  // Removes a request that was pushed and then taken by its caller, if it is still queued.
  void Remove(const QueuedRequest& request);
  // Returns the next call for a runner; waits for one. Returns nullopt once the queue is stopped
  // and empty.
  std::optional<Batch> Next();
  // Reports that a context of the model is free again, and that a call of so many requests,
  // predicted to take `predicted_us`, took `took`: later predictions are scaled by the ratio. If
  // `predicted_us` is 0, the call does not change predictions.
  void Ran(const std::string& model, int64_t predicted_us, Clock::duration took,
           size_t requests = 1);
  // Drops what Ran has learnt of a deleted version, by its Describe().
  void Forget(const std::string& model);
  void Stop();

  struct Waiting {
    std::string model;
    int64_t requests = 0;
    int64_t predicted_us = 0;  // predicted time of their runs
  };
  std::vector<Waiting> waiting() const;

 private:
  struct Entry {
    std::shared_ptr<QueuedRequest> request;
    Clock::time_point pushed;
    Clock::time_point due;  // the time after which it no longer waits for others to join
    // Since when a runner was free to run it while it waited for others to join.
    Clock::time_point held = Clock::time_point::max();
  };
  // Virtual microseconds at which clients or models without waiting requests may resume.
  struct Ends {
    // Returns the start for a client or model that comes back.
    double StartOf(const std::string& name, double now) const;

    std::map<std::string, double> by_name;
  };
  struct Line {  // requests of one client
    std::list<Entry> entries;
    double start = 0;  // virtual microseconds
    int64_t predicted_us = 0;
  };
  struct Group {  // requests that may share a call
    int64_t requests = 0, rows = 0;
  };
  struct Lane {                         // requests of one model at one priority
    std::map<std::string, Line> lines;  // by client; none is empty
    Ends ends;                          // of clients
    double start = 0, now = 0;          // virtual time among lanes; virtual time within this lane
    int64_t predicted_us = 0;
    absl::flat_hash_map<std::string, Group> groups;  // groups of the waiting requests
  };
  using Taken = std::vector<Entry>;     // removed from the queue by the runner that will run them
  struct Level {                        // requests of one priority
    std::map<std::string, Lane> lanes;  // by model; none is empty
    Ends ends;                          // of models
    double now = 0;
  };
  // Returns the runs before a ticket's own.
  Admission::Ahead AheadOf(const Ticket& ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the part of AheadOf within the lane of the ticket's model and priority.
  Admission::Ahead AheadIn(const Lane& lane, const Ticket& ticket) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes and returns the client's newest request at its least urgent priority. REQUIRES: the
  // client has a request in the queue.
  std::shared_ptr<QueuedRequest> EraseNewest(const std::string& model, const std::string& client)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the next call that can run at `now`; otherwise lowers `*again` to when to try again.
  std::optional<Batch> Choose(Clock::time_point now, Clock::time_point* again)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Batch> ChooseFrom(Level& level, Lane& lane, Clock::time_point now,
                                  Clock::time_point* again) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns until when a request that is pushed at `now` waits for others to join.
  Clock::time_point DueOf(const Ticket& ticket, Clock::time_point now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reports whether the entry still waits for others to join.
  static bool Waits(const Lane& lane, const Entry& entry, Clock::time_point now);
  // Upper bound on the rows of the ticket's call if it were taken now.
  static int64_t RowsOf(const Lane& lane, const Ticket& ticket);
  // Puts the plan of a call of `rows` rows, with a context, into `batch`. Returns false if no
  // context is free.
  bool ChoosePlan(const QueuedRequest& request, int64_t rows, Batch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct Place {
    Line* line;
    std::list<Entry>::iterator entry;
  };
  // Returns the requests that share a call with `first`, `first` included at the front: requests of
  // its group, as many rows as fit, least-served clients first.
  std::vector<Place> CompanyOf(Lane& lane, const Place& first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Fill(const Taken& taken, Clock::time_point now, Batch* batch);
  // Moves an entry from the queue to `taken`. Returns false if the request has been answered
  // already.
  bool TakeEntry(Lane& lane, Line& line, std::list<Entry>::iterator entry, Taken* taken)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(Lane& lane, Line& line, std::list<Entry>::iterator entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes empty lines, lanes and levels, and remembers in Ends where they may resume.
  void DropEmpty() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const QueueOptions options_;
  mutable Mutex mu_;
  CondVar changed_, freed_;  // `freed_`: a context, for runners that wait in AwaitContext
  std::map<int64_t, Level> levels_ ABSL_GUARDED_BY(mu_);  // by priority; none is empty
  Admission admission_ ABSL_GUARDED_BY(mu_);
  RunPaces paces_ ABSL_GUARDED_BY(mu_);
  // Objects that Choose dropped; they are destroyed without the lock.
  struct Gone {
    std::vector<std::shared_ptr<QueuedRequest>> requests;
    std::vector<std::shared_ptr<const ServedPlan>> plans;
    bool empty() const { return requests.empty() && plans.empty(); }
  };
  Gone gone_ ABSL_GUARDED_BY(mu_);
  std::atomic<int64_t> count_{0};    // number of waiting requests, to be read without the lock
  std::atomic<int64_t> changes_{0};  // number of pushed requests and finished runs
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_REQUEST_QUEUE_H_
