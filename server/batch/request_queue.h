// Requests that wait for a run: bounded per model, by priority, fair between models and between the
// clients of one, coalesced into one call where their version allows it. Runner threads pull.
//
//   if (absl::Status s = queue.Admit(ticket); !s.ok()) return s;   // too many, or too long a wait
//   queue.Push(request);                                           // a runner's, or its own again
//   while (std::optional<Batch> batch = queue.Next()) {            // a runner
//     RunBatch(*std::move(batch), queue, staging);                 // ends with queue.Ran(...)
//   }
//
// Lower priority numbers go first. Among equal ones the model that has had least of the machine
// goes first, and within it the client that has: start-time fair queueing over predicted
// microseconds (P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queueing", SIGCOMM 1996). A model none
// of whose contexts is free is passed over. Refusals follow the same order: a client answers for
// its own requests, not for those of others that go after them. Thread-safe.
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
#include "server/batch/queued_request.h"
#include "server/plans/served_plan.h"

namespace athanor {

struct QueueOptions {
  int64_t max_queue = 256;                   // requests of one model that wait
  int64_t max_client_percent = 50;           // of it, those of one client where there are others
  std::chrono::microseconds max_delay{0};    // predicted wait of what is admitted; 0: any
  std::chrono::microseconds batch_delay{0};  // that a request waits for company
  int threads = 1;                           // that run what is queued
};

class RequestQueue {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr int kMostRuns = 4;

  explicit RequestQueue(const QueueOptions& options) : options_(options) {}
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // RESOURCE_EXHAUSTED, with the numbers: the model's queue is full and no client has more of it,
  // the client has its share of it, or its wait is predicted to be longer than `max_delay`. In a
  // full queue the newest request of the client that has most is refused for one of who has fewer.
  absl::Status Admit(const Ticket& ticket);
  // A context at once, for a request that need not wait: none of its model does, and one is free.
  ContextPool::Lease TryNow(const Ticket& ticket, const ServedPlan& plan);
  // A context for a runner that has none, of a plan that has at least one: waits for it.
  ContextPool::Lease AwaitContext(const ServedPlan& plan);
  void Push(std::shared_ptr<QueuedRequest> request);
  // For who has taken a request that was pushed: it leaves the queue, if it is there still.
  void Remove(const QueuedRequest& request);
  // The next call, for a runner; waits for one. None: stopped, and nothing waits any more.
  std::optional<Batch> Next();
  // A context of the model is free again. Runs that were predicted to take so long took `took`:
  // what later predictions are multiplied by. 0 predicted: they say nothing of that.
  void Ran(const std::string& model, int64_t predicted_us, Clock::duration took);
  // The model is deleted: what Ran has learnt of it goes.
  void Forget(const std::string& model);
  void Stop();

  struct Waiting {
    std::string model;
    int64_t requests = 0;
    int64_t predicted_us = 0;  // of their runs
  };
  std::vector<Waiting> waiting() const;

 private:
  struct Entry {
    std::shared_ptr<QueuedRequest> request;
    Clock::time_point pushed;
    Clock::time_point due;  // from when on it waits for company no more
    // Since when a runner would have run it, were it not for that.
    Clock::time_point held = Clock::time_point::max();
  };
  // Virtual microseconds at which those that have nothing waiting may go on.
  using Ends = std::map<std::string, double>;
  struct Line {  // of one client
    std::list<Entry> entries;
    double start = 0;  // virtual microseconds
    int64_t predicted_us = 0;
  };
  struct Group {  // of requests that may share a call
    int64_t requests = 0, rows = 0;
  };
  struct Lane {                         // of one model, at one priority
    std::map<std::string, Line> lines;  // none is empty
    Ends ends;                          // of clients
    double start = 0, now = 0;          // among lanes; within it
    int64_t predicted_us = 0;
    absl::flat_hash_map<std::string, Group> groups;  // of what waits
  };
  using Taken = std::vector<Entry>;     // out of the queue, by who is to run them
  struct Level {                        // of one priority
    std::map<std::string, Lane> lanes;  // none is empty
    Ends ends;                          // of models
    double now = 0;
  };
  struct Pace {        // of one model
    double ratio = 1;  // what runs took over what was predicted
    int64_t runs = 0;
  };
  struct Held {  // of one model, at all priorities
    int64_t requests = 0;
    absl::flat_hash_map<std::string, int64_t> by_client;
  };

