#include "compiler/cache/maintenance.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/garbage.h"
#include "compiler/cache/schema.h"
#include "compiler/cache/verify.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

CacheMaintenance::CacheMaintenance(const std::string& path, int64_t limit_bytes,
                                   CacheWriter* writer, SqliteFile::Report report)
    : limit_bytes_(limit_bytes), writer_(*writer), file_(path, CacheSchema(), std::move(report)) {}

void CacheMaintenance::WriteQueued() {
  constexpr std::chrono::seconds kMostWait{10};
  // Rows that cannot be written now do not matter for the rows in the file.
  writer_.Flush(kMostWait).IgnoreError();
}

absl::StatusOr<v1::CacheVerification> CacheMaintenance::Verify(bool quarantine) {
  WriteQueued();
  MutexLock lock(mu_);
  RETURN_IF_ERROR(writer_.OpenAnother(file_));
  return VerifyRows(file_, quarantine);
}

absl::StatusOr<v1::CollectGarbageReply> CacheMaintenance::CollectGarbage(
    const v1::CollectGarbageRequest& request) {
  if (request.limit_bytes() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("limit_bytes: ", request.limit_bytes(),
                     " is negative; give the bytes to keep, or 0 for the server's limit"));
  }
  WriteQueued();
  MutexLock lock(mu_);
  RETURN_IF_ERROR(writer_.OpenAnother(file_));
  return athanor::CollectGarbage(
      file_, {.limit_bytes = request.limit_bytes() > 0 ? request.limit_bytes() : limit_bytes_,
              .failures = request.failures(),
              .quarantine = request.quarantine(),
              .dry_run = request.dry_run()});
}

}  // namespace athanor
