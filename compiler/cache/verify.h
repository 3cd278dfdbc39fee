// Looks at every row of a cache file.
//
//   v1::CacheVerification found = VerifyRows(file, /*quarantine=*/true).value();
//   found.bad_size() == 0 && found.database() == "ok"
#ifndef ATHANOR_COMPILER_CACHE_VERIFY_H_
#define ATHANOR_COMPILER_CACHE_VERIFY_H_

#include "absl/status/statusor.h"
#include "compiler/cache/sqlite_file.h"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor {

// Every checksum, that bodies parse, that keys have their length, and SQLite's own check of the
// file. With `quarantine` bad rows go there, indexes that do not fit are made anew, and a file that
// is damaged otherwise is moved aside and begun anew. REQUIRES: file.db(), a cache file.
absl::StatusOr<v1::CacheVerification> VerifyRows(SqliteFile& file, bool quarantine);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_VERIFY_H_
