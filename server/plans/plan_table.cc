#include "server/plans/plan_table.h"

#include <utility>

namespace athanor {
namespace {

constexpr char kNotYet[] = "not compiled yet";

// Those that have served it before, or none.
void AddKept(PlanTable::View* view) {
  for (PlanTable::BoxPlan& box : view->boxes) {
    if (box.kept == nullptr) box.kept = std::make_shared<KeptPlans>(KeptPlans::kMostOfBox);
    if (box.plan == nullptr) continue;
    if (box.pinned.empty()) {
      box.kept->Add(*box.plan);
    } else {
      box.kept->AddFound(box.plan->compiled, box.pinned);
    }
  }
}

}  // namespace

namespace {

// The pins that there are now, whatever `boxes` have. False: a pinned one is not among them.
bool TakePins(const PlanTable::View& now, const BucketGrid& grid,
              std::vector<PlanTable::BoxPlan>* boxes) {
  for (PlanTable::BoxPlan& box : *boxes) box.pinned.clear();
  for (int from = 1; from < static_cast<int>(now.boxes.size()); ++from) {
    if (now.box(from).pinned.empty()) continue;
    int to = 1;
    while (to < grid.size() && grid.box(to) != now.grid->box(from)) ++to;
    if (to == grid.size()) return false;
    PlanTable::BoxPlan& box = (*boxes)[to];
    // Where neither has its plan, these say why.
    const bool loaded = box.plan != nullptr && box.plan->id() == now.box(from).pinned;
    if (!loaded && now.box(from).plan != nullptr) box = now.box(from);
    box.pinned = now.box(from).pinned;
  }
  return true;
}

}  // namespace

bool PlanTable::GoesFirst(const BoxPlan& box, const ServedPlan* full) {
  if (box.plan == nullptr) return false;
  return box.plan->compiled->searched() || full == nullptr || !full->compiled->searched() ||
         box.beside == full->id();
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
  if (closed_ || view_.grid->size() == 1) return full;
  const BoxPlan& box = view_.box(view_.grid->Find(dims));
  if (!box.pinned.empty()) return box.plan != nullptr ? box.plan : full;
  return use_boxes_ && GoesFirst(box, full.get()) ? box.plan : full;
}

PlanTable::View PlanTable::view() const {
  MutexLock lock(mu_);
  return view_;
}

bool PlanTable::Replace(std::shared_ptr<const BucketGrid> grid, std::vector<BoxPlan> boxes) {
  View before;  // goes without the lock
  MutexLock lock(mu_);
  if (closed_ || !TakePins(view_, *grid, &boxes)) return false;
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
  if (!box.pinned.empty()) return false;
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
                     std::shared_ptr<const CompiledPlan> plan) {
  MutexLock lock(mu_);
  if (closed_ || view_.grid != grid) return;
  const BoxPlan& box = view_.boxes[bucket];
  box.kept->AddFound(std::move(plan), box.plan == nullptr ? "" : box.plan->id());
}

bool PlanTable::Pin(const std::shared_ptr<const BucketGrid>& grid, int bucket,
                    std::shared_ptr<const ServedPlan> plan) {
  BoxPlan before;  // goes without the lock
  MutexLock lock(mu_);
  if (closed_ || view_.grid != grid) return false;
  BoxPlan& box = view_.boxes[bucket];
  const std::string id = plan->id();
  box.kept->AddFound(plan->compiled, id);
  before = std::exchange(box, {std::move(plan), "", "", box.kept, id});
  return true;
}

void PlanTable::SetPinned(int bucket, const std::string& plan_id) {
  MutexLock lock(mu_);
  view_.boxes[bucket].pinned = plan_id;
}

void PlanTable::Unpin(int bucket, std::shared_ptr<const ServedPlan> plan) {
  BoxPlan before;  // goes without the lock
  MutexLock lock(mu_);
  BoxPlan& box = view_.boxes[bucket];
  if (closed_ || box.pinned.empty()) return;
  if (plan != nullptr) box.kept->Add(*plan);
  const char* reason = plan == nullptr ? kNotYet : "";
  before = std::exchange(box, {std::move(plan), reason, "", box.kept});
}

std::optional<PlanTable::Place> PlanTable::Find(const std::string& plan_id) const {
  MutexLock lock(mu_);
  for (int bucket = 1; !closed_ && bucket < static_cast<int>(view_.boxes.size()); ++bucket) {
    const BoxPlan& box = view_.boxes[bucket];
    std::optional<KeptPlan> kept = box.kept->Find(plan_id);
    if (!kept.has_value()) continue;
    const bool serves = box.plan != nullptr && box.plan->id() == plan_id;
    return Place{view_.grid, bucket, *std::move(kept), serves ? box.plan : nullptr};
  }
  return std::nullopt;
}

std::vector<std::string> PlanTable::pinned() const {
  std::vector<std::string> ids;
  MutexLock lock(mu_);
  for (const BoxPlan& box : view_.boxes) {
    if (!box.pinned.empty()) ids.push_back(box.pinned);
  }
  return ids;
}

void PlanTable::UseBoxes(bool use) {
  MutexLock lock(mu_);
  use_boxes_ = use;
}

bool PlanTable::uses_boxes() const {
  MutexLock lock(mu_);
  return use_boxes_;
}

void PlanTable::Withdraw(const absl::Status& status) {
  std::vector<std::shared_ptr<const ServedPlan>> before;  // go without the lock
  {
    MutexLock lock(mu_);
    for (BoxPlan& box : view_.boxes) {
      if (box.plan == nullptr) continue;
      before.push_back(std::move(box.plan));
      box.plan = nullptr;
      box.reason = kNotYet;
    }
  }
  full_.Withdraw(status);
}

void PlanTable::Close(const absl::Status& status) {
  std::vector<BoxPlan> before;  // go without the lock
  {
    MutexLock lock(mu_);
    closed_ = true;
    before.resize(view_.boxes.size());
    before.swap(view_.boxes);
    // What it was pinned to is asked for when its files are to go.
    for (size_t b = 0; b < before.size(); ++b) view_.boxes[b].pinned = before[b].pinned;
  }
  full_.Close(status);
}

}  // namespace athanor
