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

absl::Status CompileWorkers::PinBox(ModelVersion& version, const Plans::View& plans, int bucket,
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
  if (keeper_.ready()) {
    absl::Status written =
        keeper_.Pin(version, keeper_.KeyOf(version, graph, kept.plan->how), kept);
    if (!written.ok()) return named(written);
  }
  absl::Status pinned = registry_->PinBox(version, plans.grid, bucket, std::move(plan));
  ForgetPin(version, pinned.ok() ? box.pinned : plan_id);
  return pinned;
}

void CompileWorkers::ForgetPin(const ModelVersion& version, const std::string& plan_id) {
  const std::vector<std::string> boxes = version.plans().pinned_boxes();
  const bool pinned = version.pinned_plan() == plan_id ||
                      std::find(boxes.begin(), boxes.end(), plan_id) != boxes.end();
  if (!pinned) keeper_.Unpin(version, plan_id);
}

absl::Status CompileWorkers::UnpinBoxes(ModelVersion& version) {
  const Plans::View view = version.plans().view();
  std::vector<std::string> pinned = version.plans().pinned_boxes();
  if (pinned.empty()) return absl::OkStatus();
  std::vector<std::shared_ptr<const ServedPlan>> plans(view.books.size());
  for (int bucket = 1; bucket < static_cast<int>(view.books.size()); ++bucket) {
    const PlanBook& box = view.box(bucket);
    if (box.pinned.empty()) continue;
    const Graph graph = NarrowedTo(version.graph(), view.grid->box(bucket));
    std::shared_ptr<const CompiledPlan> latest = box.latest();
    if (latest == nullptr && keeper_.ready()) {
      const SearchPolicy policy = AutomaticPolicy(version);
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
  if (absl::Status s = registry_->UnpinBoxes(version, std::move(plans)); !s.ok()) return s;
  for (const std::string& plan_id : pinned) ForgetPin(version, plan_id);
  return absl::OkStatus();
}

}  // namespace athanor
