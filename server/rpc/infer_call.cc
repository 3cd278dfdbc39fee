#include "server/rpc/infer_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/ir/message.h"
#include "server/log.h"
#include "server/rpc/call.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "ModelInfer";
// Where a request without a priority stands among those with one.
constexpr int64_t kDefaultPriority = 100;

int64_t Microseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

InferCall::InferCall(ServerCore& core, grpc::CallbackServerContext* context,
                     const grpc::ByteBuffer* request, grpc::ByteBuffer* reply)
    : slot_(core), core_(core), context_(context), request_bytes_(request), reply_bytes_(reply) {}

InferCall* InferCall::Begin() {
  if (absl::Status s = Accept(); !s.ok()) {
    End(s);
  } else if (plan_ = version_->plan(); plan_ != nullptr) {
    Execute(/*on_rpc_thread=*/true);
  } else {
    AwaitPlan();
  }
  return this;
}

absl::Status InferCall::Accept() {
  if (absl::Status s = slot_.status(); !s.ok()) return s;
  if (absl::Status s = ParseRequest(*request_bytes_, &request_); !s.ok()) return s;
  auto version = core_.registry().Find(request_.model_name(), request_.model_version());
  if (!version.ok()) return version.status();
  version_ = *std::move(version);
  absl::StatusOr<BoundRequest> bound = version_->binder().Bind(request_);
  if (!bound.ok()) return bound.status();
  bound_ = *std::move(bound);
  if (!bound_.options.taps.empty()) {
    return Unimplemented("parameter \"taps\": no plan of this build can return inner values");
  }
  SetDeadline();
  return absl::OkStatus();
}

void InferCall::SetDeadline() {
  const auto system_deadline = context_->deadline();
  const auto system_now = std::chrono::system_clock::now();
  // gRPC's "none" is so far away that adding it to anything would overflow.
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
  const std::shared_ptr<Wait> wait = wait_;
  if (limit != Clock::time_point::max()) {
    wait->timer = core_.timer().At(limit, [this, wait] {
      if (wait->Take()) Expire();
    });
  }
  wait->taken = false;
  // A cancellation or an expiry that came while the call was owned found it taken.
  if (wait->cancelled && wait->Take()) {
    End(absl::CancelledError("the call was cancelled"));
    return false;
  }
  if (Clock::now() >= limit && wait->Take()) {
    Expire();
    return false;
  }
  return true;
}

void InferCall::StopTimer() {
  if (const Timer::Id timer = wait_->timer.exchange(0); timer != 0) core_.timer().Cancel(timer);
}

void InferCall::Expire() {
  const std::string waited = Cat(Microseconds(Clock::now() - arrived_) / 1000, " ms");
  if (plan_ == nullptr) {
    const uint64_t waiter = wait_->waiter;
    if (waiter != 0) version_->StopWaiting(waiter);
    End(absl::DeadlineExceededError(
        Cat(version_->Describe(), ": its baseline plan was not ready after ", waited)));
  } else {
    End(absl::DeadlineExceededError(
        Cat(version_->Describe(), ": the request waited ", waited, " for its turn")));
  }
}

void InferCall::OnCancel() {
  wait_->cancelled = true;
  if (!wait_->Take()) return;
  if (Clock::now() >= deadline_) {
    Expire();
    return;
  }
  const uint64_t waiter = wait_->waiter;
  if (waiter != 0) version_->StopWaiting(waiter);
  End(absl::CancelledError("the call was cancelled"));
}

void InferCall::AwaitPlan() {
  if (bound_.options.wait == RequestOptions::Wait::kNone &&
      version_->state() != v1::Model::FAILED) {
    End(absl::FailedPreconditionError(
        Cat(version_->Describe(),
            " has no plan yet, and parameter \"wait\" is \"none\"; its compile "
            "job is ",
            version_->job_id())));
    return;
  }
  const std::shared_ptr<Wait> wait = wait_;
  const std::shared_ptr<ModelVersion> version = version_;
  const auto longest = arrived_ + std::chrono::milliseconds(core_.options().max_wait_ms);
  if (!StartWaiting(std::min(deadline_, longest))) return;
  const uint64_t id = version->WhenReady([this, wait](const absl::Status& status) {
    if (wait->Take()) GotPlan(status);
  });
  wait->waiter = id;
  if (wait->taken) version->StopWaiting(id);
}

