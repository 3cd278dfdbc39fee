// Removes rows until a cache file is within its limit: the least useful kinds first, and the rows
// used longest ago first within a kind. Serving plans (incumbents) and the kernels they name go
// last.
//
//   CollectGarbage(file, {.limit_bytes = 1 << 30}).value().rows();
#ifndef ATHANOR_COMPILER_CACHE_GARBAGE_H_
#define ATHANOR_COMPILER_CACHE_GARBAGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor {

struct GarbageOptions {
  int64_t limit_bytes = 0;  // for the pages that rows occupy; 0: no limit
  bool failures = false;    // removes all of them, not only the expired
  bool quarantine = false;  // removes quarantined rows
  bool dry_run = false;     // only counts what would be removed
};

// Returns the bytes of the pages in use. REQUIRES: file.db().
int64_t UsedBytes(SqliteFile& file);

// Removes rows in transactions of some hundred, between which others can write; then shrinks the
// file. A dry run is one transaction, rolled back at the end. An error leaves a consistent cache;
// errors are those of SqliteFile::Failed. REQUIRES: file.db(), a cache file.
absl::StatusOr<v1::CollectGarbageReply> CollectGarbage(SqliteFile& file,
                                                       const GarbageOptions& options);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_GARBAGE_H_
