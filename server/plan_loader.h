// From what a plan is made of to one that can serve.
#ifndef ATHANOR_SERVER_PLAN_LOADER_H_
#define ATHANOR_SERVER_PLAN_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/compile_backend.h"
#include "server/model_version.h"
#include "server/registry.h"
#include "server/served_plan.h"

namespace athanor {

// "b=1..64 s=1..512"
std::string BucketText(const v1::Plan& plan);

// What clients see of it.
v1::PlanInfo PlanInfoOf(const PlanSearch::Found& made);

// `made`, a plan of `graph` with the parameters of `version`, with its first context of at most
// `contexts`. Maps the parameters and runs `prepare`.
absl::StatusOr<std::shared_ptr<const ServedPlan>> LoadPlan(
    CompileBackend& backend, Registry& registry, const ModelVersion& version, const Graph& graph,
    std::shared_ptr<const PlanSearch::Found> made, int64_t contexts);

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLAN_LOADER_H_
