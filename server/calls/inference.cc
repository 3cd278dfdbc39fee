#include "server/calls/inference.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/public_status.h"
#include "server/calls/call_spans.h"

namespace athanor {
namespace {

// Priority of a request that names none.
constexpr int64_t kDefaultPriority = 100;

// Tensors of so many bytes in shared memory are copied away from the threads that read requests,
// behind texts of language models.
constexpr int64_t kLongCopy = int64_t{4} << 20;
constexpr int64_t kBehindTexts = 1;

int64_t Microseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

// Holds what it needs beside the request, which may have ended.
class Inference::Turn final : public QueuedRequest {
 public:
  Turn(Ticket ticket, Inference* inference)
      : QueuedRequest(std::move(ticket)),
        inference_(*inference),
        owner_(inference->owner_),
        plans_(inference->plans_),
        full_plan_(inference->full_plan_) {}

  bool Take() override { return owner_->Take(); }
  std::shared_ptr<const ServedPlan> plan(absl::Span<const int64_t> dims) const override {
    return plans_->For(dims, full_plan_);
  }
  absl::Status Begin() override { return inference_.BeginRun(); }
  absl::Span<const std::string_view> inputs() const override { return inference_.bound_.inputs; }
  absl::Span<const RunOutput> outputs() const override { return inference_.tensors_.outputs(); }
  RunLimits limits() const override { return {inference_.deadline_, owner_->cancelled()}; }
  void End(const ServedPlan& plan, const absl::Status& status, const RunTimes& times) override {
    inference_.EndRun(plan, status, times);
  }
  void Refuse(const absl::Status& status) override {
    owner_->StopTimer();
    inference_.RefuseInQueue(status);
  }

