#include "server/rpc/status.h"

#include <string>

#include "server/base/public_status.h"

namespace athanor {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::Status sent = PublicStatus(status);
  // Both use the numbers of google.rpc.Code.
  return grpc::Status(static_cast<grpc::StatusCode>(sent.code()), std::string(sent.message()));
}

}  // namespace athanor
