// What is remembered between runs: plans, recipes, timings, kernels, passed checks, failures; one
// SQLite file for all processes of a machine.
//
//   std::unique_ptr<Cache> cache = Cache::Open({.path = path}, [](absl::string_view m) { ... });
//   if (std::optional<PlanRow> row = cache->FindPlan(key)) return row->stored;
//   ... make it ...
//   cache->PutPlan(key, row);      // returns at once: the writer thread writes
//
// Finds neither write nor fail: without a usable file all is a miss. A row is believed only if its
// checksum fits; any other is a miss and goes to quarantine. Puts are queued (64 MiB; then the
// caller waits up to 1 s and the row is dropped and counted), and what is queued is found by this
// process. A damaged file is moved aside and begun anew. Thread-safe.
#ifndef ATHANOR_COMPILER_CACHE_CACHE_H_
#define ATHANOR_COMPILER_CACHE_CACHE_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/cache/keys.h"
#include "compiler/cache/lease.h"
#include "compiler/cache/sqlite_file.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/internal/stored.pb.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/cache.pb.h"
#include "proto/athanor/v1/compile.pb.h"
#include "proto/athanor/v1/search.pb.h"

namespace athanor {

struct CacheOptions {
  std::string path;                        // empty: a cache that holds nothing
  int64_t limit_bytes = int64_t{2} << 30;  // of the file; 0: none
  LeaseOptions leases;                     // `wake` is set here
};

struct PlanRow {
  internal::StoredPlan stored;
  bool incumbent = false;        // the best of its key and conditions so far
  double share_of_baseline = 1;  // its time by the baseline's, with 95 % bounds
  double low = 1;
  double high = 1;
  std::string compared_with;     // how it was verified: "kernels", "f64 plan", ...
  bool conditions_equal = true;  // of a found row: no search is due
};

struct TimingRow {
  std::vector<double> seconds, low, high;  // by size
  int32_t rounds = 0;
  bool checked = false;  // else it may not serve
};

struct FailureRow {
  absl::Status status;
  std::string about;  // FailureAbout, where Explain is to show it
};
// "graph 12ab...: kernel 7"
std::string FailureAbout(absl::string_view graph_hash, absl::string_view what);
enum class FailureKind : uint8_t { kLower, kCompile, kCheck, kMeasure, kPlanCheck, kLoad };
absl::string_view FailureKindName(FailureKind kind);  // "plan_check"
// How long a failure is believed, in microseconds; 0: it is not remembered.
int64_t FailureLifetime(absl::StatusCode code);

// Of one search of all that may be made for a plan's key, its conditions included; 32 bytes.
std::string SearchKeyOf(const PlanKey& key, const v1::SearchOptions& options);

struct SearchState {
  v1::CompileJob::StopReason stop = v1::CompileJob::STOP_REASON_UNSPECIFIED;
  double seconds = 0;
  int64_t candidates = 0;
};

enum class MissReason : uint8_t { kAbsent, kGate, kBadRow, kExpired, kNoCache, kBusy };
inline constexpr int kMissReasonCount = 6;
absl::string_view MissReasonName(MissReason reason);  // a word for metrics: "bad_row"

// What this process has counted since it opened the cache, and the size of the file.
struct CacheCounts {
  struct Tier {
    absl::string_view name;  // as in CacheStat
    int64_t hits = 0;
    std::array<int64_t, kMissReasonCount> misses{};  // by MissReason
  };
  std::vector<Tier> tiers;  // all of them
  int64_t kernels_compiled = 0;
  int64_t candidates_measured = 0;
  int64_t bytes = 0;  // as in CacheStat
};

enum class ExportStage : uint8_t { kRecipes, kPlans, kSearches, kKernels, kEnd };

// What is exported, and how far that has come.
struct ExportCursor {
  int64_t semantics_version = 0;  // recipes of others mean something else
  int64_t recipe_format = 0;
  bool binaries = false;  // kernels and plans, too
  // Only what these name: the best plan under each condition and the baselines, the searches that
  // have ended, and the plans' kernels. REQUIRES: binaries.
  std::optional<std::vector<PlanKey>> of = std::nullopt;
  // Moved on by Cache::Export.
  ExportStage stage = ExportStage::kRecipes;
  int64_t rowid = 0;                      // of everything
  size_t next = 0;                        // of `of` and `kernels`
  std::vector<std::string> kernels = {};  // KernelKey::Hash, each once
};

struct BundleOrigin {
  int64_t semantics_version = 0;
  std::string origin;  // for people
  std::string digest;  // 32 bytes, the bundle's name
};

class CacheReader;
class CacheWriter;

class Cache {
 public:
  using Report = SqliteFile::Report;  // from any thread

  static std::unique_ptr<Cache> Open(CacheOptions options, Report report);
  ~Cache();  // writes what is queued
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // Of equal conditions first, of those the incumbent; `why`, if given, is set on a miss.
  std::optional<PlanRow> FindPlan(const PlanKey& key, MissReason* why = nullptr);
  std::optional<PlanRow> FindPlanById(const PlanKey& key, absl::string_view plan_id);
  std::vector<PlanRow> Plans(const PlanKey& key);  // in the order of FindPlan
  // As Plans, without their bodies: of `stored` only plan_id, kind, how.disabled_rules and
  // kernel_keys. No checksum is looked at and nothing counted: to see whether to look further.
  std::vector<PlanRow> PlanHeads(const PlanKey& key);
  // With `row.incumbent` the one before is none any more. A plan of the same id is replaced.
  void PutPlan(const PlanKey& key, const PlanRow& row);
  // Puts all rows of this plan aside, whatever they were made under: it is wrong. OK once no Find
  // of any process gives it.
  absl::Status QuarantinePlan(const PlanKey& key, absl::string_view plan_id, absl::string_view why);

