#include "server/keeper/remembered.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

// Returns an empty id if no plan served.
std::string ServingId(const std::vector<VersionPlanRow>& rows) {
  std::string last;
  for (const VersionPlanRow& row : rows) {
    if (row.pinned) return row.plan_id;
    if (row.served) last = row.plan_id;
  }
  return last;
}

}  // namespace

absl::StatusOr<Remembered> FindRemembered(const PlanKeeper& keeper, const ModelVersion& version) {
  const std::vector<VersionPlanRow>& rows = version.row().plans;
  const std::string serving = ServingId(rows);
  if (serving.empty()) {
    return absl::NotFoundError(absl::StrCat(version.Describe(), " was served by no plan yet"));
  }
  if (!keeper.ready()) {
    return absl::FailedPreconditionError(
        "the compiler was not asked yet which machine this is, or another one was");
  }
  PlanKey key = keeper.KeyOf(version, version.graph(), {});
  Remembered found;
  for (const VersionPlanRow& row : rows) {
    KeptPlans::Kept kept{.served = row.served, .first = row.first};
    kept.info.ParseFromString(row.info);
    kept.info.set_plan_id(row.plan_id);
    const v1::SearchOptions& how = kept.info.search();
    key.approximate = how.approximate();
    key.disabled_rules.assign(how.disabled_rules().begin(), how.disabled_rules().end());
    absl::StatusOr<PlanKeeper::Kept> body = keeper.Find(version, key, row.plan_id);
    if (row.plan_id == serving) {
      if (!body.ok()) return body.status();
      found.serving = body->made;
      found.missing = body->missing;
    } else if (!body.ok() || !body->missing.empty()) {
      continue;  // no caller waits for it
    }
    kept.made = std::move(body->made);
    kept.costs = std::move(body->costs);
    found.kept.push_back(std::move(kept));
  }
  return found;
}

}  // namespace athanor
