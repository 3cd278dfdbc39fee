// absl::Status to grpc::Status, the one place where codes cross.
//
//   reactor->Finish(ToGrpc(status));
//
// Codes are those of DESIGN §9; UNKNOWN is never sent. Messages are cut to 2 KiB, because they travel
// in headers.
#ifndef ATHANOR_SERVER_RPC_STATUS_H_
#define ATHANOR_SERVER_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace athanor {

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_STATUS_H_
