#include "server/base/public_status.h"

#include "compiler/frontend/names.h"

namespace athanor {
namespace {

absl::StatusCode CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOutOfRange:
      return absl::StatusCode::kInvalidArgument;
    case absl::StatusCode::kAborted:
      return absl::StatusCode::kFailedPrecondition;
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return absl::StatusCode::kInternal;
    default:
      return code;
  }
}

}  // namespace

absl::Status PublicStatus(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(CodeOf(status.code()), Shortened(status).message());
}

}  // namespace athanor