 private:
  Inference& inference_;
  const std::shared_ptr<CallOwner> owner_;
  const std::shared_ptr<Plans> plans_;
  const std::shared_ptr<const ServedPlan> full_plan_;  // of all sizes
};

Inference::Inference(ServerCore& core, InferenceCaller caller, InferenceSink* sink)
    : core_(core),
      caller_(std::move(caller)),
      sink_(sink),
      deadline_(caller_.deadline),
      ready_(caller_.arrived),
      owner_(std::make_shared<CallOwner>(&core.timer())) {}

void Inference::Begin(InferenceStart start) {
  start_ = std::move(start);
  if (absl::Status s = shared_.Take(core_.regions(), caller_.shared, &request_); !s.ok()) {
    End(s);
  } else if (start_.runs_here && shared_.input_bytes() > kLongCopy) {
    start_.runs_here = false;
    core_.text_queue().Submit([this] { Start(); }, kBehindTexts);
  } else {
    Start();
  }
}

void Inference::Start() {
  absl::Status accepted = Accept();
  // A version lets go of its plans once another has taken its place, maybe since it was found.
  while (!(accepted.ok() && TakePlan()) && version_ != nullptr &&
         !core_.registry().versions().Holds(*version_)) {
    version_ = nullptr;
    accepted = Accept();
  }
  if (!accepted.ok()) {
    End(accepted);
  } else if (plan_ != nullptr) {
    Execute(start_.runs_here);
  } else {
    AwaitPlan();
  }
}

void Inference::Refuse(const absl::Status& status) { End(status); }

absl::Status Inference::Accept() {
  ASSIGN_OR_RETURN(
      version_, core_.registry().versions().Find(request_.model_name(), request_.model_version()));
  plans_ = {version_, &version_->plans()};
  RETURN_IF_ERROR(version_->unusable());
  if (version_->language_model() != nullptr) {
    return absl::FailedPreconditionError(
        Cat(version_->Describe(), " is a language model, whose keys and values its engine keeps: ",
            "call GenerateService.Generate"));
  }
  RETURN_IF_ERROR(shared_.ReadInputs(&core_.ledger(), &request_));
  ASSIGN_OR_RETURN(bound_,
                   version_->binder().Bind(request_, {.max_taps = core_.options().max_taps}));
  SetDeadline();
  return ChoosePlans();
}

absl::Status Inference::ChoosePlans() {
  tapped_ = nullptr;
  tensors_ = {};
  RETURN_IF_ERROR(tensors_.Choose(*version_, bound_));
  if (tensors_.inner().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(tapped_, core_.workers().Tap(version_, std::move(tensors_.inner())));
  plans_ = {tapped_, &tapped_->plans};
  return absl::OkStatus();
}

bool Inference::TakePlan() {
  full_plan_ = plans_->full().plan();
  if (full_plan_ != nullptr) plan_ = plans_->For(bound_.dims, full_plan_);
  return plan_ != nullptr;
}

void Inference::SetDeadline() {
  if (bound_.options.timeout_us == 0) return;
  constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1'000'000;
  const auto timeout = std::chrono::microseconds(std::min(bound_.options.timeout_us, kYear));
  deadline_ = std::min<Clock::time_point>(deadline_, caller_.arrived + timeout);
}

bool Inference::StartWaiting(Clock::time_point limit) {
  switch (owner_->StartWaiting(limit, [this] { Expire(); })) {
    case CallOwner::Waiting::kStarted:
      return true;
    case CallOwner::Waiting::kCancelled:
      End(absl::CancelledError("the call was cancelled"));
      return false;
    case CallOwner::Waiting::kExpired:
      Expire();
      return false;
  }
  return false;
}

void Inference::Expire() {
  if (!refusal_.ok()) {
    End(refusal_);
    return;
  }
  const std::string waited = Cat(Microseconds(Clock::now() - caller_.arrived) / 1000, " ms");
  if (plan_ == nullptr) {
    owner_->LeavePlan(plans_->full());
    End(absl::DeadlineExceededError(Cat(version_->Describe(), ": its ",
                                        tapped_ == nullptr ? "baseline plan" : tapped_->Describe(),
                                        " was not ready after ", waited)));
  } else {
    if (turn_ != nullptr) core_.requests().Remove(*turn_);
    End(absl::DeadlineExceededError(
        Cat(version_->Describe(), ": the request waited ", waited, " in the queue")));
  }
}

void Inference::Cancel() {
  if (!owner_->Cancel()) return;
  owner_->StopTimer();
  if (Clock::now() >= deadline_) {
    Expire();
    return;
  }
  owner_->LeavePlan(plans_->full());
  if (turn_ != nullptr) core_.requests().Remove(*turn_);
  End(absl::CancelledError("the call was cancelled"));
}

void Inference::AwaitPlan() {
  if (const PlanSlot::View view = plans_->full().view();
      bound_.options.wait == RequestOptions::Wait::kNone && !view.settled()) {
    End(absl::FailedPreconditionError(
        Cat(version_->Describe(), " has no ", tapped_ == nullptr ? "plan" : tapped_->Describe(),
            " yet, and parameter \"wait\" is \"none\"; its compile job is ", view.job_id)));
    return;
  }
  // Outlive the request, which may end as soon as it waits.
  const std::shared_ptr<CallOwner> owner = owner_;
  const std::shared_ptr<Plans> plans = plans_;
  stalled_ = Clock::now();
  const auto longest = caller_.arrived + std::chrono::milliseconds(core_.options().max_wait_ms);
  if (!StartWaiting(std::min(deadline_, longest))) return;
  owner->AwaitPlan(plans->full(), [this](const absl::Status& status) { GotPlan(status); });
}

void Inference::GotPlan(const absl::Status& status) {
  owner_->StopTimer();
  EndStall();
  if (!status.ok()) {
    End(status);
    return;
  }
  if (!TakePlan()) {
    End(absl::NotFoundError(Cat(version_->Describe(), " was deleted")));
    return;
  }
  Execute(/*runs_here=*/false);
}

Ticket Inference::MakeTicket() const {
  Ticket ticket{
      .model = version_->Describe(),
      .client = caller_.client,
      .priority = bound_.options.priority > 0 ? bound_.options.priority : kDefaultPriority,
      .dims = bound_.dims,
      .predicted_us = std::max<int64_t>(1, plan_->runner->EstimateMicroseconds(bound_.dims)),
      .deadline = deadline_};
  if (caller_.trace != nullptr) ticket.recorded = caller_.trace->context();
  const std::shared_ptr<const Batching>& batching = version_->batching().shared;
  if (batching == nullptr || !bound_.options.taps.empty()) return ticket;
  ticket.batching = batching;
  ticket.group = GroupOf(*batching, bound_.dims, bound_.inputs);
  return ticket;
}

void Inference::Execute(bool runs_here) {
  if (absl::Status s = DescribeReply(); !s.ok()) {
    End(s);
    return;
  }
  turn_ = std::make_shared<Turn>(MakeTicket(), this);
  RequestQueue& queue = core_.requests();
  const Ticket& ticket = turn_->ticket();
  if (runs_here && tapped_ == nullptr && ticket.predicted_us <= core_.options().inline_us) {
    if (ContextPool::Lease lease = queue.TryNow(ticket, *plan_)) {
      Staging none(&core_.ledger());
      RunBatch({plan_, std::move(lease), {turn_}}, queue, none);
      return;
    }
  }
  if (absl::Status s = queue.Admit(ticket); !s.ok()) {
    RefuseInQueue(s);
    return;
  }
  AwaitTurn(turn_);
}

absl::Status Inference::DescribeReply() {
  const OutputShapes& shapes = tapped_ != nullptr ? tapped_->shapes : version_->output_shapes();
  ASSIGN_OR_RETURN(const int64_t bytes, tensors_.Describe(shapes, bound_.dims, &reply_));
  RETURN_IF_ERROR(shared_.DescribeOutputs(&reply_));
  RETURN_IF_ERROR(sink_->Accept(reply_));
  // The answer is a copy of the reply.
  ASSIGN_OR_RETURN(memory_, core_.ledger().Reserve(HeldKind::kRequests, start_.bytes + bytes * 2,
                                                   "request to " + version_->Describe()));
  return absl::OkStatus();
}

void Inference::AwaitTurn(std::shared_ptr<Turn> turn) {
  // Copies that outlive the request, which may end as soon as it waits.
  RequestQueue& queue = core_.requests();
  const std::shared_ptr<CallOwner> owner = owner_;
  if (!StartWaiting(deadline_)) return;
  queue.Push(turn);
  if (owner->owned()) queue.Remove(*turn);
}

absl::Status Inference::BeginRun() {
  owner_->StopTimer();
  if (Clock::now() >= deadline_) {
    return absl::DeadlineExceededError(Cat(version_->Describe(), ": the request waited ",
                                           Microseconds(Clock::now() - caller_.arrived) / 1000,
                                           " ms in the queue"));
  }
  tensors_.Allocate(&reply_);
  return absl::OkStatus();
}

void Inference::EndRun(const ServedPlan& plan, const absl::Status& status, const RunTimes& times) {
  const auto joining = std::chrono::microseconds(times.batch_us);
  const auto queued = std::max<Clock::duration>(times.began - caller_.arrived - joining, {});
  Count(times, queued);
  if (caller_.trace != nullptr) AddRun(*caller_.trace, ready_, plan, times);
  if (!status.ok()) {
    End(status);
    return;
  }
  FillReply(plan, times, queued);
  absl::Status answered = shared_.WriteOutputs(&reply_);
  if (answered.ok()) answered = sink_->Answer(&reply_);
  End(answered);
}

void Inference::FillReply(const ServedPlan& plan, const RunTimes& times, Clock::duration queued) {
  tensors_.Repeat(&reply_);
  reply_.set_model_name(version_->name());
  reply_.set_model_version(Cat(version_->version()));
  reply_.set_id(request_.id());
  auto& parameters = *reply_.mutable_parameters();
  parameters["plan_id"].set_string_param(plan.id());
  parameters["bucket"].set_string_param(plan.bucket);
  parameters["compile_state"].set_string_param(plan.compiled->plan.kind());
  parameters["queue_us"].set_int64_param(Microseconds(queued));
  parameters["exec_us"].set_int64_param(times.exec_us);
  if (turn_->ticket().batching == nullptr) return;
  parameters["batch_us"].set_int64_param(times.batch_us);
  parameters["batch_rows"].set_int64_param(times.batch_rows);
}

void Inference::Count(const RunTimes& times, Clock::duration queued) {
  MetricCells& metrics = version_->metrics().cells;
  if (times.split) metrics.Count(Metric::kBatchSplits);
  if (times.failed_us >= 0) {
    metrics.Observe(Metric::kExecSeconds, std::chrono::microseconds(times.failed_us));
  }
  if (!times.ran) return;  // its time was up before it could run
  metrics.Observe(Metric::kQueueSeconds, queued);
  if (times.first) {
    metrics.Observe(Metric::kExecSeconds, std::chrono::microseconds(times.exec_us));
  }
  if (turn_->ticket().batching == nullptr) return;
  metrics.Observe(Metric::kBatchSeconds, std::chrono::microseconds(times.batch_us));
  if (times.first) metrics.ObserveNumber(Metric::kBatchRows, times.batch_rows);
}

void Inference::RefuseInQueue(const absl::Status& status) {
  core_.metrics().server().Count(Metric::kRefusals, Refusal::kQueue);
  std::optional<Clock::time_point> at;
  if (!core_.draining()) at = core_.refusals().Hold(caller_.client, Clock::now());
  if (!at.has_value()) {
    End(status);
    return;
  }
  refusal_ = status;
  FreeRequest();
  StartWaiting(std::min(deadline_, *at));
}

void Inference::FreeRequest() {
  bound_ = {};
  inference::ModelInferRequest names;  // for the sink
  names.set_model_name(request_.model_name());
  names.set_id(request_.id());
  names.Swap(&request_);
  inference::ModelInferResponse().Swap(&reply_);
  shared_ = {};
  memory_ = {};
  start_ = {};
  sink_->Release();
}

void Inference::EndStall() {
  if (stalled_ == Clock::time_point()) return;
  ready_ = Clock::now();
  version_->metrics().cells.Observe(Metric::kStallSeconds, ready_ - stalled_);
  if (caller_.trace != nullptr) caller_.trace->Child("await plan", stalled_, ready_);
  stalled_ = {};
}

void Inference::End(absl::Status status) {
  EndStall();
  if (caller_.trace != nullptr && version_ != nullptr) AddModel(*caller_.trace, *version_);
  if (!refusal_.ok()) core_.refusals().Answered();
  MetricCells& metrics =
      version_ == nullptr ? core_.metrics().no_version() : version_->metrics().cells;
  metrics.Count(Metric::kRequests, PublicStatus(status).code());
  metrics.Observe(Metric::kRequestSeconds, Clock::now() - caller_.arrived);
  sink_->Done(status);
}

}  // namespace athanor
