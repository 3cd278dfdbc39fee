// The tables of a cache file as numbered steps; SqliteFile applies those that a file lacks.
//
//   SqliteFile file(path, CacheSchema(), report);
#ifndef ATHANOR_COMPILER_CACHE_SCHEMA_H_
#define ATHANOR_COMPILER_CACHE_SCHEMA_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/cache/sqlite/sqlite_file.h"

namespace athanor {

SqliteSchema CacheSchema();

// Tables of the cache. A lookup asks an earlier tier first. Stat and metrics use the tables' names.
enum class Tier : uint8_t {
  kPlans,
  kRecipes,
  kTimings,
  kKernels,
  kChecks,
  kFailures,
  kSearches,
  kTargets,
  kQuarantine,
};
inline constexpr int kTierCount = 9;
absl::string_view TierName(Tier tier);

// Returns SHA-256, 32 bytes, over the fields in order, each with its length: no two lists of fields
// hash the same bytes.
std::string HashOfFields(absl::Span<const absl::string_view> fields);

int64_t WallMicroseconds();  // since 1970; only for people and for ordering rows

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_SCHEMA_H_
