// A call that is told of a state until it ends: what watchers of jobs and of health share. Others
// reach it through its link, which outlives it; all that it writes is written by the timer's thread
// or when a write is done, under the link's lock.
#ifndef ATHANOR_SERVER_RPC_WATCH_STREAM_H_
#define ATHANOR_SERVER_RPC_WATCH_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "google/protobuf/message.h"
#include "server/base/timer.h"
#include "server/core/core.h"

namespace athanor {

class WatchStream : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  class Link : public std::enable_shared_from_this<Link> {
   public:
    explicit Link(Timer& timer) : timer_(timer) {}
    // The call looks at its state soon, once for all who asked by then. By any thread, with any
    // lock but the call's own held.
    void Ask();
    void AskAt(Timer::Clock::time_point when);

   private:
    friend class WatchStream;
    Timer& timer_;
    Mutex mu_;
    WatchStream* call_ ABSL_GUARDED_BY(mu_) = nullptr;
    std::atomic<bool> asked_{false};
  };

  void OnWriteDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;

 protected:
  // `method` names the call in log lines; a literal.
  WatchStream(ServerCore& core, grpc::CallbackServerContext* context, const char* method);

  // Why the call is not admitted, if it is not.
  absl::Status admitted() const { return slot_.status(); }
  ServerCore& core() { return core_; }
  const std::shared_ptr<Link>& link() const { return link_; }

  // From here on what the link is asked reaches Look.
  void Open();
  // Ends a call that was never opened.
  void Refuse(const absl::Status& status);

  // Writes what is new, if anything is. Under the link's lock; no write is under way, and the call
  // has not ended.
  virtual void Look() = 0;
  // The call is over: whatever knows its link forgets it. No lock is held.
  virtual void Leave() = 0;

  // For Look.
  void Write(const google::protobuf::Message& state);
  void WriteLast(const google::protobuf::Message& state);
  void End(const absl::Status& status);

 private:
  void LookUnlessBusy() {
    if (!writing_ && !ended_) Look();
  }

  CallSlot slot_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  const char* const method_;
  const std::shared_ptr<Link> link_;
  // Under the link's lock.
  grpc::ByteBuffer bytes_;
  bool writing_ = false;
  bool ended_ = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_WATCH_STREAM_H_
