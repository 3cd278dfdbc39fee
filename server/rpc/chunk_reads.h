// Base of calls to which clients stream chunks. Such a call holds a place (upload_places.h), reads
// one chunk at a time and no faster than --upload_rate, and ends if its client sends nothing or too
// little.
#ifndef ATHANOR_SERVER_RPC_CHUNK_READS_H_
#define ATHANOR_SERVER_RPC_CHUNK_READS_H_

#include <string>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "server/base/timer.h"
#include "server/base/work_queue.h"
#include "server/core/core.h"
#include "server/rpc/rpc_admission.h"

namespace athanor {

// Each chunk is processed on `queue`, so that a slow disk slows down its own upload only. The call
// cannot end twice: at any time at most one of a read, a piece of work and a pause is outstanding,
// and only its completion continues the call.
class ChunkReads : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // Counts the call as an upload; refuses it if there are too many.
  void Begin();
  void OnReadDone(bool ok) final;

 protected:
  // `what` names the call in errors: "upload". `method` is a name of server/access/rpcs.h.
  ChunkReads(ServerCore& core, grpc::CallbackServerContext* context, WorkQueue& queue,
             const char* what, const char* method)
      : admission_(core, *context, method),
        core_(core),
        context_(context),
        queue_(queue),
        what_(what) {}

  // Runs on the queue once bytes_ has arrived or, if `ok` is false, once the client has finished or
  // gone. Must call Read or end the call.
  virtual void Work(bool ok) = 0;
  virtual void End(const absl::Status& status) = 0;
  // Returns text to append to the error of a client that sends nothing.
  virtual std::string WhatIsMissing() const { return ""; }
  void Read();
  // Ends the call. Gives its place back before the client hears of it, so that the client's next
  // upload is not one too many.
  void FinishUpload(const grpc::Status& status);

  RpcAdmission admission_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer bytes_;

 private:
  void ReadAt(Timer::Clock::time_point when);
  void ReadNow();
  // Ends the call while it waits for its client; called by whoever ended the wait.
  void GiveUp(const absl::Status& why);

  WorkQueue& queue_;
  const char* const what_;
  UploadPlaces::PlacePtr place_;  // null: it was refused
  Timer::Id timer_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_CHUNK_READS_H_
