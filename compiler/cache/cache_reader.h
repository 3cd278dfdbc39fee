// The connection that Finds read through, and their counters. For the files of this folder.
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

// Thread-safe. Writes nothing itself: hands bad rows and use marks to `writer`.
class CacheReader {
 public:
  // Opens nothing while the writer has no usable file: the writer has reported that.
  CacheReader(std::string path, CacheWriter* writer, SqliteFile::Report report);

  struct Outcome {
    bool readable = false;
    bool busy = false;
    int64_t bad = 0;  // rows whose checksums did not fit
    // Returns the reason of a miss; kAbsent if the file was read and had no row.
    MissReason Reason() const;
  };
  // Reads the rows `where` (see SelectRows) whose checksums fit, until `take` returns false. Rows
  // that are read count as used; bad rows go to quarantine.
  Outcome Select(Tier tier, absl::string_view where, absl::Span<const Value> bound,
                 absl::FunctionRef<bool(const RowView&)> take);
  // Reads the rows of `sql`, a SELECT, without checking checksums.
  Outcome Read(absl::string_view sql, absl::Span<const Value> bound,
               absl::FunctionRef<void(const Statement&)> take);
  // Reports whether `sql`, a SELECT, gives a row.
  bool Exists(absl::string_view sql, absl::Span<const Value> bound);
  // Returns the first column of the first row; nullopt if there is none.
  std::optional<int64_t> Integer(absl::string_view sql, absl::Span<const Value> bound);

  // Count one lookup of a tier. A miss sets `why`, if given, to its reason.
  void CountHit(Tier tier);
  void CountMiss(Tier tier, MissReason reason, MissReason* why);
  void CountBad(Tier tier, int64_t rows);  // bad in another way than by checksum
  // Adds hits, misses by reason, and bad rows.
  void AddCounts(Tier tier, v1::CacheStat::TierStat* stat) const;
  CacheCounts::Tier TierCounts(Tier tier) const;  // takes no lock

  int64_t data_version();
  absl::Status Execute(const std::string& sql);

 private:
  // Reports whether the file can be read now; opens it if the writer has reopened it.
  bool Readable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct Counts {
    std::atomic<int64_t> hits{0};
    std::atomic<int64_t> bad_rows{0};
    std::array<std::atomic<int64_t>, kMissReasonCount> misses{};
  };

  CacheWriter& writer_;
  Mutex mu_;
  SqliteFile file_ ABSL_GUARDED_BY(mu_);
  int64_t opened_ ABSL_GUARDED_BY(mu_) = 0;  // writer_.opened() at that time
  std::array<Counts, kTierCount> counts_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_CACHE_READER_H_
