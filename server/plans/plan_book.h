// The book of one box of a version's sizes: the plan that serves it, the plans it can be pinned to,
// and the pin.
//
//   book.AddServed(*loaded);
//   book.AddFound(compiled, /*serving=*/"p-12ab");
//   if (const KeptPlan* kept = book.Find("p-12ab")) { ... load *kept->plan again ... }
//
// A value: Plans (plans.h) guards the books of a version and hands out copies. Kept plans hold
// neither prepared weights nor arenas.
#ifndef ATHANOR_SERVER_PLANS_PLAN_BOOK_H_
#define ATHANOR_SERVER_PLANS_PLAN_BOOK_H_

#include <memory>
#include <string>
#include <vector>

#include "server/plans/compiled_plan.h"
#include "server/plans/served_plan.h"

namespace athanor {

struct PlanBook {
  // Number of plans kept, the first one and the latest others: for the full range, and for a box.
  static constexpr size_t kMost = 8, kMostOfBox = 3;

  // Adds a plan that serves, as the latest. Returns the plans given up for it, which are large: let
  // them go without a lock.
  std::vector<KeptPlan> AddServed(const ServedPlan& plan);
  // Adds a plan that does not serve, unless it is there. Never gives up the plan with id `keep` for
  // it. Returns as AddServed.
  std::vector<KeptPlan> AddFound(std::shared_ptr<const CompiledPlan> plan, const std::string& keep);
  // Returns the kept plan of this id; null: there is none.
  const KeptPlan* Find(const std::string& plan_id) const;
  // Returns the last plan given to AddServed; null before the first.
  std::shared_ptr<const CompiledPlan> latest() const;
  // Returns the plan where every search could begin; null before there is one.
  std::shared_ptr<const CompiledPlan> first() const;

  std::shared_ptr<const ServedPlan> serving;  // null: see `reason`
  std::string reason;                         // why a box has no plan of its own
  // Id of the full range's plan that this one was measured beside, at the box's sizes, and is not
  // slower than.
  std::string beside;
  // Id of the plan that the box is pinned to, which serves as soon as it is loaded; empty: none.
  std::string pinned;
  std::vector<KeptPlan> kept;  // the latest last
  size_t most = kMostOfBox;    // number of plans kept

 private:
  std::vector<KeptPlan> Add(KeptPlan added, const std::string& keep);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_PLAN_BOOK_H_
