// Memory between runs: plans, recipes, timings, kernels, passed checks, failures.
// One SQLite file serves all processes of a machine.
//
//   std::unique_ptr<Cache> cache = Cache::Open({.path = path}, [](absl::string_view m) { ... });
//   if (std::optional<PlanRow> row = cache->FindPlan(key)) return row->stored;
//   ... make it ...
//   cache->PutPlan(key, row);      // returns at once: the writer thread writes
//
// Finds neither write nor fail: without a usable file everything is a miss. A row whose checksum
// does not fit is a miss and goes to quarantine. Puts are queued, and queued rows are found by this
// process. If the queue holds 64 MiB, a Put waits up to 1 s; then the row is dropped and counted. A
// damaged file is moved aside and a new one begun. Thread-safe.
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
  std::string path;                        // empty: the cache holds nothing
  int64_t limit_bytes = int64_t{2} << 30;  // of the file; 0: no limit
  LeaseOptions leases;                     // Cache sets `wake`
};

struct PlanRow {
  internal::StoredPlan stored;
  bool incumbent = false;        // the best plan of its key and conditions so far
  double share_of_baseline = 1;  // its time as a share of the baseline's, with 95 % bounds
  double low = 1;
  double high = 1;
  std::string compared_with;     // how it was verified: "kernels", "f64 plan", ...
  bool conditions_equal = true;  // set by Find; true: no search is due
};

struct TimingRow {
  std::vector<double> seconds, low, high;  // by size
  int32_t rounds = 0;
  bool checked = false;  // false: it may not serve
};

struct FailureRow {
  absl::Status status;
  std::string about;  // FailureAbout, if Explain should show it
};
// Returns "graph 12ab...: kernel 7".
std::string FailureAbout(absl::string_view graph_hash, absl::string_view what);
enum class FailureKind : uint8_t { kLower, kCompile, kCheck, kMeasure, kPlanCheck, kLoad };
absl::string_view FailureKindName(FailureKind kind);  // "plan_check"
// Returns how long a failure is remembered, in microseconds; 0: not at all.
int64_t FailureLifetime(absl::StatusCode code);

// Returns the key of one of the searches that can be made for a plan's key under its conditions; 32
// bytes.
std::string SearchKeyOf(const PlanKey& key, const v1::SearchOptions& options);

struct SearchState {
  v1::CompileJob::StopReason stop = v1::CompileJob::STOP_REASON_UNSPECIFIED;
  double seconds = 0;
  int64_t candidates = 0;
};

enum class MissReason : uint8_t { kAbsent, kGate, kBadRow, kExpired, kNoCache, kBusy };
inline constexpr int kMissReasonCount = 6;
absl::string_view MissReasonName(MissReason reason);  // for metrics: "bad_row"

// Counters of this process since it opened the cache, and the size of the file.
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

// Selection of what to export, and the progress of the export.
struct ExportCursor {
  int64_t semantics_version = 0;  // recipes of other versions have another meaning
  int64_t recipe_format = 0;
  bool binaries = false;  // also exports kernels and plans
  // Exports only what these keys name: the best plan under each condition and the baselines, the
  // searches that have ended, and the plans' kernels. REQUIRES: binaries.
  std::optional<std::vector<PlanKey>> of = std::nullopt;
  // Progress, advanced by Cache::Export.
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

class CacheReader;
class CacheWriter;

class Cache {
 public:
  using Report = SqliteFile::Report;  // called from any thread

  static std::unique_ptr<Cache> Open(CacheOptions options, Report report);
  ~Cache();  // writes the queued rows
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // Returns the best row: equal conditions first, then the incumbent. Sets `why`, if given, on a
  // miss.
  std::optional<PlanRow> FindPlan(const PlanKey& key, MissReason* why = nullptr);
  std::optional<PlanRow> FindPlanById(const PlanKey& key, absl::string_view plan_id);
  std::vector<PlanRow> Plans(const PlanKey& key);  // all, in the order of FindPlan
  // As Plans, without bodies: `stored` has only plan_id, kind, how.disabled_rules and kernel_keys.
  // Checks no checksum and counts nothing; for deciding whether to look further.
  std::vector<PlanRow> PlanHeads(const PlanKey& key);
  // Adds a plan, replacing one with the same id. With `row.incumbent` it replaces the incumbent.
  void PutPlan(const PlanKey& key, const PlanRow& row);
  // Puts all rows of a wrong plan into quarantine, whatever conditions they were made under.
  // Returns OK once no Find of any process returns it.
  absl::Status QuarantinePlan(const PlanKey& key, absl::string_view plan_id, absl::string_view why);

