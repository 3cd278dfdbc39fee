#include "server/plan_table.h"

#include <utility>

namespace athanor {
namespace {

constexpr char kNotYet[] = "not compiled yet";

// Those that have served it before, or none.
void AddKept(PlanTable::View* view) {
  for (PlanTable::BoxPlan& box : view->boxes) {
    if (box.kept == nullptr) box.kept = std::make_shared<KeptPlans>(KeptPlans::kMostOfBox);
    if (box.plan != nullptr) box.kept->Add(*box.plan);
  }
}

}  // namespace

bool PlanTable::GoesFirst(const BoxPlan& box, const ServedPlan* full) {
  if (box.plan == nullptr) return false;
  return box.plan->searched() || full == nullptr || !full->searched() ||
         box.beside == full->info.plan_id();
}

PlanTable::PlanTable(std::shared_ptr<const BucketGrid> grid) {
  MutexLock lock(mu_);
  view_.boxes.resize(grid->size(), {nullptr, kNotYet});
  view_.boxes[BucketGrid::kFullRange].reason.clear();
  AddKept(&view_);
  view_.grid = std::move(grid);
}

std::shared_ptr<const ServedPlan> PlanTable::For(absl::Span<const int64_t> dims) const {
  std::shared_ptr<const ServedPlan> full = full_.plan();
  MutexLock lock(mu_);
  if (!use_boxes_ || closed_ || view_.grid->size() == 1) return full;
  const BoxPlan& box = view_.box(view_.grid->Find(dims));
  return GoesFirst(box, full.get()) ? box.plan : full;
}

PlanTable::View PlanTable::view() const {
  MutexLock lock(mu_);
  return view_;
}

bool PlanTable::Replace(std::shared_ptr<const BucketGrid> grid, std::vector<BoxPlan> boxes) {
  View before;  // goes without the lock
  MutexLock lock(mu_);
  if (closed_) return false;
  before = std::exchange(view_, {std::move(grid), std::move(boxes)});
  AddKept(&view_);
  return true;
}

bool PlanTable::Set(const std::shared_ptr<const BucketGrid>& grid, int bucket,
                    std::shared_ptr<const ServedPlan> plan, std::string reason) {
  BoxPlan before;  // goes without the lock
  MutexLock lock(mu_);
  if (closed_ || view_.grid != grid) return false;
  BoxPlan& box = view_.boxes[bucket];
  if (plan != nullptr) box.kept->Add(*plan);
  before = std::exchange(box, {std::move(plan), std::move(reason), "", box.kept});
  return true;
}

void PlanTable::SetBeside(const std::shared_ptr<const BucketGrid>& grid, int bucket,
                          const std::string& full_plan_id) {
  MutexLock lock(mu_);
  if (!closed_ && view_.grid == grid) view_.boxes[bucket].beside = full_plan_id;
}

void PlanTable::Keep(const std::shared_ptr<const BucketGrid>& grid, int bucket,
                     const v1::PlanInfo& info, std::shared_ptr<const PlanSearch::Found> made) {
  MutexLock lock(mu_);
  if (closed_ || view_.grid != grid) return;
  const BoxPlan& box = view_.boxes[bucket];
  box.kept->AddFound(info, std::move(made), box.plan == nullptr ? "" : box.plan->info.plan_id());
}

void PlanTable::UseBoxes(bool use) {
  MutexLock lock(mu_);
  use_boxes_ = use;
}

bool PlanTable::uses_boxes() const {
  MutexLock lock(mu_);
  return use_boxes_;
}

void PlanTable::Close(const absl::Status& status) {
  std::vector<BoxPlan> before;  // go without the lock
  {
    MutexLock lock(mu_);
    closed_ = true;
    before.resize(view_.boxes.size());
    before.swap(view_.boxes);
  }
  full_.Close(status);
}

}  // namespace athanor
