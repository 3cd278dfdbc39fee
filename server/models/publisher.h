// Decides what serves: which plans a version has, and which version serves its name. Stores it too.
//
//   publisher.Publish(version, plan);   // the plan serves its version from now on
//
// One change at a time. Its lock is taken after Registry's and HeldTensors' and before
// VersionTable's (README). Thread-safe; borrows everything.
#ifndef ATHANOR_SERVER_MODELS_PUBLISHER_H_
#define ATHANOR_SERVER_MODELS_PUBLISHER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/models/held_tensors.h"
#include "server/models/model_version.h"
#include "server/models/version_table.h"
#include "server/storage/registry_db.h"

namespace athanor {

class Publisher {
 public:
  Publisher(RegistryDb* db, const HeldTensors* tensors, VersionTable* versions)
      : db_(*db), tensors_(*tensors), versions_(*versions) {}

  // Told of a model whenever that it serves, or that there is one, may have changed; one call at a
  // time. It may look things up, but change nothing.
  using ServingHook = std::function<void(const std::string& name)>;
  void SetHook(ServingHook hook);
  void Tell(const std::string& name);

  // No plan serves a version of which a tensor was found damaged, though it was loaded before.
  // Publish, PublishBox, PublishBoxes, Restore, PinPlan, PinBox and UnpinBoxes are
  // FAILED_PRECONDITION then and name the parameter; where it was healed since, ABORTED.
  // All plans of a version with states that serve have one signature (v1::Plan.signature), that of
  // the first, so that its sequences may go from one to another: these calls are
  // FAILED_PRECONDITION for a plan of another, unless it is for another target, and for a plan with
  // states that has none.

  // The plan serves its version from now on, and the version its name unless a newer one or a
  // rollback says otherwise. ABORTED: the version was deleted meanwhile, or is served and pinned.
  absl::Status Publish(const std::shared_ptr<ModelVersion>& version,
                       std::shared_ptr<const ServedPlan> plan);
  // As Publish, of a plan of one of the version's boxes. ABORTED also where its boxes are others
  // now.
  absl::Status PublishBox(ModelVersion& version, const std::shared_ptr<const BucketGrid>& grid,
                          int bucket, std::shared_ptr<const ServedPlan> plan);
  // Replaces the boxes and their plans; see Plans::Replace. FAILED_PRECONDITION also where a box
  // that is none of these was pinned. OK and nothing done: the version was deleted.
  absl::Status PublishBoxes(ModelVersion& version, std::shared_ptr<const BucketGrid> grid,
                            std::vector<PlanBook> boxes);
  // As Publish, of plans that the version's rows name already: `kept` with `plan` among them.
  absl::Status Restore(const std::shared_ptr<ModelVersion>& version,
                       std::shared_ptr<const ServedPlan> plan, std::vector<KeptPlan> kept);
  // Keeps a plan that may be pinned, beside the one that serves.
  void Keep(ModelVersion& version, std::shared_ptr<const CompiledPlan> plan);
  // Has `plan`, if any, serve `version`, and no other while `plan_id` is not empty. NOT_FOUND
  // unless that is the plan's.
  absl::Status PinPlan(const std::shared_ptr<ModelVersion>& version, const std::string& plan_id,
                       std::shared_ptr<const ServedPlan> plan);
  // Has `plan` and no other serve one of the version's boxes, also after the next start.
  // FAILED_PRECONDITION: it has other boxes now.
  absl::Status PinBox(ModelVersion& version, const std::shared_ptr<const BucketGrid>& grid,
                      int bucket, std::shared_ptr<const ServedPlan> plan);
  // Unpins all boxes. `plans`, by bucket, serve them from now on, or the full range's plan.
  absl::Status UnpinBoxes(ModelVersion& version,
                          std::vector<std::shared_ptr<const ServedPlan>> plans);
  // Stores the buckets that the version is compiled for after the next start.
  absl::Status SetBuckets(const ModelVersion& version, const BucketGrid::Ranges& buckets);

  // Has an earlier version serve the name, see VersionTable::RolledBack.
  absl::StatusOr<std::shared_ptr<ModelVersion>> Rollback(const std::string& name,
                                                         const std::string& version);
  // Drops all plans of the versions that have the tensor, which is damaged.
  void Withdraw(const std::string& hash, const std::string& damage);
  // Calls `change` while no plan is published: it may put a version into the table in place of
  // another, for which nothing is stored from then on.
  absl::Status Change(absl::FunctionRef<absl::Status()> change);
  // Forgets versions of a name, on disk first; the newest that is ready takes over from one that
  // served.
  absl::Status Retire(const std::string& name, const VersionList& versions);

 private:
  // FAILED_PRECONDITION names a tensor of the version that is damaged. ABORTED: one was when `plan`
  // was loaded, which may compute with it still.
  absl::Status CheckHeld(const ModelVersion& version, const ServedPlan& plan) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // FAILED_PRECONDITION: what serves the version sums in another order, or nobody knows.
  static absl::Status CheckSignature(const ModelVersion& version, const ServedPlan& plan);
  // NOT_FOUND: the version was deleted, or replaced by another of its number.
  absl::Status CheckThere(const ModelVersion& version) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Stores which plans the version has, pinned to `pinned`. NOT_FOUND: it was deleted or replaced.
  absl::Status StorePlans(const ModelVersion& version, const std::string& pinned)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Stores them beside a plan that serves; failing costs a later start, not this one.
  void NotePlans(const ModelVersion& version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Stores that the version serves its name, unless it does not take over. Returns the row that
  // VersionTable gets once the version has its plan.
  std::optional<NameRow> TakeOver(const ModelVersion& version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StoreServing(const NameRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  RegistryDb& db_;
  const HeldTensors& tensors_;
  VersionTable& versions_;
  Mutex hook_mu_;
  ServingHook hook_ ABSL_GUARDED_BY(hook_mu_);
  mutable Mutex mu_;  // guards what serves: plans of versions, rows of names and plans
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_PUBLISHER_H_
