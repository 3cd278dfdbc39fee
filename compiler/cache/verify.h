// Verifies every row of a cache file.
//
//   v1::CacheVerification found = VerifyRows(file, /*quarantine=*/true).value();
//   found.bad_size() == 0 && found.database() == "ok"
#ifndef ATHANOR_COMPILER_CACHE_VERIFY_H_
#define ATHANOR_COMPILER_CACHE_VERIFY_H_

#include "absl/status/statusor.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor {

// Checks that checksums fit, bodies parse and keys have their length, and runs SQLite's own check
// of the file. With `quarantine`, moves bad rows to the quarantine table, rebuilds indexes that do
// not fit their rows, and replaces a file with any other damage by a new one, moving the old one
// aside. REQUIRES: file.db(), a cache file.
absl::StatusOr<v1::CacheVerification> VerifyRows(SqliteFile& file, bool quarantine);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_VERIFY_H_
