// Loads compiled plans, so that they can serve.
//
//   PlanLoader loader(&backends, &registry, &ledger, options.contexts);
//   auto served = loader.Load(version, version.graph(), compiled).value();
#ifndef ATHANOR_SERVER_MODELS_PLAN_LOADER_H_
#define ATHANOR_SERVER_MODELS_PLAN_LOADER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/models/model_version.h"
#include "server/models/registry.h"
#include "server/plans/compile_backend.h"
#include "server/plans/served_plan.h"

namespace athanor {

// Needs no compiler. Thread-safe; borrows everything.
class PlanLoader {
 public:
  PlanLoader(CompileBackends* backends, Registry* registry, MemoryLedger* ledger, int64_t contexts)
      : backends_(*backends), registry_(*registry), ledger_(ledger), contexts_(contexts) {}

  // Loads `compiled`, a whole plan of `graph` with the parameters of `version`, and makes its first
  // context, unless it has states. Verifies the parameters' files unless they are unchanged since
  // the last time, maps them and runs `prepare`. Without memory for it, asks engines once for what
  // they keep, if it fits then. FAILED_PRECONDITION names a parameter that is damaged.
  absl::StatusOr<std::shared_ptr<const ServedPlan>> Load(
      const ModelVersion& version, const Graph& graph,
      std::shared_ptr<const CompiledPlan> compiled) const;

 private:
  // Has engines give up what they keep, until the plan fits. Returns whether it does.
  bool MakeRoom(const ModelVersion& version, const Graph& graph, const v1::Plan& plan,
                absl::Span<const std::shared_ptr<const MappedTensor>> parameters) const;

  CompileBackends& backends_;
  Registry& registry_;
  MemoryLedger* const ledger_;
  const int64_t contexts_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_PLAN_LOADER_H_
