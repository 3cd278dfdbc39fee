// A request of a model that waits to be run: its ticket, which orders it in the queue, and the
// operations of the thread that takes it.
//
//   if (request->Take()) {                       // false: a runner, its deadline, ... took it
//   before
//     absl::Status begun = request->Begin();
//     ...                                        // runs it
//     request->End(*plan, status, times);
//   }
#ifndef ATHANOR_SERVER_BATCH_QUEUED_REQUEST_H_
#define ATHANOR_SERVER_BATCH_QUEUED_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/batch/batching.h"
#include "server/plans/plan_runner.h"
#include "server/plans/served_plan.h"
#include "server/tracing/trace_context.h"

namespace athanor {

// The properties of a request that the queue uses.
struct Ticket {
  std::string model;          // the model's name and version, which identify its queue
  std::string client;         // the unit of fair sharing within a model
  int64_t priority = 100;     // 1 runs before 2
  std::vector<int64_t> dims;  // sizes, in the order of graph.dims
  // Requests of one group may share a call: they differ only in their rows, and each has some. So
  // the group holds everything else that matters, as bytes. Empty: the request runs alone.
  std::string group;
  std::shared_ptr<const Batching> batching;  // null without a group
  int64_t predicted_us = 1;  // predicted time of running it alone, from the plan's cost; at least 1
  // When the request becomes useless. It waits for others to join for at most half of the time to
  // spare until then.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::optional<TraceContext> recorded = std::nullopt;  // its span, if it has one

  int64_t rows() const { return batching == nullptr ? 1 : dims[batching->dim]; }
};

struct RunTimes {
  int64_t exec_us = 0;     // duration of the call
  int64_t batch_rows = 0;  // rows in the call, if several requests may share one
  int64_t batch_us = 0;    // time that the request waited for others to join
  std::chrono::steady_clock::time_point began;
  bool ran = false;        // else it was too late, or its outputs could not be allocated
  bool first = true;       // first of the requests of its call: for metrics counted once per call
  bool split = false;      // first to run alone after a shared call failed
  int64_t failed_us = -1;  // if `split`: duration of the failed call, if it ran
  // Spans of those that shared the call and are recorded, its own too; null if none is, or it ran
  // alone.
  std::shared_ptr<const std::vector<TraceContext>> sharers = nullptr;
};

// A request that waits. The first to take it owns it: a runner, its expiry or its cancellation.
class QueuedRequest {
 public:
  explicit QueuedRequest(Ticket ticket) : ticket_(std::move(ticket)) {}
  virtual ~QueuedRequest() = default;

  const Ticket& ticket() const { return ticket_; }
  virtual bool Take() = 0;
  // Returns the plan that now runs a call of these sizes, never null. The sizes are the request's
  // own or, if it shares a call with others of its group, have more rows. May be called while
  // another thread takes the request.
  virtual std::shared_ptr<const ServedPlan> plan(absl::Span<const int64_t> dims) const = 0;

  // Only the runner that has taken the request calls the following.
  // Allocates the outputs; called once. If it fails, the runner calls End with the error.
  virtual absl::Status Begin() = 0;
  virtual absl::Span<const std::string_view> inputs() const = 0;
  virtual absl::Span<const RunOutput> outputs() const = 0;
  virtual RunLimits limits() const = 0;
  // Answers the request; `plan` is the plan that ran it.
  virtual void End(const ServedPlan& plan, const absl::Status& status, const RunTimes& times) = 0;

  // Answers the request without running it; called by the queue after taking it.
  virtual void Refuse(const absl::Status& status) = 0;

 private:
  const Ticket ticket_;
};

// A call for one or more requests, all of them taken.
struct Batch {
  // The plan for all of their rows, or for more: some requests may have been answered since they
  // were counted.
  std::shared_ptr<const ServedPlan> plan;
  ContextPool::Lease lease;
  std::vector<std::shared_ptr<QueuedRequest>> requests;  // in the order of their rows
  // Time that each waited for others to join while a runner was free; empty if none waited.
  std::vector<std::chrono::microseconds> waited;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_QUEUED_REQUEST_H_
