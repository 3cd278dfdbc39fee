// What goes from a cache file that is to hold less: first what is of least use, then what was used
// longest ago. Plans that serve (incumbents) and the kernels they name go last.
//
//   CollectGarbage(file, {.limit_bytes = 1 << 30}).value().rows();
#ifndef ATHANOR_COMPILER_CACHE_GARBAGE_H_
#define ATHANOR_COMPILER_CACHE_GARBAGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/cache/sqlite_file.h"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor {

struct GarbageOptions {
  int64_t limit_bytes = 0;  // of the rows' pages; 0: none
  bool failures = false;    // forget all of them, not only the expired
  bool quarantine = false;  // forget what was quarantined
  bool dry_run = false;     // only say what would go
};

// Bytes of the pages that hold something. REQUIRES: file.db().
int64_t UsedBytes(SqliteFile& file);

// In transactions of some hundred rows, between which others write; then the file shrinks. A dry
// run is one, given up in the end. What an error leaves is a whole cache. Errors are
// SqliteFile::Failed's. REQUIRES: file.db(), a cache file.
absl::StatusOr<v1::CollectGarbageReply> CollectGarbage(SqliteFile& file,
                                                       const GarbageOptions& options);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_GARBAGE_H_
