#include "server/rpc/inference/infer_call.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/base/public_status.h"
#include "server/rpc/call.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "ModelInfer";
// Priority of a request that names none.
constexpr int64_t kDefaultPriority = 100;

int64_t Microseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

// Holds what it needs beside the call, which may have ended.
class InferCall::Turn final : public QueuedRequest {
 public:
  Turn(Ticket ticket, InferCall* call)
      : QueuedRequest(std::move(ticket)),
        call_(*call),
        owner_(call->owner_),
        plans_(call->plans_),
        full_plan_(call->full_plan_) {}

  bool Take() override { return owner_->Take(); }
  std::shared_ptr<const ServedPlan> plan(absl::Span<const int64_t> dims) const override {
    return plans_->For(dims, full_plan_);
  }
  absl::Status Begin() override { return call_.BeginRun(); }
  absl::Span<const std::string_view> inputs() const override { return call_.bound_.inputs; }
  absl::Span<const RunOutput> outputs() const override { return call_.outputs_; }
  RunLimits limits() const override { return {call_.deadline_, owner_->cancelled()}; }
  void End(const ServedPlan& plan, const absl::Status& status, const RunTimes& times) override {
    call_.EndRun(plan, status, times);
  }
  void Refuse(const absl::Status& status) override {
    owner_->StopTimer();
    call_.Refuse(status);
  }

 private:
  InferCall& call_;
  const std::shared_ptr<CallOwner> owner_;
  const std::shared_ptr<Plans> plans_;
  const std::shared_ptr<const ServedPlan> full_plan_;  // of all sizes
};

InferCall::InferCall(ServerCore& core, grpc::CallbackServerContext* context,
                     const grpc::ByteBuffer* request, grpc::ByteBuffer* reply)
    : slot_(core, context->peer()),
      core_(core),
      context_(context),
      request_bytes_(request),
      reply_bytes_(reply),
      owner_(std::make_shared<CallOwner>(&core.timer())) {}

InferCall* InferCall::Begin() {
  if (absl::Status s = slot_.status(); !s.ok()) {
    End(s);
  } else if (InflatesLong(*request_bytes_)) {
    core_.inflate_queue().Submit([this] { Start(/*on_rpc_thread=*/false); });
  } else {
    Start(/*on_rpc_thread=*/true);
  }
  return this;
}

void InferCall::Start(bool on_rpc_thread) {
  if (absl::Status s = Accept(); !s.ok()) {
    End(s);
  } else if (TakePlan()) {
    Execute(on_rpc_thread);
  } else {
    AwaitPlan();
  }
}

absl::Status InferCall::Accept() {
  absl::Status parsed = ParseRequest(core_, *request_bytes_, &request_, &parsed_memory_);
  if (!parsed.ok()) return parsed;
  ASSIGN_OR_RETURN(
      version_, core_.registry().versions().Find(request_.model_name(), request_.model_version()));
  plans_ = {version_, &version_->plans()};
  RETURN_IF_ERROR(version_->unusable());
  if (version_->language_model() != nullptr) {
    return absl::FailedPreconditionError(
        Cat(version_->Describe(), " is a language model, whose keys and values its engine keeps: ",
            "call GenerateService.Generate"));
  }
  ASSIGN_OR_RETURN(bound_,
                   version_->binder().Bind(request_, {.max_taps = core_.options().max_taps}));
  SetDeadline();
  return ChoosePlan();
}

