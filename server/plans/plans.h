// The plans of a version, or of one of its sets of taps: that of the full range, which always stays
// and which calls wait for, and those of the boxes that refine it.
//
//   Plans plans(grid);
//   std::shared_ptr<const ServedPlan> plan = plans.For(dims);   // null: not even the full range's
//
// For is the only place where the plan of a call is chosen. It starts nothing: sizes without a plan
// of their own run on the full range's. Thread-safe; For takes two short locks, one after the
// other. Plans that are dropped are destroyed without a lock.
#ifndef ATHANOR_SERVER_PLANS_PLANS_H_
#define ATHANOR_SERVER_PLANS_PLANS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/plans/bucket_grid.h"
#include "server/plans/plan_book.h"
#include "server/plans/plan_slot.h"
#include "server/plans/served_plan.h"

namespace athanor {

class Plans {
 public:
  using Grid = std::shared_ptr<const BucketGrid>;

  // A snapshot.
  struct View {
    Grid grid;
    std::vector<PlanBook> books;  // by bucket; the first is the full range's

    const PlanBook& full() const { return books[BucketGrid::kFullRange]; }
    const PlanBook& box(int bucket) const { return books[bucket]; }
    // Returns the bucket that keeps the plan; nullopt: none does.
    std::optional<int> Find(const std::string& plan_id) const;
  };

  // Null: there are no boxes.
  explicit Plans(Grid grid = nullptr);

  // Reports whether the box is served by its own plan where `full` serves the rest: a baseline is
  // only where nothing was found for the full range, or that is not faster there.
  static bool GoesFirst(const PlanBook& box, const ServedPlan* full);

  PlanSlot& full() { return full_; }
  const PlanSlot& full() const { return full_; }
  // Returns what runs a call of these sizes now: its box's plan if that goes first, otherwise the
  // full range's; `otherwise` if nothing serves, as of a version deleted since the call came.
  // REQUIRES: sizes in the dims' bounds
  std::shared_ptr<const ServedPlan> For(
      absl::Span<const int64_t> dims,
      const std::shared_ptr<const ServedPlan>& otherwise = nullptr) const;
  View view() const;
  Grid grid() const;

  // The full range is served by `plan` from now on. False after Close; then the plan is dropped.
  bool Publish(std::shared_ptr<const ServedPlan> plan);
  // As Publish, with `kept`, `plan` among them, instead of the plans kept.
  bool Restore(std::shared_ptr<const ServedPlan> plan, std::vector<KeptPlan> kept);

  // Serves other boxes in one step: calls under way end with what they began. Takes what serves
  // them from `boxes`; pins stay, and what is kept stays with boxes that stay. False after Close,
  // and where a pinned box is not among these. REQUIRES: boxes.size() == grid->size()
  bool Replace(Grid grid, std::vector<PlanBook> boxes);
  // Replaces a box's plan by another, or by none with the reason. False: closed, pinned, or there
  // are other boxes than `grid`'s now.
  bool Set(const Grid& grid, int bucket, std::shared_ptr<const ServedPlan> plan,
           std::string reason = "");
  // Notes that the box's plan was measured beside this one of the full range, and is not slower.
  void SetBeside(const Grid& grid, int bucket, const std::string& full_plan_id);
  // Keeps a plan that does not serve. Here and in SetCosts `grid` is not looked at for the full
  // range, and nothing is done for boxes that are there no more.
  void Keep(const Grid& grid, int bucket, std::shared_ptr<const CompiledPlan> plan);
  void SetCosts(const Grid& grid, int bucket, const std::string& plan_id, PlanCosts costs);

  // Serves the box by `plan` and no other, even where the version is pinned to a plan of the full
  // range. False as of Set, but for pinned boxes.
  bool Pin(const Grid& grid, int bucket, std::shared_ptr<const ServedPlan> plan);
  // Notes a pin whose plan may not be loaded yet; empty: none. While the full range is pinned, its
  // plan serves every size but those of pinned boxes.
  void SetPinned(int bucket, const std::string& plan_id);
  // Serves a pinned box by `plan`; null: by the full range's.
  void Unpin(int bucket, std::shared_ptr<const ServedPlan> plan);
  std::string pinned(int bucket) const;
  std::vector<std::string> pinned_boxes() const;  // ids of their plans

  // Drops all plans that serve, and answers those who wait with `status` until there are others.
  void Withdraw(const absl::Status& status);
  // For good: drops all plans and answers those who wait.
  void Close(const absl::Status& status);

 private:
  // Null: closed, or there are other boxes than `grid`'s.
  PlanBook* BookOf(const Grid& grid, int bucket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  PlanSlot full_;
  mutable Mutex mu_;
  Grid grid_ ABSL_GUARDED_BY(mu_);
  // By bucket. The plan that serves the full range is in full_.
  std::vector<PlanBook> books_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_PLANS_H_
