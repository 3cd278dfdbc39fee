// Memory between runs: plans, recipes, timings, kernels, passed checks, failures, ended searches,
// targets. One SQLite file serves all processes of a machine.
//
//   std::unique_ptr<Cache> cache = Cache::Open({.path = path}, [](absl::string_view m) { ... });
//   std::optional<std::string> object = cache->kernels().Find(key);
//
// Gives out its tiers (tiers.h), the leases and the maintenance, which share one writer thread.
// A damaged file is moved aside and a new one begun. Thread-safe.
#ifndef ATHANOR_COMPILER_CACHE_CACHE_H_
#define ATHANOR_COMPILER_CACHE_CACHE_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/keys.h"
#include "compiler/cache/lease.h"
#include "compiler/cache/maintenance.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "compiler/cache/tiers.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor {

struct CacheOptions {
  std::string path;                        // empty: the cache holds nothing
  int64_t limit_bytes = int64_t{2} << 30;  // of the file; 0: no limit
  LeaseOptions leases;                     // Cache sets `wake`
};

// Counters of this process since it opened the cache, and the size of the file.
struct CacheCounts {
  struct Tier {
    absl::string_view name;  // as in CacheStat
    int64_t hits = 0;
    std::array<int64_t, kMissReasonCount> misses{};  // by MissReason
  };
  std::vector<Tier> tiers;  // all of them
  int64_t candidates_measured = 0;
  int64_t bytes = 0;  // as in CacheStat
};

class Cache {
 public:
  using Report = SqliteFile::Report;  // called from any thread

  static std::unique_ptr<Cache> Open(CacheOptions options, Report report);
  ~Cache();  // writes the queued rows
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  PlanTier& plans() { return plans_; }
  RecipeTier& recipes() { return recipes_; }
  TimingTier& timings() { return timings_; }
  KernelTier& kernels() { return kernels_; }
  CheckTier& checks() { return checks_; }
  FailureTier& failures() { return failures_; }
  SearchTier& searches() { return searches_; }
  TargetTier& targets() { return targets_; }
  // Leases, by which processes avoid doing the same work twice. No Lease may outlive the cache.
  LeaseTable& leases() { return leases_; }
  CacheMaintenance& maintenance() { return maintenance_; }

  // Returns OK once everything queued before is in the file, else the reason why not.
  absl::Status Flush(std::chrono::milliseconds limit);
  int64_t data_version();  // changes when another process has written; -1 without a file

  // Sums up all rows of all tiers, while Finds wait: for occasional callers.
  v1::CacheStat Stat();
  // Reads no table, so it can be called every second.
  CacheCounts Counts() const;
  // Explains why a plan is found or not, and what searches of its graph leave out after failures.
  // The caller sets `bucket`.
  v1::BucketExplanation Explain(const PlanKey& key);

  // Counters for Stat, updated by the callers that compile and measure.
  struct Work {
    std::atomic<int64_t> kernels_compiled{0};
    std::atomic<int64_t> candidates_measured{0};
    std::atomic<int64_t> kernels_from_cache{0};
  };
  Work& work() { return work_; }

  absl::Status ExecuteForTest(const std::string& sql);

 private:
  Cache(CacheOptions options, const Report& report);

  LeaseOptions WithWake();

  const CacheOptions options_;
  // For leases: taking one must not wait for the queue of writes.
  Mutex lease_mu_;
  SqliteFile lease_file_ ABSL_GUARDED_BY(lease_mu_);
  LeaseTable leases_;
  const std::unique_ptr<CacheWriter> writer_;
  const std::unique_ptr<CacheReader> reader_;
  const CacheFile file_;
  PlanTier plans_;
  RecipeTier recipes_;
  TimingTier timings_;
  KernelTier kernels_;
  CheckTier checks_;
  FailureTier failures_;
  SearchTier searches_;
  TargetTier targets_;
  CacheMaintenance maintenance_;
  Work work_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_CACHE_H_
