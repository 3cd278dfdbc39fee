// Long operations on a whole cache file, over a connection of their own: neither Finds nor Puts
// wait for them. Each first writes the rows that this process has queued.
//
//   v1::CacheVerification found = cache->maintenance().Verify(/*quarantine=*/true).value();
//
// FAILED_PRECONDITION: there is no usable file. Thread-safe; one runs at a time. A Cache owns it.
#ifndef ATHANOR_COMPILER_CACHE_MAINTENANCE_H_
#define ATHANOR_COMPILER_CACHE_MAINTENANCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/cache/keys.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor {

enum class ExportStage : uint8_t { kRecipes, kPlans, kSearches, kKernels, kEnd };

// Selection of what to export, and the progress of the export.
struct ExportCursor {
  int64_t semantics_version = 0;  // recipes of other versions have another meaning
  int64_t recipe_format = 0;
  bool binaries = false;  // also exports kernels and plans
  // Exports only what these keys name: the best plan under each condition and the baselines, the
  // searches that have ended, and the plans' kernels. REQUIRES: binaries.
  std::optional<std::vector<PlanKey>> of = std::nullopt;
  // Progress, advanced by Export.
  ExportStage stage = ExportStage::kRecipes;
  int64_t rowid = 0;                      // in the stage's table, if everything is exported
  size_t next = 0;                        // index in `of` or `kernels`
  std::vector<std::string> kernels = {};  // KernelKey::Hash, each once
};

struct BundleOrigin {
  int64_t semantics_version = 0;
  std::string origin;  // for people
  std::string digest;  // 32 bytes; identifies the bundle
};

class CacheWriter;

class CacheMaintenance {
 public:
  // `limit_bytes`: of the file; 0: no limit. `writer` must outlive it.
  CacheMaintenance(const std::string& path, int64_t limit_bytes, CacheWriter* writer,
                   SqliteFile::Report report);

  absl::StatusOr<v1::CacheVerification> Verify(bool quarantine);
  absl::StatusOr<v1::CollectGarbageReply> CollectGarbage(const v1::CollectGarbageRequest& request);
  // Returns the next records for a bundle, without links, some MiB of them: recipes, then plans,
  // searches and kernels if they are wanted. Empty: the end. Leaves out bad rows.
  absl::StatusOr<std::vector<v1::CacheBundleRecord>> Export(ExportCursor* at);
  // Imports all of a bundle's records, or none. Existing rows stay.
  absl::StatusOr<v1::ImportCacheReply> Import(absl::Span<const v1::CacheBundleRecord> records,
                                              const BundleOrigin& from);

 private:
  void WriteQueued();

  const int64_t limit_bytes_;
  CacheWriter& writer_;
  Mutex mu_;
  SqliteFile file_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_MAINTENANCE_H_