  // Microseconds of runs that go before a ticket's, on one thread.
  struct Ahead {
    double all = 0;
    double apart = 0;  // were there no others' runs between those of its client
  };
  Ahead AheadOf(const Ticket& ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // In the lane of its model and priority.
  Ahead AheadIn(const Lane& lane, const Ticket& ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status IsSoon(const Ticket& ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `*evicted` is what left the queue for it, if anything has.
  absl::Status MakeRoom(const Ticket& ticket, std::shared_ptr<QueuedRequest>* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The client's newest of the least urgent, out of the queue. REQUIRES: it has one there.
  std::shared_ptr<QueuedRequest> EraseNewest(const std::string& model, const std::string& client)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next that can run at `now`; else `*again` is lowered to when to look again.
  std::optional<Batch> Choose(Clock::time_point now, Clock::time_point* again)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Batch> ChooseFrom(Level& level, Lane& lane, Clock::time_point now,
                                  Clock::time_point* again) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Until when a request that comes now waits for company.
  Clock::time_point DueOf(const Ticket& ticket, Clock::time_point now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether it waits for company still.
  static bool Waits(const Lane& lane, const Entry& entry, Clock::time_point now);
  // Of a call that the ticket's request is in, were it taken now: at most.
  static int64_t RowsOf(const Lane& lane, const Ticket& ticket);
  // The plan of a call of so many rows, with a context. False: none is free.
  bool ChoosePlan(const QueuedRequest& request, int64_t rows, Batch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct Place {
    Line* line;
    std::list<Entry>::iterator entry;
  };
  // Those that share a call with the first, which comes first: of its group, as many rows as fit,
  // clients in turn.
  std::vector<Place> CompanyOf(Lane& lane, const Place& first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Fill(const Taken& taken, Clock::time_point now, Batch* batch);
  // Out of the queue into `taken`. False: it has been answered.
  bool TakeEntry(Lane& lane, Line& line, std::list<Entry>::iterator entry, Taken* taken)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A run to its client and its model.
  void Charge(Lane& lane, Line& line, const Ticket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(Lane& lane, Line& line, std::list<Entry>::iterator entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What is left empty goes, and leaves behind where it may go on.
  void DropEmpty() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Where one that comes back may start.
  static double StartOf(const Ends& ends, const std::string& name, double now);
  // Microseconds of its run, and of what waits in a lane.
  double Cost(const Ticket& ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double Work(const std::string& model, const Lane& lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double PaceOf(const std::string& model) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const QueueOptions options_;
  mutable Mutex mu_;
  CondVar changed_, freed_;  // `freed_`: a context, for who waits for nothing else
  std::map<int64_t, Level> levels_ ABSL_GUARDED_BY(mu_);  // by priority; none is empty
  absl::flat_hash_map<std::string, Held> held_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Pace> paces_ ABSL_GUARDED_BY(mu_);
  // What Choose let go of, whose memory is given back without the lock.
  struct Gone {
    std::vector<std::shared_ptr<QueuedRequest>> requests;
    std::vector<std::shared_ptr<const ServedPlan>> plans;
    bool empty() const { return requests.empty() && plans.empty(); }
  };
  Gone gone_ ABSL_GUARDED_BY(mu_);
  std::atomic<int64_t> count_{0};    // that wait, for a look without the lock
  std::atomic<int64_t> changes_{0};  // requests that came, runs that ended
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_REQUEST_QUEUE_H_
