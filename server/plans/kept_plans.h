// The plans that a version was served by, the one that serves included, and those that a search
// found to be kept: what can be pinned.
//
//   plans.Add(*served);
//   plans.AddFound(PlanInfoOf(*found), found, "p-12ab");
//   std::shared_ptr<const PlanSearch::Found> made = plans.Find("p-12ab");   // to be loaded again
//
// Holds what they are loaded from, neither prepared weights nor arenas. Thread-safe.
#ifndef ATHANOR_SERVER_PLANS_KEPT_PLANS_H_
#define ATHANOR_SERVER_PLANS_KEPT_PLANS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/plans/plan_search.h"
#include "server/plans/served_plan.h"

namespace athanor {

class KeptPlans {
 public:
  // The first one and the latest of the others: of the full range, and of a box.
  static constexpr size_t kMost = 8, kMostOfBox = 3;

  explicit KeptPlans(size_t most = kMost) : most_(most) {}

  struct Kept {
    v1::PlanInfo info;
    std::shared_ptr<const PlanSearch::Found> made;
    bool served = false;
    bool first = false;  // where every search could begin
    std::vector<v1::PlanCost> costs = {};
  };

  // The latest from now on. Nothing if it was loaded from nothing that is kept (`made` is null).
  void Add(const ServedPlan& plan);
  // One that does not serve. `serving`, the id of the plan that does, is not given up for it.
  void AddFound(const v1::PlanInfo& info, std::shared_ptr<const PlanSearch::Found> made,
                const std::string& serving);
  // In the place of those it has, the latest last.
  void Restore(std::vector<Kept> plans);
  std::vector<Kept> all() const;  // the latest last
  // Null: there is none of this id.
  std::shared_ptr<const PlanSearch::Found> Find(const std::string& plan_id) const;
  // What its steps cost, as the last search of the version measured it.
  void SetCosts(const std::string& plan_id, std::vector<v1::PlanCost> costs);
  // All that is known of one; nullopt if there is none of this id.
  struct Details {
    v1::PlanInfo info;
    std::shared_ptr<const PlanSearch::Found> made;
    std::vector<v1::PlanCost> costs;
  };
  std::optional<Details> Describe(const std::string& plan_id) const;
  // The last of those given to Add; null before the first.
  std::shared_ptr<const PlanSearch::Found> latest() const;
  // Where every search could begin; null before the first Add.
  std::shared_ptr<const PlanSearch::Found> first() const;
  // Latest first.
  std::vector<v1::PlanInfo> infos() const;
  // For good.
  void Close();

 private:
  void AddLocked(Kept added, const std::string& serving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t most_;
  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Kept> plans_ ABSL_GUARDED_BY(mu_);  // the latest last
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_KEPT_PLANS_H_
