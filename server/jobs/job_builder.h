// From a compile job to the plan it is for, step by step as the job's watchers see it: found in the
// cache and loaded, else lowered, compiled, checked, kept in the cache and loaded.
//
//   BuildTimes times;
//   absl::StatusOr<PlanOrWait> built = BuildPlan(tools, job, &times);
#ifndef ATHANOR_SERVER_JOBS_JOB_BUILDER_H_
#define ATHANOR_SERVER_JOBS_JOB_BUILDER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cache/cache.h"
#include "server/jobs/bucket_builder.h"
#include "server/jobs/compile_job.h"
#include "server/jobs/kernel_work.h"
#include "server/jobs/parked_jobs.h"
#include "server/keeper/plan_keeper.h"
#include "server/metrics/metrics.h"
#include "server/models/plan_loader.h"
#include "server/plans/compile_backend.h"
#include "server/plans/compiled_plan.h"
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
  // Reports whether boxes are to be left for a job that somebody waits for.
  std::function<bool()> gives_way;
  // Has idle workers help with the kernels, until it is called with null.
  std::function<void(std::shared_ptr<KernelWork>)> share;
  // Tells idle workers that the work they help with has changed.
  std::function<void()> wake;
};

enum class PlanOrigin : uint8_t {
  kLowered,     // made by this job
  kCached,      // the best that the cache has for the graph
  kRemembered,  // what served the version when the server ended
};

// The plan chosen for a job, which may lack kernels.
struct ChosenPlan {
  PlanOrigin origin = PlanOrigin::kLowered;
  std::shared_ptr<const CompiledPlan> plan;
  // kCached: a baseline to go back to, if `plan` is another plan. kRemembered: all plans the
  // version had.
  std::vector<KeptPlan> kept;
};

// The plan of a job: chosen and loaded.
struct JobPlan {
  // Reports whether a baseline is to serve until CompletePlan has made `chosen` whole, so that
  // nobody waits for its kernels.
  bool incomplete() const { return !chosen.plan->whole(); }

  ChosenPlan chosen;
  std::shared_ptr<const ServedPlan> loaded;  // `chosen`, or the baseline
  Lease lease;                               // of a lowered plan, until others can find it
};

// The plan, or the lease of another job that makes it.
using PlanOrWait = std::variant<LeaseWait, JobPlan>;

// The boxes of a job's version are to be made; then a search begins at the plan that serves, or the
// job ends.
struct BoxesLeft {
  bool search = true;
};

// Holds what a job has left to do though its version has a plan: a plan to complete, or boxes;
// nothing if the job has not begun.
using JobRest = std::variant<std::monostate, ChosenPlan, BoxesLeft>;

// Returns plans of `graph`, which is the version's with narrower dims: those that the cache has
// whole, otherwise the baseline, checked and kept there. A wrong baseline is an error, never made
// plain (plan_way.h): the full range's plan serves these sizes too, and a plain one of their own
// would take its place however slow it is. The job's watchers see how many kernels there are in
// all. CANCELLED: the job was asked to stop. ABORTED: it gives way (JobTools); the cache has the
// kernels so far.
absl::StatusOr<CompiledPlans> MakePlans(const JobTools& tools, CompileJob& job, const Graph& graph);

// Returns the plan of `graph`, as above, that one of the version's boxes is pinned to. Compiles
// missing kernels, and verifies the plan then. NOT_FOUND says why it is not to be had.
absl::StatusOr<std::shared_ptr<const CompiledPlan>> FindPinned(const JobTools& tools,
                                                               CompileJob& job, const Graph& graph,
                                                               const std::string& plan_id);

// Builds the plan of the job's version, or its plan with taps. Of all servers on a cache one makes
// it. CANCELLED: the job was asked to stop.
absl::StatusOr<PlanOrWait> BuildPlan(const JobTools& tools, CompileJob& job, BuildTimes* times);

// Compiles the missing kernels of `chosen`, verifies it if there were any, and loads it. A plan
// that is found wrong is quarantined.
absl::StatusOr<JobPlan> CompletePlan(const JobTools& tools, CompileJob& job, ChosenPlan chosen,
                                     BuildTimes* times);

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_JOB_BUILDER_H_
