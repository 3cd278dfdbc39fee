// Between the server's plans and the cache: what a plan is kept under, from a plan to its row and
// back, and which plans are pinned (pin_files.h).
//
//   keeper.SetMachine(machine);
//   const PlanKey key = keeper.KeyOf(version, version.graph(), policy.ToProto());
//   absl::StatusOr<PlanKeeper::Kept> kept = keeper.Find(version, key, "p-12ab");
//
// Thread-safe.
#ifndef ATHANOR_SERVER_KEEPER_PLAN_KEEPER_H_
#define ATHANOR_SERVER_KEEPER_PLAN_KEEPER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/cache/cache.h"
#include "compiler/ir/graph/graph.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/base/disk.h"
#include "server/base/search_policy.h"
#include "server/keeper/pin_files.h"
#include "server/models/model_version.h"
#include "server/plans/compiled_plan.h"

namespace athanor {

// What the object of a kernel is kept under.
KernelKey KernelKeyOf(const v1::Kernel& kernel, const internal::TargetReply& machine);

class PlanKeeper {
 public:
  // Both outlive it. `cache` may be null: then only pinned plans are kept. `state_dir` exists.
  PlanKeeper(Cache* cache, const std::string& state_dir, Disk* disk)
      : cache_(cache), pins_(state_dir, disk) {}

  // What plans are made for. Before it is known none is found or kept.
  void SetMachine(const internal::TargetReply& machine);
  bool ready() const;

  // Of a plan of `graph`, which is the version's or that with narrower dims, found with `how`; of a
  // baseline `how` says nothing. REQUIRES: ready().
  PlanKey KeyOf(const ModelVersion& version, const Graph& graph,
                const v1::SearchOptions& how) const;

  // Returns a plan, of which kernels may be missing. NOT_FOUND says what there is instead, and in
  // which column of the key it differs.
  absl::StatusOr<KeptPlan> Find(const ModelVersion& version, const PlanKey& key,
                                const std::string& plan_id) const;
  // Returns the best plan that `policy` allows: an approximate one only where it says so, none
  // found with rules it disables, and without a search the baseline. The baseline comes second if
  // it is another plan. Kernels may be missing.
  absl::StatusOr<std::vector<KeptPlan>> FindBest(PlanKey key, const SearchPolicy& policy) const;
  // The id of the plan that FindBest would give, if the cache has all its kernels, else empty;
  // neither bodies nor objects are read.
  std::string BestId(PlanKey key, const SearchPolicy& policy) const;

  // Returns whole plans that `policy` allows: the best `most` of them, and the baseline.
  CompiledPlans FindAll(PlanKey key, const SearchPolicy& policy, size_t most) const;

  // Keeps a baseline whose kernels were checked; `key` is that of any plan of its graph.
  void PutBaseline(const PlanKey& key, const CompiledPlan& baseline);
  // Notes that a plan which Find returned was verified with the objects it has now.
  absl::Status PutVerified(const ModelVersion& version, const PlanKey& key, const KeptPlan& kept,
                           bool pinned);
  // A plan that Find or FindBest gave was verified and is wrong. Neither gives it again, here or
  // after a start, unless it is put once more.
  void Quarantine(const ModelVersion& version, const PlanKey& key, const std::string& plan_id,
                  const absl::Status& verdict);
  // Keeps a plan that was verified whole and takes `ratio` times as long as plan `from`.
  void PutFound(const PlanKey& key, const CompiledPlan& found, const std::string& from,
                double ratio);
  // What the steps of a plan that is kept cost.
  void PutCosts(const PlanKey& key, const std::string& plan_id,
                const std::vector<v1::PlanCost>& costs);
  // Whether the automatic search of this policy has come to its end, and under the same conditions.
  bool SearchEnded(const PlanKey& key, const SearchPolicy& policy) const;
  // Known to a server that is started when this returns.
  void PutSearch(const PlanKey& key, const SearchPolicy& policy, const SearchState& state);

  // Writes the plan to a file of the version. Once it returns OK, Find has the plan for this
  // version also without a cache; kernels may be missing.
  absl::Status Pin(const ModelVersion& version, const PlanKey& key, const KeptPlan& kept);
  void Unpin(const ModelVersion& version, const std::string& plan_id) {
    pins_.Remove(version, plan_id);
  }
  // At start, of all versions there are: PinFiles::Take.
  void TakePins(absl::Span<const std::shared_ptr<ModelVersion>> versions) { pins_.Take(versions); }

 private:
  internal::StoredPlan Stored(const CompiledPlan& compiled, const PlanCosts& costs) const;
  // `share` is its time divided by the baseline's.
  KeptPlan Revived(const internal::StoredPlan& stored, double share = 1) const;
  std::string WhyNot(const PlanKey& key) const;
  // Why it was quarantined since the start; empty: it was not.
  std::string Refusal(const PlanKey& key, const std::string& plan_id) const;
  void TakeBack(const PlanKey& key, const std::string& plan_id);
  // The row to be served by, and the baseline, from rows as Plans or PlanHeads give them.
  struct Rows {
    std::optional<PlanRow> fastest, baseline;
  };
  Rows Choose(PlanKey key, const SearchPolicy& policy, bool bodies) const;

  Cache* const cache_;
  PinFiles pins_;
  mutable Mutex mu_;
  std::optional<internal::TargetReply> machine_ ABSL_GUARDED_BY(mu_);
  std::string clocks_ ABSL_GUARDED_BY(mu_);
  // By key (GateHash) and plan id, why: also where the cache could not be written.
  std::map<std::pair<std::string, std::string>, std::string> refused_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_KEEPER_PLAN_KEEPER_H_
