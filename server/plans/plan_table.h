// The plans of a version by bucket: that of the full range, which always stays and which calls wait
// for, and those of the boxes that refine it.
//
//   PlanTable plans(grid);
//   std::shared_ptr<const ServedPlan> plan = plans.For(dims);   // null: not even the full range's
//
// Looking a plan up starts nothing: sizes without a plan of their own run on the full range's.
// Thread-safe; For takes one short lock.
#ifndef ATHANOR_SERVER_PLANS_PLAN_TABLE_H_
#define ATHANOR_SERVER_PLANS_PLAN_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/plans/bucket_grid.h"
#include "server/plans/kept_plans.h"
#include "server/plans/plan_slot.h"
#include "server/plans/served_plan.h"

namespace athanor {

class PlanTable {
 public:
  // What serves a box: its plan, or why it has none.
  struct BoxPlan {
    std::shared_ptr<const ServedPlan> plan;
    std::string reason;
    // Of the full range's plan that it was measured beside, at the box's sizes, and is not slower.
    std::string beside = {};
    // The plans that served the box; never null in a table.
    std::shared_ptr<KeptPlans> kept = nullptr;
    // Id of the plan that it is pinned to, which serves as soon as it is there; empty: of none.
    std::string pinned = {};
  };
  // Whether the box is served by its own plan where `full` serves the rest: a baseline is only
  // where nothing was found for the full range, or that is not faster there.
  static bool GoesFirst(const BoxPlan& box, const ServedPlan* full);
  // One snapshot.
  struct View {
    std::shared_ptr<const BucketGrid> grid;
    std::vector<BoxPlan> boxes;  // by bucket; the first, the full range's, is empty

    const BoxPlan& box(int bucket) const { return boxes[bucket]; }
  };

  explicit PlanTable(std::shared_ptr<const BucketGrid> grid);

  PlanSlot& full() { return full_; }
  const PlanSlot& full() const { return full_; }
  // What runs a request of these sizes now: its box's plan if that goes first, else the full
  // range's. REQUIRES: sizes in the dims' bounds
  std::shared_ptr<const ServedPlan> For(absl::Span<const int64_t> dims) const;
  View view() const;

  // Other boxes with their plans, in one step: requests under way end with what they began. What is
  // pinned stays. False after Close, and where a pinned box is not among these.
  // REQUIRES: boxes.size() == grid->size()
  bool Replace(std::shared_ptr<const BucketGrid> grid, std::vector<BoxPlan> boxes);
  // One plan in the place of another. Without one `reason` says why. False: closed, pinned, or
  // the boxes are others than `grid`'s now.
  bool Set(const std::shared_ptr<const BucketGrid>& grid, int bucket,
           std::shared_ptr<const ServedPlan> plan, std::string reason = "");
  // The box's plan was measured beside this one of the full range, and is not slower there.
  void SetBeside(const std::shared_ptr<const BucketGrid>& grid, int bucket,
                 const std::string& full_plan_id);
  // One that does not serve, beside those that the box was served by.
  void Keep(const std::shared_ptr<const BucketGrid>& grid, int bucket,
            std::shared_ptr<const CompiledPlan> plan);
  // The box is served by `plan` and no other, even where the version is pinned to one of the full
  // range. False as of Set, but for what is pinned.
  bool Pin(const std::shared_ptr<const BucketGrid>& grid, int bucket,
           std::shared_ptr<const ServedPlan> plan);
  // Before its plan is there.
  void SetPinned(int bucket, const std::string& plan_id);
  // From now on it is served by `plan`; null: by the full range's.
  void Unpin(int bucket, std::shared_ptr<const ServedPlan> plan);
  // Of a plan that one of the boxes has, or had.
  struct Place {
    std::shared_ptr<const BucketGrid> grid;
    int bucket = 0;
    KeptPlan kept;
    std::shared_ptr<const ServedPlan> serving;  // null: it does not
  };
  std::optional<Place> Find(const std::string& plan_id) const;
  std::vector<std::string> pinned() const;  // ids
  // While false the full range's plan serves every size: it is what the version is pinned to.
  void UseBoxes(bool use);
  bool uses_boxes() const;
  // Drops all plans, and answers those who wait with `status` until there are others.
  void Withdraw(const absl::Status& status);
  // For good: drops all plans and answers those who wait.
  void Close(const absl::Status& status);

 private:
  PlanSlot full_;
  mutable Mutex mu_;
  View view_ ABSL_GUARDED_BY(mu_);
  bool use_boxes_ ABSL_GUARDED_BY(mu_) = true;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_PLAN_TABLE_H_
