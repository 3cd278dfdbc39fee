#include "server/keeper/remembered.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

// Returns the id of the plan to serve; empty: there is none.
std::string ServingId(const std::vector<VersionPlanRow>& rows) {
  std::string last;
  for (const VersionPlanRow& row : rows) {
    if (row.pinned) return row.plan_id;
    if (row.served) last = row.plan_id;
  }
  return last;
}

}  // namespace

absl::StatusOr<std::vector<KeptPlan>> FindRemembered(const PlanKeeper& keeper,
                                                     const ModelVersion& version) {
  const std::vector<VersionPlanRow>& rows = version.row().plans;
  const std::string serving = ServingId(rows);
  if (serving.empty()) {
    return absl::NotFoundError(
        absl::StrCat(version.Describe(), " has not been served by a plan yet"));
  }
  if (!keeper.ready(version)) {
    return absl::FailedPreconditionError(
        "the compiler was not asked yet which machine this is, or another one was");
  }
  PlanKey key = keeper.KeyOf(version, version.graph(), {});
  std::vector<KeptPlan> found;
  for (const VersionPlanRow& row : rows) {
    v1::PlanInfo info;
    info.ParseFromString(row.info);
    const v1::SearchOptions& how = info.search();
    key.approximate = how.approximate();
    key.disabled_rules.assign(how.disabled_rules().begin(), how.disabled_rules().end());
    absl::StatusOr<KeptPlan> kept = keeper.Find(version, key, row.plan_id);
    if (row.plan_id == serving) {
      if (!kept.ok()) return kept.status();
    } else if (!kept.ok() || !kept->plan->whole()) {
      continue;  // no caller waits for it
    }
    kept->served = row.served;
    kept->first = row.first;
    found.push_back(*std::move(kept));
  }
  return found;
}

std::shared_ptr<const CompiledPlan> ServingOf(absl::Span<const KeptPlan> remembered,
                                              const ModelVersion& version) {
  const std::string serving = ServingId(version.row().plans);
  for (const KeptPlan& kept : remembered) {
    if (kept.plan->id() == serving) return kept.plan;
  }
  return nullptr;
}

}  // namespace athanor
