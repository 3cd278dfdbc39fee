// What calls share to which clients stream chunks: a place (upload_places.h), one read at a time
// and no faster than --upload_rate, an end for those that say nothing or too little.
#ifndef ATHANOR_SERVER_RPC_CHUNK_READS_H_
#define ATHANOR_SERVER_RPC_CHUNK_READS_H_

#include <string>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "server/base/timer.h"
#include "server/base/work_queue.h"
#include "server/core/core.h"

namespace athanor {

// Each chunk is worked on by `queue`, so that a slow disk slows its own upload only. What keeps the
// call from ending twice: at any time either a read, a piece of work, a pause or nothing is
// outstanding, and only its end goes on.
class ChunkReads : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // Counts the call among the uploads; one too many is refused.
  void Begin();
  void OnReadDone(bool ok) final;

 protected:
  // `what` is being sent, for errors: "upload".
  ChunkReads(ServerCore& core, grpc::CallbackServerContext* context, WorkQueue& queue,
             const char* what)
      : slot_(core, context->peer()), core_(core), context_(context), queue_(queue), what_(what) {}

  // On the queue: bytes_ has come, or, without `ok`, the client is done or gone. Reads on, or ends.
  virtual void Work(bool ok) = 0;
  virtual void End(const absl::Status& status) = 0;
  // What is said to who sends nothing, behind the reason.
  virtual std::string WhatIsMissing() const { return ""; }
  void Read();
  // The end of the call, which is no upload any more once its client hears of it: the next one of
  // the same client is not one too many.
  void FinishUpload(const grpc::Status& status);

  CallSlot slot_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer bytes_;

 private:
  void ReadAt(Timer::Clock::time_point when);
  void ReadNow();
  // While it waits for its client: whoever ended the wait.
  void GiveUp(const absl::Status& why);

  WorkQueue& queue_;
  const char* const what_;
  UploadPlaces::PlacePtr place_;  // null: it was refused
  Timer::Id timer_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_CHUNK_READS_H_