void InferCall::GotPlan(const absl::Status& status) {
  StopTimer();
  if (!status.ok()) {
    End(status);
    return;
  }
  plan_ = version_->plan();
  if (plan_ == nullptr) {
    End(absl::NotFoundError(Cat(version_->Describe(), " was deleted")));
    return;
  }
  Execute(/*on_rpc_thread=*/false);
}

void InferCall::Execute(bool on_rpc_thread) {
  if (absl::Status s = PrepareReply(); !s.ok()) {
    End(s);
    return;
  }
  if (on_rpc_thread &&
      plan_->runner->EstimateMicroseconds(bound_.dims) <= core_.options().inline_us) {
    ContextPool::Lease lease = plan_->contexts->TryAcquire();
    if (lease) {
      Run(std::move(lease));
      return;
    }
  }
  AwaitContext();
}

absl::Status InferCall::PrepareReply() {
  const OutputShapes& shapes = version_->output_shapes();
  std::vector<int64_t> shape;
  int64_t total = 0;
  for (int output : bound_.outputs) {
    int64_t bytes = 0;
    if (absl::Status s = shapes.Fill(output, bound_.dims, &shape, &bytes); !s.ok()) return s;
    auto* tensor = reply_.add_outputs();
    tensor->set_name(shapes.name(output));
    tensor->set_datatype(std::string(shapes.datatype(output)));
    tensor->mutable_shape()->Add(shape.begin(), shape.end());
    outputs_.push_back({output, nullptr, bytes});
    if (__builtin_add_overflow(total, bytes, &total) ||
        total > std::numeric_limits<int32_t>::max() - (1 << 20)) {
      return absl::ResourceExhaustedError(
          Cat("output ", Quoted(shapes.name(output)),
              ": the outputs asked for exceed the 2 GiB of one reply"));
    }
  }
  auto memory = core_.ledger().Reserve(
      HeldKind::kRequests, static_cast<int64_t>(request_bytes_->Length()) * 2 + total * 2,
      "request to " + version_->Describe());
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  for (RunOutput& output : outputs_) {
    std::string* raw = reply_.add_raw_output_contents();
    raw->resize(output.bytes);
    output.data = raw->data();
  }
  return absl::OkStatus();
}

void InferCall::AwaitContext() {
  const std::shared_ptr<Wait> wait = wait_;
  const std::shared_ptr<ContextPool> contexts = plan_->contexts;
  const int64_t priority = Priority();
  WorkQueue& queue = core_.run_queue();
  if (!StartWaiting(deadline_)) return;
  contexts->Acquire(
      [this, wait, priority, &queue](ContextPool::Lease lease) mutable {
        queue.Submit(
            [this, wait, lease = std::move(lease)]() mutable {
              if (wait->Take()) Run(std::move(lease));
            },
            priority);
      },
      priority);
}

void InferCall::Run(ContextPool::Lease lease) {
  StopTimer();
  const Clock::time_point begin = Clock::now();
  if (begin >= deadline_) {
    Expire();
    return;
  }
  const absl::Status status = plan_->runner->Run(*lease, bound_.dims, bound_.inputs, outputs_,
                                                 {deadline_, &wait_->cancelled});
  const int64_t exec_us = Microseconds(Clock::now() - begin);
  {
    ContextPool::Lease done = std::move(lease);
  }  // the next may run while the reply is written
  if (!status.ok()) {
    End(status);
    return;
  }
  reply_.set_model_name(version_->name());
  reply_.set_model_version(Cat(version_->version()));
  reply_.set_id(request_.id());
  auto& parameters = *reply_.mutable_parameters();
  parameters["plan_id"].set_string_param(plan_->info.plan_id());
  parameters["bucket"].set_string_param(plan_->bucket);
  parameters["compile_state"].set_string_param(plan_->info.kind());
  parameters["queue_us"].set_int64_param(Microseconds(begin - arrived_));
  parameters["exec_us"].set_int64_param(exec_us);
  const grpc::Status sent = SerializeReply(reply_, reply_bytes_);
  End(sent.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(sent.error_message()));
}

void InferCall::End(const absl::Status& status) {
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