  // Returns at most `most` recipes: those of this key first, of those `machine`'s first; then those
  // of the same region in other boxes.
  std::vector<v1::RegionRecipe> FindRecipes(const RecipeKey& key, const v1::Target& machine,
                                            size_t most);
  void PutRecipe(const RecipeKey& key, const v1::RegionRecipe& recipe,
                 absl::string_view origin = "search");

  std::optional<TimingRow> FindTiming(const TimingKey& key, MissReason* why = nullptr);
  void PutTiming(const TimingKey& key, const TimingRow& row);

  // Returns the bytes of a compiled kernel. Objects above 256 MiB are not kept.
  std::optional<std::string> FindKernel(const KernelKey& key, MissReason* why = nullptr);
  void PutKernel(const KernelKey& key, absl::string_view object);
  bool HasKernel(absl::string_view key);  // `key`: KernelKey::Hash; counts nothing

  // Reports whether the check with this CheckKey has passed before.
  bool HasPassed(absl::string_view check_key);
  void PutPassed(absl::string_view check_key);

  std::optional<FailureRow> FindFailure(absl::string_view key, FailureKind kind,
                                        MissReason* why = nullptr);
  // Remembers a failure for FailureLifetime of its code.
  void PutFailure(absl::string_view key, FailureKind kind, const FailureRow& row);

  std::optional<SearchState> FindSearch(const PlanKey& key, const v1::SearchOptions& options);
  void PutSearch(const PlanKey& key, const v1::SearchOptions& options, const SearchState& state);

  std::optional<internal::TargetReply> FindTarget(absl::string_view machine,
                                                  absl::string_view tuner);
  void PutTarget(absl::string_view machine, absl::string_view tuner,
                 const internal::TargetReply& reply);

  // Returns OK once everything queued before is in the file, else the reason why not.
  absl::Status Flush(std::chrono::milliseconds limit);
  // Leases, by which processes avoid doing the same work twice. No Lease may outlive the cache.
  LeaseTable& leases() { return leases_; }
  int64_t data_version();  // changes when another process has written; -1 without a file

  // Sums up all rows of all tiers, while Finds wait: for occasional callers.
  v1::CacheStat Stat();
  // Reads no table, so it can be called every second.
  CacheCounts Counts() const;
  // Explains why FindPlan hits or misses, and what searches of its graph leave out after failures.
  // The caller sets `bucket`.
  v1::BucketExplanation Explain(const PlanKey& key);
  // The next four first write the rows that this process has queued. FAILED_PRECONDITION: no usable
  // file.
  absl::StatusOr<v1::CacheVerification> Verify(bool quarantine);
  absl::StatusOr<v1::CollectGarbageReply> CollectGarbage(const v1::CollectGarbageRequest& request);
  // Returns the next records for a bundle, without links, some MiB of them: recipes, then plans,
  // searches and kernels if they are wanted. Empty: the end. Leaves out bad rows.
  absl::StatusOr<std::vector<v1::CacheBundleRecord>> Export(ExportCursor* at);
  // Imports all of a bundle's records, or none. Existing rows stay.
  absl::StatusOr<v1::ImportCacheReply> Import(absl::Span<const v1::CacheBundleRecord> records,
                                              const BundleOrigin& from);

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

  // Returns at most `most` rows in the order of FindPlan, only those of `plan_id` unless it is
  // empty.
  std::vector<PlanRow> ReadPlans(const PlanKey& key, absl::string_view plan_id, size_t most,
                                 MissReason* why);
  v1::BucketExplanation ExplainPlan(const PlanKey& key);
  void ExplainFailures(const std::string& graph_hash, v1::BucketExplanation* explanation);
  void FlushBeforeMaintenance();
  absl::Status OpenMaintenance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_mu_);

  absl::Status OnLeaseFile(absl::FunctionRef<absl::Status(SqliteFile& file)> body);
  LeaseOptions WithWake();

  const CacheOptions options_;
  // For leases: taking one must not wait for the queue of writes.
  Mutex lease_mu_;
  SqliteFile lease_file_ ABSL_GUARDED_BY(lease_mu_);
  LeaseTable leases_;
  const std::unique_ptr<CacheWriter> writer_;
  const std::unique_ptr<CacheReader> reader_;
  // For long operations: neither Finds nor Puts wait for them.
  Mutex maintenance_mu_;
  SqliteFile maintenance_ ABSL_GUARDED_BY(maintenance_mu_);
  Work work_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_CACHE_H_
