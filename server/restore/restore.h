// At start, makes the plans that served when the server ended serve again, without a compiler.
//
//   RestoreReport report = Restore(serving, old, tools, threads);
//
// If the cache has a version's plan and kernels, they are loaded, run once and published, and the
// version gets a finished job (STOP_RESTORED). A version that cannot be restored in this way, or
// whose search is not finished, gets an ordinary job, whose message says why.
#ifndef ATHANOR_SERVER_RESTORE_RESTORE_H_
#define ATHANOR_SERVER_RESTORE_RESTORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/jobs/compile_workers.h"
#include "server/keeper/plan_keeper.h"
#include "server/models/model_version.h"
#include "server/models/plan_loader.h"
#include "server/models/registry.h"

namespace athanor {

struct RestoreTools {
  PlanKeeper& keeper;
  Registry& registry;
  const PlanLoader& loader;
  CompileWorkers& workers;
};

struct RestoreReport {
  int64_t restored = 0;  // serving again
  int64_t searched = 0;  // restored versions whose search goes on
  int64_t queued = 0;    // versions still to be built
};

// Restores with `threads` loaders and returns once each of `serving` serves or has a job. Versions
// that no loader has started after `limit` become jobs, so that the server answers in time however
// many there are. Versions in `old`, which do not serve, become jobs at once, after all others.
RestoreReport Restore(std::vector<std::shared_ptr<ModelVersion>> serving,
                      const std::vector<std::shared_ptr<ModelVersion>>& old,
                      const RestoreTools& tools, int threads,
                      std::chrono::milliseconds limit = std::chrono::seconds(5));

}  // namespace athanor

#endif  // ATHANOR_SERVER_RESTORE_RESTORE_H_
