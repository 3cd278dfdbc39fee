// The connection that Finds read through, and what they count. For the files of this folder.
#ifndef ATHANOR_COMPILER_CACHE_CACHE_READER_H_
#define ATHANOR_COMPILER_CACHE_CACHE_READER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/cache/cache.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/rows.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

// Thread-safe. Writes nothing itself: bad rows and what was used go to `writer`.
class CacheReader {
 public:
  // Opens nothing while the writer finds no usable file: that has been reported.
  CacheReader(std::string path, CacheWriter* writer, SqliteFile::Report report);

  struct Outcome {
    bool readable = false;
    bool busy = false;
    int64_t bad = 0;  // rows whose checksums did not fit
    // Of a miss; kAbsent where the file was read and had nothing.
    MissReason Reason() const;
  };
  // Rows `where` (see SelectRows) with fitting checksums, until `take` says false; the others go to
  // quarantine. Those that were taken count as used.
  Outcome Select(Tier tier, absl::string_view where, absl::Span<const Value> bound,
                 absl::FunctionRef<bool(const RowView&)> take);
  // The rows of `sql`, a SELECT, as they are: no checksum is looked at.
  Outcome Read(absl::string_view sql, absl::Span<const Value> bound,
               absl::FunctionRef<void(const Statement&)> take);
  // Whether `sql`, a SELECT, gives a row.
  bool Exists(absl::string_view sql, absl::Span<const Value> bound);
  // The first column of its first row; nullopt without one.
  std::optional<int64_t> Integer(absl::string_view sql, absl::Span<const Value> bound);

  // One lookup of a tier; on a miss its reason goes to `why`, if given.
  void CountHit(Tier tier);
  void CountMiss(Tier tier, MissReason reason, MissReason* why);
  void CountBad(Tier tier, int64_t rows);  // found wrong by others than the checksum
  // hits, misses by reason, bad rows.
  void AddCounts(Tier tier, v1::CacheStat::TierStat* stat) const;
  CacheCounts::Tier TierCounts(Tier tier) const;  // takes no lock

  int64_t data_version();
  absl::Status Execute(const std::string& sql);

 private:
  // Whether the file can be read now; opens it when the writer has.
  bool Readable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct Counts {
    std::atomic<int64_t> hits{0};
    std::atomic<int64_t> bad_rows{0};
    std::array<std::atomic<int64_t>, kMissReasonCount> misses{};
  };

  CacheWriter& writer_;
  Mutex mu_;
  SqliteFile file_ ABSL_GUARDED_BY(mu_);
  int64_t opened_ ABSL_GUARDED_BY(mu_) = 0;  // what the writer's opened() was then
  std::array<Counts, kTierCount> counts_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_CACHE_READER_H_
