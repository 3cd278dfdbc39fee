// Pins boxes of a version to plans of their own.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "server/jobs/compile_workers.h"

namespace athanor {

absl::Status CompileWorkers::PinBox(ModelVersion& version, const PlanTable::Place& place) {
  const std::string& id = place.made->plan.plan_id();
  const auto named = [&](const absl::Status& status) {
    return Prefixed(absl::StrCat(version.Describe(), ": plan ", Quoted(id), " of bucket ",
                                 place.grid->Text(place.bucket), ": "),
                    status);
  };
  const Graph graph = NarrowedTo(version.graph(), place.grid->box(place.bucket));
  std::shared_ptr<const ServedPlan> plan = place.serving;
  if (plan == nullptr) {
    auto loaded = loader_.Load(version, graph, place.made);
    if (!loaded.ok()) return named(loaded.status());
    plan = *std::move(loaded);
  }
  const PlanTable::View view = version.plans().view();
  PlanTable::BoxPlan box;
  if (view.grid == place.grid) box = view.box(place.bucket);  // else it is refused below
  // Stores the pin before it is acknowledged: the cache may be deleted, a pin must last.
  if (keeper_.ready()) {
    const auto details = box.kept == nullptr ? std::nullopt : box.kept->Describe(id);
    absl::Status kept =
        keeper_.Pin(version, keeper_.KeyOf(version, graph, place.made->how), *place.made,
                    details ? details->costs : std::vector<v1::PlanCost>());
    if (!kept.ok()) return named(kept);
  }
  absl::Status pinned = registry_->PinBox(version, place.grid, place.bucket, std::move(plan));
  ForgetPin(version, pinned.ok() ? box.pinned : id);
  return pinned;
}

void CompileWorkers::ForgetPin(const ModelVersion& version, const std::string& plan_id) {
  const std::vector<std::string> boxes = version.plans().pinned();
  const bool pinned = version.pinned_plan() == plan_id ||
                      std::find(boxes.begin(), boxes.end(), plan_id) != boxes.end();
  if (!pinned) keeper_.Unpin(version, plan_id);
}

absl::Status CompileWorkers::UnpinBoxes(ModelVersion& version) {
  const PlanTable::View view = version.plans().view();
  std::vector<std::string> pinned = version.plans().pinned();
  if (pinned.empty()) return absl::OkStatus();
  std::vector<std::shared_ptr<const ServedPlan>> plans(view.boxes.size());
  for (int bucket = 1; bucket < static_cast<int>(view.boxes.size()); ++bucket) {
    const PlanTable::BoxPlan& box = view.box(bucket);
    if (box.pinned.empty() || box.kept == nullptr) continue;
    const Graph graph = NarrowedTo(version.graph(), view.grid->box(bucket));
    std::shared_ptr<const PlanSearch::Found> made = box.kept->latest();
    if (made == nullptr && keeper_.ready()) {
      const SearchPolicy policy = AutomaticPolicy(version);
      auto known = keeper_.FindAll(keeper_.KeyOf(version, graph, policy.ToProto()), policy, 1);
      if (!known.empty()) made = known.front().made;
    }
    if (made == nullptr) continue;
    if (box.plan != nullptr && box.plan->info.plan_id() == made->plan.plan_id()) {
      plans[bucket] = box.plan;
      continue;
    }
    auto loaded = loader_.Load(version, graph, made);
    if (!loaded.ok()) {
      return Prefixed(absl::StrCat(version.Describe(), ": plan ", Quoted(made->plan.plan_id()),
                                   " of bucket ", view.grid->Text(bucket), ": "),
                      loaded.status());
    }
    plans[bucket] = *std::move(loaded);
  }
  if (absl::Status s = registry_->UnpinBoxes(version, std::move(plans)); !s.ok()) return s;
  for (const std::string& plan_id : pinned) ForgetPin(version, plan_id);
  return absl::OkStatus();
}

}  // namespace athanor
