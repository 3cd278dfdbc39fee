// Converts absl::Status to grpc::Status, in this one place.
//
//   reactor->Finish(ToGrpc(status));
//
// The codes are those of PublicStatus (server/base/public_status.h). A refusal that says when to
// come again (server/base/retry_after.h) has a google.rpc.RetryInfo among its details.
#ifndef ATHANOR_SERVER_RPC_STATUS_H_
#define ATHANOR_SERVER_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace athanor {

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_STATUS_H_
