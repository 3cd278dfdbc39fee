// Runs one job on the thread that builds: makes or completes the plan of its version, has it serve,
// makes plans for the version's boxes, and says how the job goes on.
//
//   JobRunner runner(options, &registry, &backends, &policies, tools);
//   JobRunner::GoOn next = runner.Run(job, {});
//
// Used by one thread; borrows everything.
#ifndef ATHANOR_SERVER_JOBS_JOB_RUNNER_H_
#define ATHANOR_SERVER_JOBS_JOB_RUNNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "server/base/options.h"
#include "server/jobs/compile_job.h"
#include "server/jobs/job_builder.h"
#include "server/jobs/parked_jobs.h"
#include "server/jobs/search_policies.h"
#include "server/models/registry.h"
#include "server/plans/compile_backend.h"

namespace athanor {

// Ends a job that has made no plan: with `status`, which callers of its slot get too, or as it was
// asked to stop. `ms`: how long it took.
void EndWithoutPlan(CompileJob& job, const absl::Status& status, int64_t ms);

class JobRunner {
 public:
  // How a job goes on, by the value that is held: it has ended; a search begins at a plan that
  // serves; it waits for a lease; a plan serves, and something is left to do.
  using GoOn =
      std::variant<std::monostate, std::shared_ptr<const CompiledPlan>, LeaseWait, JobRest>;

  JobRunner(const ServerOptions& options, Registry* registry, CompileBackends* backends,
            const SearchPolicies* policies, const JobTools& tools)
      : options_(options),
        registry_(*registry),
        backends_(*backends),
        policies_(*policies),
        tools_(tools) {}

  // `rest`: what an earlier run left.
  GoOn Run(const std::shared_ptr<CompileJob>& job, JobRest rest);

 private:
  GoOn Complete(const std::shared_ptr<CompileJob>& job, ChosenPlan incomplete);
  // Goes on with a plan that was made or found.
  GoOn ServeAndGoOn(const std::shared_ptr<CompileJob>& job, JobPlan built, const BuildTimes& times,
                    int64_t ms);
  // Leaves the boxes of the job's version to be made; goes on at once if there are none.
  GoOn LeaveBoxes(CompileJob& job, BoxesLeft boxes);
  // ABORTED inside: leaves them again.
  GoOn MakeBoxes(CompileJob& job, BoxesLeft boxes);
  // Goes on with a job whose boxes are made.
  GoOn AfterBoxes(CompileJob& job, const BoxesLeft& boxes);
  // Has what the job built serve. FAILED_PRECONDITION: its weights are damaged. Other errors: the
  // version was deleted or pinned.
  absl::Status Serve(CompileJob& job, const JobPlan& built);

  const ServerOptions& options_;
  Registry& registry_;
  CompileBackends& backends_;
  const SearchPolicies& policies_;
  const JobTools tools_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_JOB_RUNNER_H_
