#include "server/plans/plans.h"

#include <utility>

namespace athanor {
namespace {

constexpr int kFull = BucketGrid::kFullRange;
constexpr char kNotYet[] = "not compiled yet";

// Keeps what serves the boxes.
void AddServing(std::vector<PlanBook>* books) {
  for (PlanBook& book : *books) {
    if (book.serving == nullptr) continue;
    if (book.pinned.empty()) {
      book.AddServed(*book.serving);
    } else {
      book.AddFound(book.serving->compiled, book.pinned);
    }
  }
}

// Gives `boxes` the pins of `now`, and what pinned boxes keep. False: a pinned box is not among
// them.
bool TakePins(const std::vector<PlanBook>& now, const BucketGrid& from_grid, const BucketGrid& grid,
              std::vector<PlanBook>* boxes) {
  for (int from = 1; from < static_cast<int>(now.size()); ++from) {
    if (now[from].pinned.empty()) continue;
    int to = 1;
    while (to < grid.size() && grid.box(to) != from_grid.box(from)) ++to;
    if (to == grid.size()) return false;
    PlanBook& box = (*boxes)[to];
    // If the pinned plan is loaded nowhere, `box` has the reason.
    const bool loaded = box.serving != nullptr && box.serving->id() == now[from].pinned;
    if (!loaded && now[from].serving != nullptr) box = now[from];
    box.kept = now[from].kept;
    box.pinned = now[from].pinned;
  }
  return true;
}

}  // namespace

std::optional<int> Plans::View::Find(const std::string& plan_id) const {
  for (size_t bucket = 0; bucket < books.size(); ++bucket) {
    if (books[bucket].Find(plan_id) != nullptr) return static_cast<int>(bucket);
  }
  return std::nullopt;
}

bool Plans::GoesFirst(const PlanBook& box, const ServedPlan* full) {
  if (box.serving == nullptr) return false;
  return box.serving->compiled->searched() || full == nullptr || !full->compiled->searched() ||
         box.beside == full->id();
}

Plans::Plans(Grid grid) {
  MutexLock lock(mu_);
  books_.resize(grid == nullptr ? 1 : grid->size());
  for (PlanBook& book : books_) book.reason = kNotYet;
  books_[kFull].reason.clear();
  books_[kFull].most = PlanBook::kMost;
  grid_ = std::move(grid);
}

PlanBook* Plans::BookOf(const Grid& grid, int bucket) {
  if (closed_ || (bucket != kFull && grid_ != grid)) return nullptr;
  return &books_[bucket];
}

std::shared_ptr<const ServedPlan> Plans::For(
    absl::Span<const int64_t> dims, const std::shared_ptr<const ServedPlan>& otherwise) const {
  const std::shared_ptr<const ServedPlan> full = full_.plan();
  const std::shared_ptr<const ServedPlan>& rest = full == nullptr ? otherwise : full;
  MutexLock lock(mu_);
  if (closed_ || books_.size() == 1) return rest;
  const PlanBook& box = books_[grid_->Find(dims)];
  if (!box.pinned.empty()) return box.serving != nullptr ? box.serving : rest;
  return books_[kFull].pinned.empty() && GoesFirst(box, full.get()) ? box.serving : rest;
}

Plans::View Plans::view() const {
  std::shared_ptr<const ServedPlan> full = full_.plan();
  MutexLock lock(mu_);
  View view{grid_, books_};
  view.books[kFull].serving = std::move(full);
  return view;
}

Plans::Grid Plans::grid() const {
  MutexLock lock(mu_);
  return grid_;
}

bool Plans::Publish(std::shared_ptr<const ServedPlan> plan) {
  std::vector<KeptPlan> given_up;  // freed without the lock
  {
    // Before the slot has it, so that a caller that waited for it finds it among the plans kept.
    MutexLock lock(mu_);
    if (!closed_) given_up = books_[kFull].AddServed(*plan);
  }
  return full_.Set(std::move(plan));
}

bool Plans::Restore(std::shared_ptr<const ServedPlan> plan, std::vector<KeptPlan> kept) {
  {
    MutexLock lock(mu_);
    if (!closed_) books_[kFull].kept.swap(kept);
  }
  return full_.Set(std::move(plan));
}

bool Plans::Replace(Grid grid, std::vector<PlanBook> boxes) {
  std::vector<PlanBook> before;  // freed without the lock
  MutexLock lock(mu_);
  for (size_t b = 0; b < boxes.size(); ++b) {
    boxes[b].pinned.clear();
    boxes[b].kept.clear();
    if (!closed_ && grid == grid_) boxes[b].kept = books_[b].kept;
  }
  if (closed_ || !TakePins(books_, *grid_, *grid, &boxes)) return false;
  boxes[kFull] = books_[kFull];
  AddServing(&boxes);
  before = std::exchange(books_, std::move(boxes));
  grid_ = std::move(grid);
  return true;
}

bool Plans::Set(const Grid& grid, int bucket, std::shared_ptr<const ServedPlan> plan,
                std::string reason) {
  std::vector<KeptPlan> given_up;  // freed without the lock
  MutexLock lock(mu_);
  PlanBook* const box = BookOf(grid, bucket);
  if (box == nullptr || !box->pinned.empty()) return false;
  if (plan != nullptr) given_up = box->AddServed(*plan);
  box->serving.swap(plan);  // the one before goes without the lock
  box->reason = std::move(reason);
  box->beside.clear();
  return true;
}

void Plans::SetBeside(const Grid& grid, int bucket, const std::string& full_plan_id) {
  MutexLock lock(mu_);
  if (PlanBook* const box = BookOf(grid, bucket)) box->beside = full_plan_id;
}

void Plans::Keep(const Grid& grid, int bucket, std::shared_ptr<const CompiledPlan> plan) {
  const std::shared_ptr<const ServedPlan> full = full_.plan();
  std::vector<KeptPlan> given_up;  // freed without the lock
  MutexLock lock(mu_);
  PlanBook* const book = BookOf(grid, bucket);
  if (book == nullptr) return;
  const ServedPlan* const serving = bucket == kFull ? full.get() : book->serving.get();
  given_up = book->AddFound(std::move(plan), serving == nullptr ? "" : serving->id());
}

void Plans::SetCosts(const Grid& grid, int bucket, const std::string& plan_id, PlanCosts costs) {
  MutexLock lock(mu_);
  PlanBook* const book = BookOf(grid, bucket);
  if (book == nullptr) return;
  for (KeptPlan& kept : book->kept) {
    if (kept.plan->id() == plan_id) kept.costs.swap(costs);  // frees the old ones without the lock
  }
}

bool Plans::Pin(const Grid& grid, int bucket, std::shared_ptr<const ServedPlan> plan) {
  std::vector<KeptPlan> given_up;  // freed without the lock
  MutexLock lock(mu_);
  PlanBook* const box = BookOf(grid, bucket);
  if (box == nullptr) return false;
  box->pinned = plan->id();
  given_up = box->AddFound(plan->compiled, box->pinned);
  box->serving.swap(plan);  // the one before goes without the lock
  box->reason.clear();
  box->beside.clear();
  return true;
}

void Plans::SetPinned(int bucket, const std::string& plan_id) {
  MutexLock lock(mu_);
  books_[bucket].pinned = plan_id;
}

void Plans::Unpin(int bucket, std::shared_ptr<const ServedPlan> plan) {
  std::vector<KeptPlan> given_up;  // freed without the lock
  MutexLock lock(mu_);
  PlanBook& box = books_[bucket];
  if (closed_ || box.pinned.empty()) return;
  if (plan != nullptr) given_up = box.AddServed(*plan);
  box.reason = plan == nullptr ? kNotYet : "";
  box.serving.swap(plan);  // the one before goes without the lock
  box.beside.clear();
  box.pinned.clear();
}

std::string Plans::pinned(int bucket) const {
  MutexLock lock(mu_);
  return books_[bucket].pinned;
}

std::vector<std::string> Plans::pinned_boxes() const {
  std::vector<std::string> ids;
  MutexLock lock(mu_);
  for (size_t bucket = 1; bucket < books_.size(); ++bucket) {
    if (!books_[bucket].pinned.empty()) ids.push_back(books_[bucket].pinned);
  }
  return ids;
}

void Plans::Withdraw(const absl::Status& status) {
  std::vector<std::shared_ptr<const ServedPlan>> before;  // go without the lock
  {
    MutexLock lock(mu_);
    for (PlanBook& book : books_) {
      if (book.serving == nullptr) continue;
      before.push_back(std::move(book.serving));
      book.serving = nullptr;
      book.reason = kNotYet;
    }
  }
  full_.Withdraw(status);
}

void Plans::Close(const absl::Status& status) {
  std::vector<PlanBook> before;  // freed without the lock
  {
    MutexLock lock(mu_);
    closed_ = true;
    before.resize(books_.size());
    before.swap(books_);
    // The pins stay: they are asked for when the files of pinned plans are removed.
    for (size_t b = 0; b < before.size(); ++b) books_[b].pinned = before[b].pinned;
  }
  full_.Close(status);
}

}  // namespace athanor
