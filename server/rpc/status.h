// absl::Status to grpc::Status, the one place where they cross.
//
//   reactor->Finish(ToGrpc(status));
//
// Codes are those of PublicStatus (server/base/public_status.h).
#ifndef ATHANOR_SERVER_RPC_STATUS_H_
#define ATHANOR_SERVER_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace athanor {

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_STATUS_H_
