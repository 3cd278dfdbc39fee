// From what a plan is made of to one that can serve.
//
//   PlanLoader loader(&backends, &registry, &ledger, options.contexts);
//   std::shared_ptr<const ServedPlan> served = loader.Load(version, version.graph(), made).value();
#ifndef ATHANOR_SERVER_MODELS_PLAN_LOADER_H_
#define ATHANOR_SERVER_MODELS_PLAN_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/models/model_version.h"
#include "server/models/registry.h"
#include "server/plans/compile_backend.h"
#include "server/plans/served_plan.h"

namespace athanor {

// "b=1..64 s=1..512"
std::string BucketText(const v1::Plan& plan);

// What clients see of it.
v1::PlanInfo PlanInfoOf(const PlanSearch::Found& made);

// Needs no compiler. Thread-safe; borrows everything.
class PlanLoader {
 public:
  PlanLoader(CompileBackends* backends, Registry* registry, MemoryLedger* ledger, int64_t contexts)
      : backends_(*backends), registry_(*registry), ledger_(ledger), contexts_(contexts) {}

  // `made`, a plan of `graph` with the parameters of `version`, with its first context of those it
  // may have. Verifies the parameters, as far as they may have changed since they were, maps them
  // and runs `prepare`. FAILED_PRECONDITION names one that is damaged.
  absl::StatusOr<std::shared_ptr<const ServedPlan>> Load(
      const ModelVersion& version, const Graph& graph,
      std::shared_ptr<const PlanSearch::Found> made) const;

 private:
  CompileBackends& backends_;
  Registry& registry_;
  MemoryLedger* const ledger_;
  const int64_t contexts_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_PLAN_LOADER_H_
