// A request of a model that waits for a run: its ticket, by which the queue orders it, and what
// whoever takes it does with it.
//
//   if (request->Take()) {                       // nobody else has: a runner, its deadline, ...
//     absl::Status begun = request->Begin();
//     ...                                        // runs it
//     request->End(*plan, status, times);
//   }
#ifndef ATHANOR_SERVER_BATCH_QUEUED_REQUEST_H_
#define ATHANOR_SERVER_BATCH_QUEUED_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/batch/batching.h"
#include "server/plans/plan_runner.h"
#include "server/plans/served_plan.h"

namespace athanor {

// What the queue knows of a request.
struct Ticket {
  std::string model;          // whose queue: name and version
  std::string client;         // of one model, whoever is to have a fair share
  int64_t priority = 100;     // 1 goes before 2
  std::vector<int64_t> dims;  // sizes, in the order of graph.dims
  // Requests of one group may share a call: they differ only in their rows, of which each has some.
  // So it holds all else that counts, as bytes. Empty: it runs alone.
  std::string group;
  std::shared_ptr<const Batching> batching;  // null without a group
  int64_t predicted_us = 1;  // of a run of its own, as the plan's cost says; at least 1
  // When it is of no use any more: half of the time to spare until then it waits for company.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  int64_t rows() const { return batching == nullptr ? 1 : dims[batching->dim]; }
};

struct RunTimes {
  int64_t exec_us = 0;     // of the call
  int64_t batch_rows = 0;  // in it, where several requests may share one
  int64_t batch_us = 0;    // that the request waited for company
  std::chrono::steady_clock::time_point began;
  bool ran = false;        // else it came too late, or there was no room for its outputs
  bool first = true;       // of the requests of its call: for what is counted once a call
  bool split = false;      // the first that runs alone where a call for several has failed
  int64_t failed_us = -1;  // then: what that call took, if it ran
};

// A request that waits. Whoever takes it first owns it: a runner, its expiry, its cancellation.
class QueuedRequest {
 public:
  explicit QueuedRequest(Ticket ticket) : ticket_(std::move(ticket)) {}
  virtual ~QueuedRequest() = default;

  const Ticket& ticket() const { return ticket_; }
  virtual bool Take() = 0;
  // What runs a call of these sizes now, which are its own or, with others of its group, more rows:
  // never null. Also called while somebody else may take it.
  virtual std::shared_ptr<const ServedPlan> plan(absl::Span<const int64_t> dims) const = 0;

  // The rest is for the runner that has taken it.
  // Makes room for the outputs, once. An error is what End is to be called with.
  virtual absl::Status Begin() = 0;
  virtual absl::Span<const std::string_view> inputs() const = 0;
  virtual absl::Span<const RunOutput> outputs() const = 0;
  virtual RunLimits limits() const = 0;
  // Answers it; `plan` is what ran it.
  virtual void End(const ServedPlan& plan, const absl::Status& status, const RunTimes& times) = 0;

  // For the queue that has taken it: answers it without a run.
  virtual void Refuse(const absl::Status& status) = 0;

 private:
  const Ticket ticket_;
};

// One call for one request or more, each taken.
struct Batch {
  // Of all their rows, or more: some may have been answered since they were counted.
  std::shared_ptr<const ServedPlan> plan;
  ContextPool::Lease lease;
  std::vector<std::shared_ptr<QueuedRequest>> requests;  // in the order of their rows
  // That each waited for company while it could have run; none where nobody did.
  std::vector<std::chrono::microseconds> waited;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_QUEUED_REQUEST_H_
