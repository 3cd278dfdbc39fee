// From a compile job to the plan it is for, step by step as the job's watchers see it: found in the
// cache and loaded, else lowered, compiled, checked, kept in the cache and loaded.
//
//   BuildTimes times;
//   absl::StatusOr<BuiltPlan> built = BuildPlan(tools, job, &times);
#ifndef ATHANOR_SERVER_JOBS_JOB_BUILDER_H_
#define ATHANOR_SERVER_JOBS_JOB_BUILDER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cache/cache.h"
#include "server/jobs/bucket_builder.h"
#include "server/jobs/compile_job.h"
#include "server/keeper/plan_keeper.h"
#include "server/metrics/metrics.h"
#include "server/models/plan_loader.h"
#include "server/plans/compile_backend.h"
#include "server/plans/kept_plans.h"
#include "server/plans/served_plan.h"

namespace athanor {

class Stopwatch {
 public:
  // Milliseconds since the lap before.
  int64_t Lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - std::exchange(begin_, now))
        .count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// How long the phases of a job took, in milliseconds.
struct BuildTimes {
  int64_t lower = 0, kernels = 0, check = 0, load = 0;
};

struct JobTools {
  CompileBackend& backend;
  const PlanLoader& loader;
  PlanKeeper& keeper;
  MetricCells& metrics;  // the server's
  Cache* cache;          // null: nothing is kept
};

enum class PlanOrigin : uint8_t {
  kLowered,     // made by this job
  kCached,      // the best that the cache has for the graph
  kRemembered,  // what served the version when the server ended
};

// A plan that is kept, before it is loaded.
struct StoredChoice {
  PlanOrigin origin = PlanOrigin::kCached;
  std::shared_ptr<PlanSearch::Found> made;
  std::vector<int> missing;  // kernels to be compiled
  // Of kCached a baseline to go back to, if that is another plan; of kRemembered all the version
  // had.
  std::vector<KeptPlans::Kept> kept;
};

// Where there is a plan for the job's version already; none of a plan with taps is kept. NOT_FOUND
// says why not.
absl::StatusOr<StoredChoice> LookUpPlan(const JobTools& tools, const CompileJob& job);

struct BuiltPlan {
  PlanOrigin origin = PlanOrigin::kLowered;
  std::shared_ptr<const ServedPlan> plan;  // null: another job makes it, see below
  std::vector<KeptPlans::Kept> kept;       // as StoredChoice has it
  Lease lease;                             // of a lowered one, until others can find it
  // `plan` is the baseline, so that nobody waits for this one, whose kernels are not all there: see
  // CompletePlan.
  std::optional<StoredChoice> better = std::nullopt;
  // Without a plan: who holds the lease of this key, for people.
  std::string waits_for;
  std::string key;
};

// Plans of `graph`, which is the version's with narrower dims, with their kernels: what the cache
// has whole, else the baseline, checked and kept there. A baseline that is wrong is an error, never
// made plain (plan_way.h): the full range's plan serves these sizes too, and a plain one of their
// own would take its place however slow it is. Watchers of the job see how many kernels there are
// in all. CANCELLED: the job was asked to stop.
absl::StatusOr<std::vector<BucketPlan>> MakePlans(const JobTools& tools, CompileJob& job,
                                                  const Graph& graph);

// The plan of `graph`, as above, that one of the version's boxes is pinned to; kernels that are
// missing are compiled, and it is verified then. NOT_FOUND says why it is not to be had.
absl::StatusOr<BucketPlan> FindPinned(const JobTools& tools, CompileJob& job, const Graph& graph,
                                      const std::string& plan_id);

// The plan of the job's version, or its plan with taps. Of all servers on a cache one makes it.
// CANCELLED: the job was asked to stop.
absl::StatusOr<BuiltPlan> BuildPlan(const JobTools& tools, CompileJob& job, BuildTimes* times);

// Compiles what `choice` lacks, verifies it if that is something, and loads it. A plan that is
// found wrong is quarantined.
absl::StatusOr<BuiltPlan> CompletePlan(const JobTools& tools, CompileJob& job, StoredChoice choice,
                                       BuildTimes* times);

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_JOB_BUILDER_H_
