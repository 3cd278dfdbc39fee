#include "server/rpc/watch_stream.h"

#include "server/rpc/call.h"

namespace athanor {

void WatchStream::Link::Ask() {
  if (!asked_.exchange(true)) AskAt(Timer::Clock::now());
}

void WatchStream::Link::AskAt(Timer::Clock::time_point when) {
  timer_.At(when, [link = shared_from_this()] {
    link->asked_ = false;
    MutexLock lock(link->mu_);
    if (link->call_ != nullptr) link->call_->LookUnlessBusy();
  });
}

WatchStream::WatchStream(ServerCore& core, grpc::CallbackServerContext* context, const char* method)
    : admission_(core, *context, method, CallKind::kStream),
      core_(core),
      context_(context),
      method_(method),
      link_(std::make_shared<Link>(core.timer())) {}

void WatchStream::Open() {
  MutexLock lock(link_->mu_);
  link_->call_ = this;
}

void WatchStream::Refuse(const absl::Status& status) {
  // Locked, because the client may cancel meanwhile.
  MutexLock lock(link_->mu_);
  End(status);
}

void WatchStream::OnWriteDone(bool ok) {
  MutexLock lock(link_->mu_);
  writing_ = false;
  if (ok) {
    LookUnlessBusy();
  } else {
    End(absl::CancelledError("the watcher went away"));
  }
}

void WatchStream::OnCancel() {
  MutexLock lock(link_->mu_);
  End(absl::CancelledError("the watcher went away"));
}

void WatchStream::OnDone() {
  Leave();
  {
    MutexLock lock(link_->mu_);
    link_->call_ = nullptr;
  }
  delete this;
}

void WatchStream::Write(const google::protobuf::Message& state) {
  const grpc::Status serialized = SerializeReply(state, &bytes_);
  if (!serialized.ok()) return End(absl::ResourceExhaustedError(serialized.error_message()));
  writing_ = true;
  StartWrite(&bytes_);
}

void WatchStream::WriteLast(const google::protobuf::Message& state) {
  const grpc::Status serialized = SerializeReply(state, &bytes_);
  if (!serialized.ok()) return End(absl::ResourceExhaustedError(serialized.error_message()));
  writing_ = true;
  ended_ = true;
  StartWriteAndFinish(&bytes_, grpc::WriteOptions(),
                      EndCall(method_, *context_, absl::OkStatus(), &admission_));
}

void WatchStream::End(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  Finish(EndCall(method_, *context_, status, &admission_));
}

}  // namespace athanor