absl::Status InferCall::ChoosePlan() {
  const std::vector<Output>& outputs = version_->graph().outputs;
  const std::vector<std::string>& elements = version_->output_elements();
  for (int output : bound_.outputs) {
    std::string_view element;
    if (output < static_cast<int>(elements.size())) element = elements[output];
    wanted_.push_back({output, outputs[output].name, element});
  }
  if (bound_.options.taps.empty()) return absl::OkStatus();
  // Every plan has the values of the outputs; only other values need a tap plan.
  const auto output_of = [&](NodeId node) {
    return std::find_if(outputs.begin(), outputs.end(),
                        [node](const Output& output) { return output.node == node; }) -
           outputs.begin();
  };
  const auto own = static_cast<int64_t>(outputs.size());
  std::vector<NodeId> inner;
  for (NodeId node : bound_.options.taps) {
    if (output_of(node) == own) inner.push_back(node);
  }
  std::sort(inner.begin(), inner.end());
  for (NodeId node : bound_.options.taps) {
    int64_t output = output_of(node);
    if (output == own) output += std::lower_bound(inner.begin(), inner.end(), node) - inner.begin();
    RETURN_IF_ERROR(AddTap(node, static_cast<int>(output)));
  }
  if (inner.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(tapped_, core_.workers().Tap(version_, std::move(inner)));
  plans_ = {tapped_, &tapped_->plans};
  return absl::OkStatus();
}

// Each name may occur only once in a reply.
absl::Status InferCall::AddTap(NodeId node, int output) {
  const Graph& graph = version_->graph();
  const std::string& name = graph.node(node).name;
  for (int asked : bound_.outputs) {
    if (graph.outputs[asked].name != name) continue;
    if (graph.outputs[asked].node == node) return absl::OkStatus();
    return Invalid("parameter taps names node ", Quoted(name), ", and output ", Quoted(name),
                   " of the same reply is node ",
                   Quoted(graph.node(graph.outputs[asked].node).name),
                   "; tap it in a call that asks for other outputs");
  }
  wanted_.push_back({output, name, ""});
  return absl::OkStatus();
}

bool InferCall::TakePlan() {
  full_plan_ = plans_->full().plan();
  if (full_plan_ != nullptr) plan_ = plans_->For(bound_.dims, full_plan_);
  return plan_ != nullptr;
}

void InferCall::SetDeadline() {
  const auto system_deadline = context_->deadline();
  const auto system_now = std::chrono::system_clock::now();
  // gRPC's "no deadline" is so far away that adding it to anything would overflow.
  if (system_deadline - system_now < std::chrono::hours(24 * 365)) {
    deadline_ = arrived_ + (system_deadline - system_now);
  }
  if (bound_.options.timeout_us > 0) {
    constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1'000'000;
    const auto timeout = std::chrono::microseconds(std::min(bound_.options.timeout_us, kYear));
    deadline_ = std::min<Clock::time_point>(deadline_, arrived_ + timeout);
  }
}

int64_t InferCall::Priority() const {
  return bound_.options.priority > 0 ? bound_.options.priority : kDefaultPriority;
}

bool InferCall::StartWaiting(Clock::time_point limit) {
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

void InferCall::Expire() {
  if (!refusal_.ok()) {
    End(refusal_);
    return;
  }
  const std::string waited = Cat(Microseconds(Clock::now() - arrived_) / 1000, " ms");
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

void InferCall::OnCancel() {
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

void InferCall::AwaitPlan() {
  if (const PlanSlot::View view = plans_->full().view();
      bound_.options.wait == RequestOptions::Wait::kNone && !view.settled()) {
    End(absl::FailedPreconditionError(
        Cat(version_->Describe(), " has no ", tapped_ == nullptr ? "plan" : tapped_->Describe(),
            " yet, and parameter \"wait\" is \"none\"; its compile job is ", view.job_id)));
    return;
  }
  // Outlive the call, which may end as soon as it waits.
  const std::shared_ptr<CallOwner> owner = owner_;
  const std::shared_ptr<Plans> plans = plans_;
  stalled_ = Clock::now();
  const auto longest = arrived_ + std::chrono::milliseconds(core_.options().max_wait_ms);
  if (!StartWaiting(std::min(deadline_, longest))) return;
  owner->AwaitPlan(plans->full(), [this](const absl::Status& status) { GotPlan(status); });
}

void InferCall::GotPlan(const absl::Status& status) {
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
  Execute(/*on_rpc_thread=*/false);
}

Ticket InferCall::MakeTicket() const {
  Ticket ticket{
      .model = version_->Describe(),
      .client = context_->peer(),
      .priority = Priority(),
      .dims = bound_.dims,
      .predicted_us = std::max<int64_t>(1, plan_->runner->EstimateMicroseconds(bound_.dims)),
      .deadline = deadline_};
  const std::shared_ptr<const Batching>& batching = version_->batching().shared;
  if (batching == nullptr || !bound_.options.taps.empty()) return ticket;
  ticket.batching = batching;
  ticket.group = GroupOf(*batching, bound_.dims, bound_.inputs);
  return ticket;
}

void InferCall::Execute(bool on_rpc_thread) {
  if (absl::Status s = DescribeReply(); !s.ok()) {
    End(s);
    return;
  }
  turn_ = std::make_shared<Turn>(MakeTicket(), this);
  RequestQueue& queue = core_.requests();
  const Ticket& ticket = turn_->ticket();
  if (on_rpc_thread && ticket.predicted_us <= core_.options().inline_us) {
    if (ContextPool::Lease lease = queue.TryNow(ticket, *plan_)) {
      Staging none(&core_.ledger());
      RunBatch({plan_, std::move(lease), {turn_}}, queue, none);
      return;
    }
  }
  if (absl::Status s = queue.Admit(ticket); !s.ok()) {
    Refuse(s);
    return;
  }
  AwaitTurn(turn_);
}

absl::Status InferCall::DescribeReply() {
  const OutputShapes& shapes = tapped_ != nullptr ? tapped_->shapes : version_->output_shapes();
  int64_t total = 0;
  std::vector<int64_t> shape;
  for (const Wanted& wanted : wanted_) {
    int64_t& bytes = output_bytes_.emplace_back();
    absl::Status s = shapes.Fill(wanted.output, bound_.dims, &shape, &bytes);
    if (!s.ok()) return s;
    auto* tensor = reply_.add_outputs();
    tensor->set_name(std::string(wanted.name));
    tensor->set_datatype(std::string(shapes.datatype(wanted.output)));
    tensor->mutable_shape()->Add(shape.begin(), shape.end());
    if (!wanted.element.empty()) {
      (*tensor->mutable_parameters())["element"].set_string_param(std::string(wanted.element));
    }
    if (__builtin_add_overflow(total, bytes, &total) ||
        total > std::numeric_limits<int32_t>::max() - (1 << 20)) {
      return absl::ResourceExhaustedError(Cat(
          "output ", Quoted(wanted.name), ": the outputs asked for exceed the 2 GiB of one reply"));
    }
  }
  ASSIGN_OR_RETURN(memory_, core_.ledger().Reserve(
                                HeldKind::kRequests,
                                static_cast<int64_t>(request_bytes_->Length()) * 2 + total * 2,
                                "request to " + version_->Describe()));
  return absl::OkStatus();
}

void InferCall::AwaitTurn(std::shared_ptr<Turn> turn) {
  // Copies that outlive the call, which may end as soon as it waits.
  RequestQueue& queue = core_.requests();
  const std::shared_ptr<CallOwner> owner = owner_;
  if (!StartWaiting(deadline_)) return;
  queue.Push(turn);
  if (owner->owned()) queue.Remove(*turn);
}

absl::Status InferCall::BeginRun() {
  owner_->StopTimer();
  if (Clock::now() >= deadline_) {
    return absl::DeadlineExceededError(Cat(version_->Describe(), ": the request waited ",
                                           Microseconds(Clock::now() - arrived_) / 1000,
                                           " ms in the queue"));
  }
  for (size_t i = 0; i < wanted_.size(); ++i) {
    std::string* raw = reply_.add_raw_output_contents();
    raw->resize(output_bytes_[i]);
    // Requested outputs are distinct; a tap may repeat one of them.
    size_t first = i < bound_.outputs.size() ? i : 0;
    while (wanted_[first].output != wanted_[i].output) ++first;
    if (first == i) {
      outputs_.push_back({wanted_[i].output, raw->data(), output_bytes_[i]});
    } else {
      repeated_.emplace_back(first, i);
    }
  }
  return absl::OkStatus();
}

void InferCall::EndRun(const ServedPlan& plan, const absl::Status& status, const RunTimes& times) {
  const bool shares = turn_->ticket().batching != nullptr;
  const auto company = std::chrono::microseconds(times.batch_us);
  const auto queued = std::max<Clock::duration>(times.began - arrived_ - company, {});
  Count(times, queued);
  if (!status.ok()) {
    End(status);
    return;
  }
  for (const auto& [from, to] : repeated_) {
    *reply_.mutable_raw_output_contents(to) = reply_.raw_output_contents(from);
  }
  reply_.set_model_name(version_->name());
  reply_.set_model_version(Cat(version_->version()));
  reply_.set_id(request_.id());
  auto& parameters = *reply_.mutable_parameters();
  parameters["plan_id"].set_string_param(plan.id());
  parameters["bucket"].set_string_param(plan.bucket);
  parameters["compile_state"].set_string_param(plan.compiled->plan.kind());
  parameters["queue_us"].set_int64_param(Microseconds(queued));
  parameters["exec_us"].set_int64_param(times.exec_us);
  if (shares) {
    parameters["batch_us"].set_int64_param(times.batch_us);
    parameters["batch_rows"].set_int64_param(times.batch_rows);
  }
  const grpc::Status sent = SerializeReply(reply_, reply_bytes_);
  End(sent.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(sent.error_message()));
}

void InferCall::Count(const RunTimes& times, Clock::duration queued) {
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

void InferCall::Refuse(const absl::Status& status) {
  core_.metrics().server().Count(Metric::kRefusals, Refusal::kQueue);
  std::optional<Clock::time_point> at;
  if (!core_.draining()) at = core_.refusals().Hold(context_->peer(), Clock::now());
  if (!at.has_value()) {
    End(status);
    return;
  }
  refusal_ = status;
  FreeRequest();
  StartWaiting(std::min(deadline_, *at));
}

void InferCall::FreeRequest() {
  bound_ = {};
  const std::string model = request_.model_name();  // for the log
  inference::ModelInferRequest().Swap(&request_);
  request_.set_model_name(model);
  inference::ModelInferResponse().Swap(&reply_);
  // gRPC made the buffer for this call only, though it passes it to the method as const.
  const_cast<grpc::ByteBuffer*>(request_bytes_)->Clear();
  memory_ = {};
  parsed_memory_ = {};
}

void InferCall::EndStall() {
  if (stalled_ == Clock::time_point()) return;
  version_->metrics().cells.Observe(Metric::kStallSeconds, Clock::now() - stalled_);
  stalled_ = {};
}

void InferCall::End(const absl::Status& status) {
  EndStall();
  if (!refusal_.ok()) core_.refusals().Answered();
  MetricCells& metrics =
      version_ == nullptr ? core_.metrics().no_version() : version_->metrics().cells;
  metrics.Count(Metric::kRequests, PublicStatus(status).code());
  metrics.Observe(Metric::kRequestSeconds, Clock::now() - arrived_);
  if (DebugLogged()) {
    LogDebug("call", {{"request", RequestId(*context_)},
                      {"method", kMethod},
                      {"model", request_.model_name()},
                      {"us", Microseconds(Clock::now() - arrived_)},
                      {"code", absl::StatusCodeToString(status.code())}});
  }
  Finish(EndCall(kMethod, *context_, status));
}

}  // namespace athanor
