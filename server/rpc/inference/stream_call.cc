#include "server/rpc/inference/stream_call.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"
#include "server/rpc/inference/stream_request.h"

namespace athanor {
namespace {

// How often a stream without requests looks whether the server drains.
constexpr std::chrono::milliseconds kLookForDrain{500};
// Triton's header with which errors end a stream.
constexpr char kErrorsEnd[] = "triton_grpc_error";

bool WantsErrorsToEnd(const grpc::CallbackServerContext& context) {
  const auto header = context.client_metadata().find(kErrorsEnd);
  return header != context.client_metadata().end() && header->second == "true";
}

}  // namespace

StreamCall::StreamCall(ServerCore& core, grpc::CallbackServerContext* context)
    : admission_(core, *context, StreamRequest::kMethod, CallKind::kStream),
      core_(core),
      context_(context),
      errors_end_it_(WantsErrorsToEnd(*context)),
      most_(static_cast<size_t>(std::min(kMostInFlight, core.options().max_connection_calls))) {}

StreamCall* StreamCall::Begin() {
  const absl::Status admitted = admission_.status();
  // Its requests count among the identity's calls; the stream would be one more.
  admission_.End();
  MutexLock lock(link_->mu);
  link_->call = this;
  if (admitted.ok()) {
    ReadMore();
    LookForDrain();
  } else {
    EndWith(admitted);
    FinishIfOver();
  }
  return this;
}

void StreamCall::ReadMore() {
  if (reading_ || read_all_ || ending_ || requests_.size() >= most_) return;
  reading_ = true;
  StartRead(&bytes_);
}

StreamCall::Requests StreamCall::WriteNext() {
  if (writing_ || ending_ || requests_.empty() || !requests_.front()->ended) return {};
  const StreamRequest& next = *requests_.front();
  if (errors_end_it_ && !next.status().ok()) return EndWith(next.status());
  writing_ = true;
  StartWrite(&next.answer());
  return {};
}

StreamCall::Requests StreamCall::EndWith(const absl::Status& status) {
  if (ending_) return {};
  ending_ = true;
  end_ = status;
  return {requests_.begin(), requests_.end()};
}

void StreamCall::FinishIfOver() {
  if (finished_ || writing_) return;
  if (requests_.empty() && read_all_) EndWith(absl::OkStatus());
  if (requests_.empty() && core_.draining()) {
    EndWith(absl::UnavailableError("the server is draining"));
  }
  if (!ending_) return;
  for (const auto& request : requests_) {
    if (!request->ended) return;
  }
  finished_ = true;
  Finish(EndCall(StreamRequest::kMethod, *context_, end_, &admission_));
}

void StreamCall::LookForDrain() {
  core_.timer().At(Timer::Clock::now() + kLookForDrain, [link = link_] {
    MutexLock lock(link->mu);
    if (link->call == nullptr || link->call->finished_) return;
    link->call->FinishIfOver();
    link->call->LookForDrain();
  });
}

void StreamCall::Cancel(const Requests& requests) {
  for (const auto& request : requests) request->Cancel();
}

void StreamCall::OnReadDone(bool ok) {
  std::shared_ptr<StreamRequest> request;
  {
    MutexLock lock(link_->mu);
    if (ok && !ending_) {
      request = std::make_shared<StreamRequest>(core_, context_, this, std::move(bytes_));
      bytes_.Clear();
      requests_.push_back(request);
    } else {
      read_all_ = true;
    }
  }
  // It may run here, and end.
  if (request != nullptr) request->Begin();
  MutexLock lock(link_->mu);
  reading_ = false;
  ReadMore();
  FinishIfOver();
}

void StreamCall::Ended(StreamRequest* request) {
  const std::shared_ptr<Link> link = link_;  // the call may be gone as soon as it is finished
  Requests cancelled;
  {
    MutexLock lock(link->mu);
    request->ended = true;
    cancelled = WriteNext();
    FinishIfOver();
  }
  Cancel(cancelled);
}

void StreamCall::OnWriteDone(bool ok) {
  std::shared_ptr<StreamRequest> answered;  // goes without the lock
  Requests cancelled;
  {
    MutexLock lock(link_->mu);
    writing_ = false;
    answered = std::move(requests_.front());
    requests_.pop_front();
    cancelled = ok ? WriteNext() : EndWith(absl::CancelledError("the client has left"));
    ReadMore();
    FinishIfOver();
  }
  Cancel(cancelled);
}

void StreamCall::OnCancel() {
  Requests cancelled;
  {
    MutexLock lock(link_->mu);
    cancelled = EndWith(absl::CancelledError("the call was cancelled"));
    FinishIfOver();
  }
  Cancel(cancelled);
}

void StreamCall::OnDone() {
  {
    MutexLock lock(link_->mu);
    link_->call = nullptr;
  }
  delete this;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* InferenceService::ModelStreamInfer(
    Context* context) {
  return (new StreamCall(core_, context))->Begin();
}

}  // namespace athanor
