#include "server/batch/batch_run.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;
using Requests = std::vector<std::shared_ptr<QueuedRequest>>;

constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// An output of a shared call: its place, and the size of each request's part of it.
struct SharedOutput {
  bool rows = false;
  int64_t row_bytes = 0;  // size of the whole output if it has no rows
  int64_t offset = 0;     // in the staging block
};

class SharedCall {
 public:
  SharedCall(const Requests& requests, const Batching& batching)
      : requests_(requests), batching_(batching), dims_(requests.front()->ticket().dims) {
    int64_t& rows = dims_[batching.dim];
    for (size_t i = 1; i < requests.size(); ++i) rows += requests[i]->ticket().rows();
  }

  int64_t rows() const { return dims_[batching_.dim]; }
  absl::Span<const int64_t> dims() const { return dims_; }
  // Assigns each part its offset in a block; returns the bytes of the block. Call it once.
  int64_t Place();
  // REQUIRES: `block` has as many bytes as Place returned
  absl::Status Run(const ServedPlan& plan, RunContext& context, char* block);

 private:
  void CopyIn(char* block);
  void CopyOut(const char* block) const;

  const Requests& requests_;
  const Batching& batching_;
  std::vector<int64_t> dims_;
  std::vector<std::string_view> inputs_;
  std::vector<int64_t> input_offsets_;  // -1: the first request's input is used in place
  std::map<int, SharedOutput> outputs_;
};

int64_t SharedCall::Place() {
  int64_t bytes = 0;
  const size_t inputs = requests_.front()->inputs().size();
  for (size_t i = 0; i < inputs; ++i) {
    input_offsets_.push_back(batching_.input_rows[i] ? bytes : -1);
    if (!batching_.input_rows[i]) continue;
    for (const auto& request : requests_)
      bytes += static_cast<int64_t>(request->inputs()[i].size());
    bytes = Aligned(bytes);
  }
  for (const auto& request : requests_) {
    for (const RunOutput& wanted : request->outputs()) {
      SharedOutput& output = outputs_[wanted.output];
      output.rows = batching_.output_rows[wanted.output];
      const int64_t parts = output.rows ? request->ticket().rows() : 1;
      // A request without rows tells nothing.
      if (parts > 0) output.row_bytes = wanted.bytes / parts;
    }
  }
  for (auto& [position, output] : outputs_) {
    output.offset = bytes;
    bytes = Aligned(bytes + output.row_bytes * (output.rows ? rows() : 1));
  }
  return bytes;
}

void SharedCall::CopyIn(char* block) {
  for (size_t i = 0; i < input_offsets_.size(); ++i) {
    if (input_offsets_[i] < 0) {
      inputs_.push_back(requests_.front()->inputs()[i]);
      continue;
    }
    char* const begin = block + input_offsets_[i];
    char* end = begin;
    for (const auto& request : requests_) {
      const std::string_view rows = request->inputs()[i];
      if (!rows.empty()) std::memcpy(end, rows.data(), rows.size());
      end += rows.size();
    }
    inputs_.emplace_back(begin, end - begin);
  }
}

void SharedCall::CopyOut(const char* block) const {
  int64_t row = 0;
  for (const auto& request : requests_) {
    for (const RunOutput& wanted : request->outputs()) {
      const SharedOutput& output = outputs_.at(wanted.output);
      const int64_t first = output.rows ? row * output.row_bytes : 0;
      if (wanted.bytes > 0) std::memcpy(wanted.data, block + output.offset + first, wanted.bytes);
    }
    row += request->ticket().rows();
  }
}

absl::Status SharedCall::Run(const ServedPlan& plan, RunContext& context, char* block) {
  CopyIn(block);
  std::vector<RunOutput> outputs;
  for (const auto& [position, output] : outputs_) {
    outputs.push_back(
        {position, block + output.offset, output.row_bytes * (output.rows ? rows() : 1)});
  }
  // Runs until the latest of their deadlines.
  RunLimits limits{.deadline = Clock::time_point::min()};
  for (const auto& request : requests_) {
    limits.deadline = std::max(limits.deadline, request->limits().deadline);
  }
  absl::Status status = plan.runner->Run(context, dims_, inputs_, outputs, limits);
  if (status.ok()) CopyOut(block);
  return status;
}

}  // namespace

absl::StatusOr<char*> Staging::Block(int64_t bytes) {
  if (bytes <= bytes_) return data_.get();
  data_.reset();
  reserved_ = {};
  bytes_ = 0;
  ASSIGN_OR_RETURN(auto reserved, ledger_.Reserve(HeldKind::kRequests, Aligned(bytes),
                                                  "requests that share a call"));
  char* const data = static_cast<char*>(std::aligned_alloc(kAlignment, Aligned(bytes)));
  if (data == nullptr) return absl::ResourceExhaustedError("requests that share a call: no memory");
  data_ = {data, [](char* block) { std::free(block); }};
  reserved_ = std::move(reserved);
  bytes_ = Aligned(bytes);
  return data;
}

namespace {

// A request being run, and its answer once it has run.
struct Running {
  std::shared_ptr<QueuedRequest> request;
  std::shared_ptr<const ServedPlan> plan;
  absl::Status status;
  RunTimes times;
};

int64_t MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
}

