#include "server/plan_table.h"

#include <utility>

namespace athanor {
namespace {

constexpr char kNotYet[] = "not compiled yet";

}  // namespace

PlanTable::PlanTable(std::shared_ptr<const BucketGrid> grid) {
  MutexLock lock(mu_);
  view_.boxes.resize(grid->size(), {nullptr, kNotYet});
  view_.boxes[BucketGrid::kFullRange].reason.clear();
  view_.grid = std::move(grid);
}

std::shared_ptr<const ServedPlan> PlanTable::For(absl::Span<const int64_t> dims) const {
  std::shared_ptr<const ServedPlan> own;
  {
    MutexLock lock(mu_);
    if (use_boxes_ && !closed_ && view_.grid->size() > 1) {
      own = view_.box(view_.grid->Find(dims)).plan;
    }
  }
  if (own != nullptr && own->searched()) return own;
  std::shared_ptr<const ServedPlan> full = full_.plan();
  return own == nullptr || (full != nullptr && full->searched()) ? full : own;
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
  return true;
}

bool PlanTable::Set(const std::shared_ptr<const BucketGrid>& grid, int bucket,
                    std::shared_ptr<const ServedPlan> plan) {
  BoxPlan before;  // goes without the lock
  MutexLock lock(mu_);
  if (closed_ || view_.grid != grid) return false;
  before = std::exchange(view_.boxes[bucket], {std::move(plan), ""});
  return true;
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
