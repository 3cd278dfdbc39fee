// A ModelStreamInfer call: requests come in one stream, and each is answered, in their order, in
// the other. A request that fails is answered with an error_message; the stream goes on.
//
//   return (new StreamCall(core, context))->Begin();
//
// Each request is a call of its own to the rest of the server: it is admitted, counts for
// --max_pending and its identity's quotas, and goes the way of ModelInfer. At most kMostInFlight of
// a stream, or --max_connection_calls, are in the server; the stream is not read meanwhile, so that
// its client waits. A reply that its client does not read is one of them, but takes no place of
// --max_pending.
//
// Ends when its client has sent all and all is answered, when the client leaves, when its deadline
// is over, or, while the server drains, when nothing is in flight.
//
// Deletes itself when gRPC is done with it.
#ifndef ATHANOR_SERVER_RPC_INFERENCE_STREAM_CALL_H_
#define ATHANOR_SERVER_RPC_INFERENCE_STREAM_CALL_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/core/core.h"
#include "server/rpc/rpc_admission.h"

namespace athanor {

class StreamRequest;

class StreamCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  static constexpr int64_t kMostInFlight = 64;

  StreamCall(ServerCore& core, grpc::CallbackServerContext* context);

  StreamCall* Begin();
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Takes the end of a request, on any thread.
  void Ended(StreamRequest* request);

 private:
  // Leads other threads to the call; outlives it.
  struct Link {
    Mutex mu;
    StreamCall* call ABSL_GUARDED_BY(mu) = nullptr;
  };
  using Requests = std::vector<std::shared_ptr<StreamRequest>>;

  // Under the link's lock. Those that return requests have ended the call: cancel these without
  // the lock.
  void ReadMore();
  Requests WriteNext();
  Requests EndWith(const absl::Status& status);
  // Ends the call for gRPC if there is nothing left to do.
  void FinishIfOver();
  void LookForDrain();

  static void Cancel(const Requests& requests);

  RpcAdmission admission_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  const bool errors_end_it_;  // its client wants the first error as the call's status
  const size_t most_;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();

  // Guarded by the link's lock.
  std::deque<std::shared_ptr<StreamRequest>> requests_;  // the first one is answered next
  grpc::ByteBuffer bytes_;                               // being read
  bool reading_ = false;
  bool writing_ = false;
  bool read_all_ = false;  // the client has sent its last request
  bool ending_ = false;    // nothing is read or written any more
  bool finished_ = false;
  absl::Status end_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFERENCE_STREAM_CALL_H_
