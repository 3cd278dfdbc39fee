// From a compile job to the plan it is for: lowered, compiled, checked and loaded, step by step as
// the job's watchers see it.
//
//   BuildTimes times;
//   auto plan = BuildPlan(backend, registry, options.contexts, job, &times);
#ifndef ATHANOR_SERVER_JOB_BUILDER_H_
#define ATHANOR_SERVER_JOB_BUILDER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "server/compile_backend.h"
#include "server/compile_job.h"
#include "server/registry.h"
#include "server/served_plan.h"

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

// The baseline of the job's version, or its plan with taps, with room for `contexts` calls at once.
// CANCELLED: the job was asked to stop.
absl::StatusOr<std::shared_ptr<const ServedPlan>> BuildPlan(CompileBackend& backend,
                                                            Registry& registry, int64_t contexts,
                                                            CompileJob& job, BuildTimes* times);

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOB_BUILDER_H_
