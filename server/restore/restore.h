// At start: what served when the server ended serves again, without a compiler.
//
//   RestoreReport report = Restore(serving, old, tools, threads);
//
// A version whose plan and kernels the cache has is loaded, run once and published, and has an
// ended job (STOP_RESTORED). What cannot be restored so, and what is still to be searched for,
// becomes an ordinary job, which says why.
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
  int64_t restored = 0;  // they serve
  int64_t searched = 0;  // of these: a search goes on
  int64_t queued = 0;    // to be built
};

// Returns once each of `serving` serves or has a job, with `threads` loaders; those that none has
// begun with after `limit` become jobs, so that the server answers in time whatever there is. `old`
// ones, which serve nobody, become jobs at once, behind all others.
RestoreReport Restore(std::vector<std::shared_ptr<ModelVersion>> serving,
                      const std::vector<std::shared_ptr<ModelVersion>>& old,
                      const RestoreTools& tools, int threads,
                      std::chrono::milliseconds limit = std::chrono::seconds(5));

}  // namespace athanor

#endif  // ATHANOR_SERVER_RESTORE_RESTORE_H_
