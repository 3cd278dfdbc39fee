// The plans that a version, or one of its boxes, can be pinned to: those that have served it, and
// those that a search found to be kept.
//
//   plans.Add(*served);
//   plans.AddFound(compiled, /*serving=*/"p-12ab");
//   std::optional<KeptPlan> kept = plans.Find("p-12ab");   // to be loaded again
//
// Holds neither prepared weights nor arenas. Thread-safe.
#ifndef ATHANOR_SERVER_PLANS_KEPT_PLANS_H_
#define ATHANOR_SERVER_PLANS_KEPT_PLANS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/plans/compiled_plan.h"
#include "server/plans/served_plan.h"

namespace athanor {

class KeptPlans {
 public:
  // Number of plans kept, the first one and the latest others: of the full range, and of a box.
  static constexpr size_t kMost = 8, kMostOfBox = 3;

  explicit KeptPlans(size_t most = kMost) : most_(most) {}

  // Adds a plan that serves, as the latest.
  void Add(const ServedPlan& plan);
  // Adds a plan that does not serve, unless it is there. Never gives up `serving`, the id of the
  // plan that does, for it.
  void AddFound(std::shared_ptr<const CompiledPlan> plan, const std::string& serving);
  // Replaces all plans; the latest is the last.
  void Restore(std::vector<KeptPlan> plans);
  // Returns all plans; the latest is the last.
  std::vector<KeptPlan> all() const;
  std::optional<KeptPlan> Find(const std::string& plan_id) const;
  void SetCosts(const std::string& plan_id, std::vector<v1::PlanCost> costs);
  // Returns the last plan given to Add; null before the first.
  std::shared_ptr<const CompiledPlan> latest() const;
  // Returns the plan where every search could begin; null before there is one.
  std::shared_ptr<const CompiledPlan> first() const;
  // Drops all plans for good.
  void Close();

 private:
  void AddLocked(KeptPlan added, const std::string& serving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t most_;
  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<KeptPlan> plans_ ABSL_GUARDED_BY(mu_);  // the latest last
};

// Adds what clients see of the plans, the latest first.
void AddInfos(const KeptPlans& plans, v1::Model* model);

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_KEPT_PLANS_H_
