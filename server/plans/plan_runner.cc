#include "server/plans/plan_runner.h"

namespace athanor {
namespace {

absl::Status NoStates() { return absl::FailedPreconditionError("the plan has no states"); }

}  // namespace

absl::StatusOr<std::unique_ptr<StateMemory>> PlanRunner::NewStates(int64_t, int64_t,
                                                                   StateMemory::Order) {
  return NoStates();
}

absl::StatusOr<std::unique_ptr<RunContext>> PlanRunner::NewContextOver(const StateMemory&) {
  return NoStates();
}

}  // namespace athanor
