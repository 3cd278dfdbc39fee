// Base of calls that report a state until it ends: watchers of jobs and of health. Other threads
// reach the call through its link, which outlives it. All writes are started under the link's lock,
// by the timer's thread or when the previous write has completed.
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
#include "server/rpc/rpc_admission.h"

namespace athanor {

class WatchStream : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  class Link : public std::enable_shared_from_this<Link> {
   public:
    explicit Link(Timer& timer) : timer_(timer) {}
    // Makes the call look at its state soon, once for all requests until then. Any thread may call
    // it, holding any lock but the call's own.
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
  // `method` is a name of server/access/rpcs.h; a literal.
  WatchStream(ServerCore& core, grpc::CallbackServerContext* context, const char* method);

  // Returns why the call is not admitted; OK if it is.
  absl::Status admitted() const { return admission_.status(); }
  const Caller& caller() const { return admission_.caller(); }
  ServerCore& core() { return core_; }
  const std::shared_ptr<Link>& link() const { return link_; }

  // Opens the call: from now on requests to the link reach Look.
  void Open();
  // Ends a call that was not opened.
  void Refuse(const absl::Status& status);

  // Writes the state if it has changed. Called under the link's lock, with no write pending, before
  // the call has ended.
  virtual void Look() = 0;
  // Called without locks once the call has ended: must remove the link from wherever it is
  // registered.
  virtual void Leave() = 0;

  // To be called by Look.
  void Write(const google::protobuf::Message& state);
  void WriteLast(const google::protobuf::Message& state);
  void End(const absl::Status& status);

 private:
  void LookUnlessBusy() {
    if (!writing_ && !ended_) Look();
  }

  RpcAdmission admission_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  const char* const method_;
  const std::shared_ptr<Link> link_;
  // Guarded by the link's lock.
  grpc::ByteBuffer bytes_;
  bool writing_ = false;
  bool ended_ = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_WATCH_STREAM_H_