// Gives the batch a plan that holds `dims`: its own was chosen for more rows than are left of it.
void Fit(const QueuedRequest& request, absl::Span<const int64_t> dims, Batch& batch,
         RequestQueue& queue) {
  if (batch.plan->Holds(dims)) return;
  batch.lease = {};  // never hold a context while waiting for another
  batch.plan = request.plan(dims);
  batch.lease = queue.AwaitContext(*batch.plan);
}

// Returns the spans of requests that are recorded; null if none is.
std::shared_ptr<const std::vector<TraceContext>> Recorded(const Requests& requests) {
  std::vector<TraceContext> recorded;
  for (const auto& request : requests) {
    if (const auto& span = request->ticket().recorded) recorded.push_back(*span);
  }
  if (recorded.empty()) return nullptr;
  return std::make_shared<const std::vector<TraceContext>>(std::move(recorded));
}

// Runs all requests in one call. Returns false if they must run alone instead; `*failed_us` is then
// the time that was lost. If the call was stopped at the latest of their deadlines, its status
// answers them all.
bool RunTogether(absl::Span<Running* const> running, Batch& batch, RequestQueue& queue,
                 Staging& staging, int64_t* failed_us) {
  Requests requests;
  for (const Running* one : running) requests.push_back(one->request);
  SharedCall call(requests, *requests.front()->ticket().batching);
  Fit(*requests.front(), call.dims(), batch, queue);
  const absl::StatusOr<char*> block = staging.Block(call.Place());
  if (!block.ok()) return false;
  const Clock::time_point began = Clock::now();
  const absl::Status status = call.Run(*batch.plan, *batch.lease, *block);
  const int64_t exec_us = MicrosecondsSince(began);
  if (!status.ok() && !absl::IsDeadlineExceeded(status)) {
    *failed_us = exec_us;
    return false;
  }
  const auto sharers = Recorded(requests);
  for (Running* one : running) {
    one->plan = batch.plan;
    one->status = status;
    one->times.sharers = sharers;
    one->times.began = began;
    one->times.exec_us = exec_us;
    one->times.batch_rows = call.rows();
    one->times.ran = true;
    one->times.first = one == running.front();
  }
  return true;
}

void RunAlone(Running& one, Batch& batch, RequestQueue& queue) {
  const Ticket& ticket = one.request->ticket();
  Fit(*one.request, ticket.dims, batch, queue);
  one.plan = batch.plan;
  const RunLimits limits = one.request->limits();
  one.times.began = Clock::now();
  one.times.batch_rows = ticket.rows();
  if (one.times.began >= limits.deadline) {
    one.status = absl::DeadlineExceededError(
        "its time was up before it ran: a call that it shared failed, and others went before it");
    return;
  }
  one.times.ran = true;
  one.status = batch.plan->runner->Run(*batch.lease, ticket.dims, one.request->inputs(),
                                       one.request->outputs(), limits);
  one.times.exec_us = MicrosecondsSince(one.times.began);
}

}  // namespace

void RunBatch(Batch batch, RequestQueue& queue, Staging& staging) {
  const std::string model = batch.requests.front()->ticket().model;
  std::vector<Running> all;
  all.reserve(batch.requests.size());  // elements are pointed to, so no reallocation
  std::vector<Running*> running;
  int64_t predicted_us = 0;
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    Running& one = all.emplace_back(Running{std::move(batch.requests[i]), batch.plan});
    if (i < batch.waited.size()) one.times.batch_us = batch.waited[i].count();
    one.times.began = Clock::now();
    one.status = one.request->Begin();
    if (!one.status.ok()) continue;
    predicted_us += one.request->ticket().predicted_us;
    running.push_back(&one);
  }
  const Clock::time_point began = Clock::now();
  const bool several = running.size() > 1;
  int64_t failed_us = -1;
  if (!several || !RunTogether(running, batch, queue, staging, &failed_us)) {
    for (Running* one : running) {
      if (several && one == running.front()) {
        one->times.split = true;
        one->times.failed_us = failed_us;
      }
      RunAlone(*one, batch, queue);
    }
  }
  // An interrupted run does not tell how long such runs take.
  for (const Running* one : running) predicted_us *= one->status.ok() ? 1 : 0;
  const Clock::duration took = Clock::now() - began;
  batch.lease = {};  // the next batch may run while these are answered
  queue.Ran(model, predicted_us, took, running.size());
  for (const Running& one : all) one.request->End(*one.plan, one.status, one.times);
}

Runners::Runners(RequestQueue* queue, ServerLedger* ledger, int threads) : queue_(*queue) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, ledger] {
      Staging staging(ledger);
      while (std::optional<Batch> batch = queue_.Next()) {
        RunBatch(*std::move(batch), queue_, staging);
        // If all cores compute, threads that read or answer calls then wait for one run, not for
        // the scheduler's time slice of several runs.
        std::this_thread::yield();
      }
    });
    pthread_setname_np(threads_.back().native_handle(), "run");
  }
}

Runners::~Runners() {
  queue_.Stop();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace athanor
