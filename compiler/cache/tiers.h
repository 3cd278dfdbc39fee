// The tiers of the cache, a class for each table: how its rows are found and put.
//
//   if (std::optional<PlanRow> row = cache->plans().Find(key)) return row->stored;
//   ... make it ...
//   cache->plans().Put(key, row);  // returns at once: the writer thread writes
//
// Finds neither write nor fail: without a usable file everything is a miss. A row whose checksum
// does not fit is a miss and goes to quarantine. Puts are queued, and queued rows are found by this
// process. If the queue holds 64 MiB, a Put waits up to 1 s; then the row is dropped and counted.
// Thread-safe. A Cache owns them.
#ifndef ATHANOR_COMPILER_CACHE_TIERS_H_
#define ATHANOR_COMPILER_CACHE_TIERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/keys.h"
#include "proto/athanor/internal/stored.pb.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/cache.pb.h"
#include "proto/athanor/v1/compile.pb.h"
#include "proto/athanor/v1/search.pb.h"

namespace athanor {

enum class MissReason : uint8_t { kAbsent, kGate, kBadRow, kExpired, kNoCache, kBusy };
inline constexpr int kMissReasonCount = 6;
absl::string_view MissReasonName(MissReason reason);  // for metrics: "bad_row"

class CacheReader;
class CacheWriter;

// Access to the file that all tiers share.
struct CacheFile {
  const std::string& path;
  CacheReader& reader;
  CacheWriter& writer;
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

// Plans, added by plan id; each key and conditions has one incumbent.
class PlanTier {
 public:
  explicit PlanTier(CacheFile file) : file_(file) {}

  // Returns the best row: equal conditions first, then the incumbent. Sets `why`, if given, on a
  // miss.
  std::optional<PlanRow> Find(const PlanKey& key, MissReason* why = nullptr);
  std::optional<PlanRow> FindById(const PlanKey& key, absl::string_view plan_id);
  std::vector<PlanRow> All(const PlanKey& key);  // in the order of Find
  // As All, without bodies: `stored` has only plan_id, kind, how.disabled_rules and kernel_keys.
  // Checks no checksum and counts nothing; for deciding whether to look further.
  std::vector<PlanRow> Heads(const PlanKey& key);
  // Adds a plan, replacing one with the same id. With `row.incumbent` it replaces the incumbent.
  void Put(const PlanKey& key, const PlanRow& row);
  // Puts all rows of a wrong plan into quarantine, whatever conditions they were made under.
  // Returns OK once no Find of any process returns it.
  absl::Status Quarantine(const PlanKey& key, absl::string_view plan_id, absl::string_view why);
  // Says why Find hits or misses, and which row is the nearest.
  void Explain(const PlanKey& key, v1::BucketExplanation* explanation);

 private:
  // Returns at most `most` rows in the order of Find, only those of `plan_id` unless it is empty.
  std::vector<PlanRow> Read(const PlanKey& key, absl::string_view plan_id, size_t most,
                            MissReason* why);

  CacheFile file_;
};

// Recipes: choices for a region, which any machine may try.
class RecipeTier {
 public:
  explicit RecipeTier(CacheFile file) : file_(file) {}

  // Returns at most `most` recipes: those of this key first, of those `machine`'s first; then those
  // of the same region in other boxes.
  std::vector<v1::RegionRecipe> Find(const RecipeKey& key, const v1::Target& machine, size_t most);
  void Put(const RecipeKey& key, const v1::RegionRecipe& recipe);

 private:
  CacheFile file_;
};

struct TimingRow {
  std::vector<double> seconds, low, high;  // by size
  int32_t rounds = 0;
  bool checked = false;  // false: it may not serve
};

// Measured times of kernels' calls.
class TimingTier {
 public:
  explicit TimingTier(CacheFile file) : file_(file) {}

  std::optional<TimingRow> Find(const TimingKey& key, MissReason* why = nullptr);
  void Put(const TimingKey& key, const TimingRow& row);

 private:
  CacheFile file_;
};

// Compiled kernels. Objects above 256 MiB are not kept.
class KernelTier {
 public:
  explicit KernelTier(CacheFile file) : file_(file) {}

  std::optional<std::string> Find(const KernelKey& key, MissReason* why = nullptr);
  void Put(const KernelKey& key, absl::string_view object);
  bool Has(absl::string_view key);  // `key`: KernelKey::Hash; counts nothing

 private:
  CacheFile file_;
};

// Checks that kernels have passed, by CheckKey.
class CheckTier {
 public:
  explicit CheckTier(CacheFile file) : file_(file) {}

  bool Has(absl::string_view check_key);
  void Put(absl::string_view check_key);

 private:
  CacheFile file_;
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

class FailureTier {
 public:
  explicit FailureTier(CacheFile file) : file_(file) {}

  std::optional<FailureRow> Find(absl::string_view key, FailureKind kind,
                                 MissReason* why = nullptr);
  // Remembers a failure for FailureLifetime of its code.
  void Put(absl::string_view key, FailureKind kind, const FailureRow& row);
  // Says what searches of a graph leave out.
  void Explain(const std::string& graph_hash, v1::BucketExplanation* explanation);

 private:
  CacheFile file_;
};

// Returns the key of one of the searches that can be made for a plan's key under its conditions; 32
// bytes.
std::string SearchKeyOf(const PlanKey& key, const v1::SearchOptions& options);

struct SearchState {
  v1::CompileJob::StopReason stop = v1::CompileJob::STOP_REASON_UNSPECIFIED;
  double seconds = 0;
  int64_t candidates = 0;
};

// Ended searches: how far each went.
class SearchTier {
 public:
  explicit SearchTier(CacheFile file) : file_(file) {}

  std::optional<SearchState> Find(const PlanKey& key, const v1::SearchOptions& options);
  void Put(const PlanKey& key, const v1::SearchOptions& options, const SearchState& state);

 private:
  CacheFile file_;
};

// The compiler's descriptions of machines.
class TargetTier {
 public:
  explicit TargetTier(CacheFile file) : file_(file) {}

  std::optional<internal::TargetReply> Find(absl::string_view machine, absl::string_view tuner);
  void Put(absl::string_view machine, absl::string_view tuner, const internal::TargetReply& reply);

 private:
  CacheFile file_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_TIERS_H_
