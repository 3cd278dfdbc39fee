// Pins versions, or boxes of them, to plans they keep, and unpins them.
//
//   absl::Status pinned = pins.Pin("digits", /*version=*/"", "p-12ab").status();
//
// A pin is a promise: its plan is written to a file of the version before the pin is acknowledged.
// Thread-safe; borrows everything.
#ifndef ATHANOR_SERVER_JOBS_PLAN_PINS_H_
#define ATHANOR_SERVER_JOBS_PLAN_PINS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/jobs/search_policies.h"
#include "server/keeper/plan_keeper.h"
#include "server/models/model_version.h"
#include "server/models/plan_loader.h"
#include "server/models/registry.h"

namespace athanor {

class PlanPins {
 public:
  PlanPins(Registry* registry, PlanKeeper* keeper, const PlanLoader* loader,
           const SearchPolicies* policies)
      : registry_(*registry), keeper_(*keeper), loader_(*loader), policies_(*policies) {}

  // Serves the version by one of the plans it keeps, which is loaded in the caller's thread, until
  // an empty `plan_id` unpins it; then by the latest that served. A plan of a box serves that box
  // alone. NOT_FOUND names the plans there are.
  absl::StatusOr<std::shared_ptr<ModelVersion>> Pin(const std::string& name,
                                                    const std::string& version,
                                                    const std::string& plan_id);
  // Removes the files of a deleted version's pins.
  void ForgetDeleted(const ModelVersion& version);

 private:
  absl::Status PinBox(ModelVersion& version, const Plans::View& plans, int bucket,
                      const std::string& plan_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Serves each box by the latest plan that served it unpinned, otherwise by the best in the cache.
  absl::Status UnpinBoxes(ModelVersion& version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the file of a plan unless the version or one of its boxes is pinned to it.
  void Forget(const ModelVersion& version, const std::string& plan_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Registry& registry_;
  PlanKeeper& keeper_;
  const PlanLoader& loader_;
  const SearchPolicies& policies_;
  Mutex mu_;  // one pin at a time, so that none is loaded twice; taken before all others
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_PLAN_PINS_H_
