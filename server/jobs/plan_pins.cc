#include "server/jobs/plan_pins.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/plans/bucket_grid.h"

namespace athanor {

absl::StatusOr<std::shared_ptr<ModelVersion>> PlanPins::Pin(const std::string& name,
                                                            const std::string& version,
                                                            const std::string& plan_id) {
  MutexLock one(mu_);
  auto found = registry_.versions().Find(name, version);
  if (!found.ok()) return found.status();
  ModelVersion& model = **found;
  const Plans::View plans = model.plans().view();
  const KeptPlan* const kept = plans.full().Find(plan_id);
  const std::optional<int> bucket = plans.Find(plan_id);
  if (kept == nullptr && bucket.has_value()) {
    absl::Status pinned = PinBox(model, plans, *bucket, plan_id);
    return pinned.ok() ? found : pinned;
  }
  if (plan_id.empty()) {
    RETURN_IF_ERROR(UnpinBoxes(model));
  }
  const std::string before = model.pinned_plan();
  std::shared_ptr<const CompiledPlan> wanted = kept != nullptr ? kept->plan : nullptr;
  // While it is pinned nothing else is published, so the latest stays the latest.
  if (plan_id.empty() && !before.empty()) wanted = model.plans().view().full().latest();
  std::shared_ptr<const ServedPlan> plan = wanted == nullptr ? nullptr : model.plan();
  const auto named = [&](const absl::Status& status) {
    return Prefixed(absl::StrCat(model.Describe(), ": plan ", Quoted(wanted->id()), ": "), status);
  };
  if (wanted != nullptr && (plan == nullptr || plan->compiled != wanted)) {
    auto loaded = loader_.Load(model, model.graph(), wanted);
    if (!loaded.ok()) return named(loaded.status());
    plan = *std::move(loaded);
  }
  // Before it is promised: the cache may be deleted, a pin may not.
  if (kept != nullptr && keeper_.ready(model)) {
    const PlanKey key = keeper_.KeyOf(model, model.graph(), wanted->how);
    absl::Status written = keeper_.Pin(model, key, *kept);
    if (!written.ok()) return named(written);
  }
  absl::Status pinned = registry_.publisher().PinPlan(*found, plan_id, std::move(plan));
  Forget(model, pinned.ok() ? before : plan_id);
  if (!pinned.ok()) return pinned;
  return found;
}

void PlanPins::ForgetDeleted(const ModelVersion& version) {
  std::vector<std::string> pinned = version.plans().pinned_boxes();
  pinned.push_back(version.pinned_plan());
  MutexLock one(mu_);  // pins in progress are complete once this is locked
  for (const std::string& plan_id : pinned) keeper_.Unpin(version, plan_id);
}

absl::Status PlanPins::PinBox(ModelVersion& version, const Plans::View& plans, int bucket,
                              const std::string& plan_id) {
  const PlanBook& box = plans.box(bucket);
  const KeptPlan& kept = *box.Find(plan_id);
  const auto named = [&](const absl::Status& status) {
    return Prefixed(absl::StrCat(version.Describe(), ": plan ", Quoted(plan_id), " of bucket ",
                                 plans.grid->Text(bucket), ": "),
                    status);
  };
  const Graph graph = NarrowedTo(version.graph(), plans.grid->box(bucket));
  std::shared_ptr<const ServedPlan> plan = box.serving;
  if (plan == nullptr || plan->id() != plan_id) {
    auto loaded = loader_.Load(version, graph, kept.plan);
    if (!loaded.ok()) return named(loaded.status());
    plan = *std::move(loaded);
  }
  // Stores the pin before it is acknowledged: the cache may be deleted, a pin must last.
  if (keeper_.ready(version)) {
    absl::Status written =
        keeper_.Pin(version, keeper_.KeyOf(version, graph, kept.plan->how), kept);
    if (!written.ok()) return named(written);
  }
  absl::Status pinned = registry_.publisher().PinBox(version, plans.grid, bucket, std::move(plan));
  Forget(version, pinned.ok() ? box.pinned : plan_id);
  return pinned;
}

void PlanPins::Forget(const ModelVersion& version, const std::string& plan_id) {
  const std::vector<std::string> boxes = version.plans().pinned_boxes();
  const bool pinned = version.pinned_plan() == plan_id ||
                      std::find(boxes.begin(), boxes.end(), plan_id) != boxes.end();
  if (!pinned) keeper_.Unpin(version, plan_id);
}

absl::Status PlanPins::UnpinBoxes(ModelVersion& version) {
  const Plans::View view = version.plans().view();
  std::vector<std::string> pinned = version.plans().pinned_boxes();
  if (pinned.empty()) return absl::OkStatus();
  std::vector<std::shared_ptr<const ServedPlan>> plans(view.books.size());
  for (int bucket = 1; bucket < static_cast<int>(view.books.size()); ++bucket) {
    const PlanBook& box = view.box(bucket);
    if (box.pinned.empty()) continue;
    const Graph graph = NarrowedTo(version.graph(), view.grid->box(bucket));
    std::shared_ptr<const CompiledPlan> latest = box.latest();
    if (latest == nullptr && keeper_.ready(version)) {
      const SearchPolicy policy = policies_.Automatic(version);
      CompiledPlans known =
          keeper_.FindAll(keeper_.KeyOf(version, graph, policy.ToProto()), policy, 1);
      if (!known.empty()) latest = known.front();
    }
    if (latest == nullptr) continue;
    if (box.serving != nullptr && box.serving->id() == latest->id()) {
      plans[bucket] = box.serving;
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
  RETURN_IF_ERROR(registry_.publisher().UnpinBoxes(version, std::move(plans)));
  for (const std::string& plan_id : pinned) Forget(version, plan_id);
  return absl::OkStatus();
}

}  // namespace athanor
