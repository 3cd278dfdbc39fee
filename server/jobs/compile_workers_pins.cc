// Boxes of a version that are pinned to plans of their own.
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
  const std::string& id = place.kept.plan->id();
  const auto named = [&](const absl::Status& status) {
    return Prefixed(absl::StrCat(version.Describe(), ": plan ", Quoted(id), " of bucket ",
                                 place.grid->Text(place.bucket), ": "),
                    status);
  };
  const Graph graph = NarrowedTo(version.graph(), place.grid->box(place.bucket));
  std::shared_ptr<const ServedPlan> plan = place.serving;
  if (plan == nullptr) {
    auto loaded = loader_.Load(version, graph, place.kept.plan);
    if (!loaded.ok()) return named(loaded.status());
    plan = *std::move(loaded);
  }
  const PlanTable::View view = version.plans().view();
  PlanTable::BoxPlan box;
  if (view.grid == place.grid) box = view.box(place.bucket);  // else it is refused below
  // Before it is promised: the cache may be deleted, a pin may not.
  if (keeper_.ready()) {
    const PlanKey key = keeper_.KeyOf(version, graph, place.kept.plan->how);
    absl::Status written = keeper_.Pin(version, key, place.kept);
    if (!written.ok()) return named(written);
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
    std::shared_ptr<const CompiledPlan> latest = box.kept->latest();
    if (latest == nullptr && keeper_.ready()) {
      const SearchPolicy policy = AutomaticPolicy(version);
      CompiledPlans known =
          keeper_.FindAll(keeper_.KeyOf(version, graph, policy.ToProto()), policy, 1);
      if (!known.empty()) latest = known.front();
    }
    if (latest == nullptr) continue;
    if (box.plan != nullptr && box.plan->id() == latest->id()) {
      plans[bucket] = box.plan;
      continue;
    }
    auto loaded = loader_.Load(version, graph, latest);
    if (!loaded.ok()) {
      return Prefixed(absl::StrCat(version.Describe(), ": plan ", Quoted(latest->id()),
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
