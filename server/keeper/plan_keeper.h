// Connects the server's plans with the cache: the keys of plans, conversion between plans and cache
// rows, and pinned plans (pin_files.h).
//
//   keeper.SetMachine(machine);
//   const PlanKey key = keeper.KeyOf(version, version.graph(), policy.ToProto());
//   absl::StatusOr<KeptPlan> kept = keeper.Find(version, key, "p-12ab");
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
#include "server/child/kernel_key.h"
#include "server/keeper/pin_files.h"
#include "server/models/model_version.h"
#include "server/plans/compiled_plan.h"

namespace athanor {

class PlanKeeper {
 public:
  // `cache` and `disk` must outlive it. `cache` may be null: then only pinned plans are kept.
  // `state_dir` must exist.
  PlanKeeper(Cache* cache, const std::string& state_dir, Disk* disk)
      : cache_(cache), pins_(state_dir, disk) {}

  // Sets the machine with one of its devices, `machine.device()`, that plans are made for. Until
  // then no plan of a version of that device is found or kept.
  void SetMachine(const internal::TargetReply& machine);
  bool ready(const ModelVersion& version) const;

  // Returns the key of a plan of `graph`, found with `how`; an empty `how` means a baseline.
  // `graph` is the version's own or the same with narrower dims. REQUIRES: ready(version).
  PlanKey KeyOf(const ModelVersion& version, const Graph& graph,
                const v1::SearchOptions& how) const;

  // Returns a plan, of which kernels may be missing. NOT_FOUND says what there is instead, and in
  // which column of the key it differs.
  absl::StatusOr<KeptPlan> Find(const ModelVersion& version, const PlanKey& key,
                                const std::string& plan_id) const;
  // Returns the best plan that `policy` allows: an approximate one only where it says so, none
  // found with rules it disables, none that calls a library that the machine lacks, and without a
  // search the baseline. The baseline comes second if
  // it is another plan. Kernels may be missing.
  absl::StatusOr<std::vector<KeptPlan>> FindBest(PlanKey key, const SearchPolicy& policy) const;
  // Returns the id of the plan that FindBest would return if the cache has all its kernels,
  // otherwise an empty string. Reads no objects and, unless the machine lacks a library, no bodies.
  std::string BestId(PlanKey key, const SearchPolicy& policy) const;

  // Returns whole plans that `policy` allows: the best `most` of them, and the baseline.
  CompiledPlans FindAll(PlanKey key, const SearchPolicy& policy, size_t most) const;

  // Keeps a baseline whose kernels were checked; `key` is that of any plan of its graph.
  void PutBaseline(const PlanKey& key, const CompiledPlan& baseline);
  // Notes that a plan which Find returned was verified with the objects it has now.
  absl::Status PutVerified(const ModelVersion& version, const PlanKey& key, const KeptPlan& kept,
                           bool pinned);
  // Records that a plan returned by Find or FindBest was verified and is wrong. Neither returns it
  // again, not even after a restart, unless it is put once more.
  void Quarantine(const ModelVersion& version, const PlanKey& key, const std::string& plan_id,
                  const absl::Status& verdict);
  // Keeps a plan that was verified whole and takes `ratio` times as long as plan `from`.
  void PutFound(const PlanKey& key, const CompiledPlan& found, const std::string& from,
                double ratio);
  // Stores the costs of the steps of a stored plan.
  void PutCosts(const PlanKey& key, const std::string& plan_id,
                const std::vector<v1::PlanCost>& costs);
  // Reports whether an automatic search of this policy has finished under the same conditions.
  bool SearchEnded(const PlanKey& key, const SearchPolicy& policy) const;
  // Stores the state of a search. Once this returns, a restarted server knows it.
  void PutSearch(const PlanKey& key, const SearchPolicy& policy, const SearchState& state);

  // Writes the plan to a file of the version. Once it returns OK, Find has the plan for this
  // version also without a cache; kernels may be missing.
  absl::Status Pin(const ModelVersion& version, const PlanKey& key, const KeptPlan& kept);
  void Unpin(const ModelVersion& version, const std::string& plan_id) {
    pins_.Remove(version, plan_id);
  }
  // Runs at start with all versions: PinFiles::Take.
  void TakePins(absl::Span<const std::shared_ptr<ModelVersion>> versions) { pins_.Take(versions); }

 private:
  static internal::StoredPlan Stored(const PlanKey& key, const CompiledPlan& compiled,
                                     const PlanCosts& costs);
  // `share` is its time divided by the baseline's.
  KeptPlan Revived(const PlanKey& key, const internal::StoredPlan& stored, double share = 1) const;
  std::string WhyNot(const PlanKey& key) const;
  // Returns why the plan was quarantined since the start; empty if it was not.
  std::string Refusal(const PlanKey& key, const std::string& plan_id) const;
  void TakeBack(const PlanKey& key, const std::string& plan_id);
  // Holds the row to serve and the baseline's, out of the rows of a key (PlanTier).
  struct Rows {
    std::optional<PlanRow> fastest, baseline;
  };
  Rows Choose(PlanKey key, const SearchPolicy& policy, bool bodies) const;

  Cache* const cache_;
  PinFiles pins_;
  mutable Mutex mu_;
  std::map<std::string, internal::TargetReply> machines_ ABSL_GUARDED_BY(mu_);  // by device
  std::string clocks_ ABSL_GUARDED_BY(mu_);
  // Reasons of quarantines by key (GateHash) and plan id; effective even if the cache cannot be
  // written.
  std::map<std::pair<std::string, std::string>, std::string> refused_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_KEEPER_PLAN_KEEPER_H_