  // This key's first, and of those `machine`'s; then the same region's in other boxes.
  std::vector<v1::RegionRecipe> FindRecipes(const RecipeKey& key, const v1::Target& machine,
                                            size_t most);
  void PutRecipe(const RecipeKey& key, const v1::RegionRecipe& recipe,
                 absl::string_view origin = "search");

  std::optional<TimingRow> FindTiming(const TimingKey& key, MissReason* why = nullptr);
  void PutTiming(const TimingKey& key, const TimingRow& row);

  // The bytes of a compiled kernel, at most 256 MiB of which are kept.
  std::optional<std::string> FindKernel(const KernelKey& key, MissReason* why = nullptr);
  void PutKernel(const KernelKey& key, absl::string_view object);
  bool HasKernel(absl::string_view key);  // KernelKey::Hash; counts nothing

  // Whether the check with this CheckKey has passed before.
  bool HasPassed(absl::string_view check_key);
  void PutPassed(absl::string_view check_key);

  std::optional<FailureRow> FindFailure(absl::string_view key, FailureKind kind,
                                        MissReason* why = nullptr);
  // When it expires follows from the code; some are not kept at all.
  void PutFailure(absl::string_view key, FailureKind kind, const FailureRow& row);

  std::optional<SearchState> FindSearch(const PlanKey& key, const v1::SearchOptions& options);
  void PutSearch(const PlanKey& key, const v1::SearchOptions& options, const SearchState& state);

  std::optional<internal::TargetReply> FindTarget(absl::string_view machine,
                                                  absl::string_view tuner);
  void PutTarget(absl::string_view machine, absl::string_view tuner,
                 const internal::TargetReply& reply);

  // OK once everything queued before is in the file, else why not.
  absl::Status Flush(std::chrono::milliseconds limit);
  // Who makes what, of all processes: so that it is done once. No Lease outlives the cache.
  LeaseTable& leases() { return leases_; }
  int64_t data_version();  // changes when another process has written; -1 without a file

  // Adds up all rows of all tiers, while Finds wait: for those who ask once.
  v1::CacheStat Stat();
  // Asks no table, so whoever asks every second disturbs nobody.
  CacheCounts Counts() const;
  // Why FindPlan hits or misses, and what searches of its graph do not try since it failed;
  // `bucket` is left to the caller.
  v1::BucketExplanation Explain(const PlanKey& key);
  // These four look at what this process has still to write, too. FAILED_PRECONDITION: no usable
  // file.
  absl::StatusOr<v1::CacheVerification> Verify(bool quarantine);
  absl::StatusOr<v1::CollectGarbageReply> CollectGarbage(const v1::CollectGarbageRequest& request);
  // The next records for a bundle, without links, some MiB of them: recipes, then plans, searches
  // and kernels where they are wanted; none: the end. Bad rows are left out.
  absl::StatusOr<std::vector<v1::CacheBundleRecord>> Export(ExportCursor* at);
  // All of a bundle's records, or none. What is here already stays.
  absl::StatusOr<v1::ImportCacheReply> Import(absl::Span<const v1::CacheBundleRecord> records,
                                              const BundleOrigin& from);

  // Counted by whoever compiles and measures, for Stat.
  struct Work {
    std::atomic<int64_t> kernels_compiled{0};
    std::atomic<int64_t> candidates_measured{0};
    std::atomic<int64_t> kernels_from_cache{0};
  };
  Work& work() { return work_; }

  absl::Status ExecuteForTest(const std::string& sql);

 private:
  Cache(CacheOptions options, const Report& report);

  // At most `most` in the order of FindPlan; of `plan_id` only, where it is not empty.
  std::vector<PlanRow> ReadPlans(const PlanKey& key, absl::string_view plan_id, size_t most,
                                 MissReason* why);
  v1::BucketExplanation ExplainPlan(const PlanKey& key);
  void ExplainFailures(const std::string& graph_hash, v1::BucketExplanation* explanation);
  void FlushBeforeMaintenance();
  absl::Status OpenMaintenance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_mu_);

  absl::Status OnLeaseFile(absl::FunctionRef<absl::Status(SqliteFile& file)> body);
  LeaseOptions WithWake();

  const CacheOptions options_;
  // Taking a lease must not wait for the queue of writes.
  Mutex lease_mu_;
  SqliteFile lease_file_ ABSL_GUARDED_BY(lease_mu_);
  LeaseTable leases_;
  const std::unique_ptr<CacheWriter> writer_;
  const std::unique_ptr<CacheReader> reader_;
  // For what takes long: neither Finds nor Puts wait for it.
  Mutex maintenance_mu_;
  SqliteFile maintenance_ ABSL_GUARDED_BY(maintenance_mu_);
  Work work_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_CACHE_H_
