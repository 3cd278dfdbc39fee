// The models the server knows, in parts: versions(), the tensors() they share, and publisher(),
// which decides what serves. The registry itself reads them at start, and adds, deletes and
// verifies versions. What it says it has, it has on disk.
//
//   std::shared_ptr<ModelVersion> v = registry.versions().Find("digits", "").value();
//   registry.publisher().Publish(v, plan);   // serves from now on
//
// Versions are added and deleted one at a time, so that a slow disk does not hold lookups up. Order
// of locks: Registry, HeldTensors, Publisher, then those that are held for a moment (README).
// Thread-safe.
#ifndef ATHANOR_SERVER_MODELS_REGISTRY_H_
#define ATHANOR_SERVER_MODELS_REGISTRY_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/frontend.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/base/options.h"
#include "server/memory/server_ledger.h"
#include "server/metrics/metrics.h"
#include "server/models/challenges.h"
#include "server/models/held_tensors.h"
#include "server/models/language_models.h"
#include "server/models/model_version.h"
#include "server/models/publisher.h"
#include "server/models/version_table.h"
#include "server/storage/registry_db.h"
#include "server/storage/tensor_store.h"

namespace athanor {

class Registry {
 public:
  // Reads what is stored under `options.state_dir`, which the caller has locked, and puts files
  // aside that nothing refers to. All arguments outlive the registry.
  static absl::StatusOr<std::unique_ptr<Registry>> Open(const ServerOptions& options,
                                                        ServerLedger* ledger, Metrics* metrics,
                                                        Disk* disk);
  // Told of a version whose damaged tensors are all held again, without locks.
  using HealedHook = std::function<void(const std::shared_ptr<ModelVersion>& version)>;
  void SetHealedHook(HealedHook hook);

  const VersionTable& versions() const { return versions_; }
  HeldTensors& tensors() { return tensors_; }
  Publisher& publisher() { return publisher_; }
  Challenges& challenges() { return challenges_; }
  LanguageModels& language_models() { return language_models_; }
  ServerLedger& ledger() { return ledger_; }
  RegistryDb& db() { return *db_; }
  Metrics& metrics() const { return metrics_; }  // where its versions are counted

  // Stores a version: tensors first, then its rows. `version` was made from `row` and gets its
  // number here, and its engine if it is one of a language model. A row from a model repository has
  // its number already, and takes the place of a version that has it. FAILED_PRECONDITION: the name
  // has uploaded versions and the row is from the repository, or the other way round.
  absl::Status Add(VersionRow row, const std::shared_ptr<ModelVersion>& version,
                   std::vector<HeldTensors::NewTensor> tensors,
                   std::optional<HostedModel> hosted = std::nullopt);
  // Deletes a version, or all of a name's if `version` is empty, and returns them, oldest first.
  // Requests that run keep what they use.
  absl::StatusOr<VersionList> Delete(const std::string& name, const std::string& version);
  // Says whether Add would take the row, before its tensors are read.
  absl::Status CheckRoom(const VersionRow& row) const;
  // FAILED_PRECONDITION: the model is one of --model_repository, whose files say what it is.
  absl::Status CheckUploaded(const std::string& name) const;
  // Checks that all that is stored of a version is as it should be. FAILED_PRECONDITION names what
  // is damaged and what to do; CANCELLED: `stop` said so.
  absl::Status Verify(const ModelVersion& version, HeldTensors::Stop stop = HeldTensors::Never);

 private:
  Registry(const ServerOptions& options, ServerLedger* ledger, Metrics* metrics,
           std::unique_ptr<TensorStore> store, std::unique_ptr<RegistryDb> db);
  absl::Status Load();
  // Returns null if nothing can be made of the row.
  std::shared_ptr<ModelVersion> LoadVersion(VersionRow row);
  // Makes the version's language model, or encoder, of the files that are stored of it.
  absl::Status HostStored(ModelVersion* version);
  void LoadSeals(const VersionList& versions);
  absl::Status LoadMagnitudes();
  // Fills the seal of its tensor into each row.
  void FindSeals(std::vector<TensorRow>* rows);
  // Gives the version the magnitudes of its parameters, and returns them by tensor and dtype. A
  // tensor that cannot be read has none.
  std::vector<MagnitudeRow> FindMagnitudes(ModelVersion* version);
  // Stores the row and puts the version into the table, in place of one of its number, which the
  // result is.
  absl::StatusOr<std::shared_ptr<ModelVersion>> Store(VersionRow* row,
                                                      const std::shared_ptr<ModelVersion>& version,
                                                      std::optional<HostedModel> hosted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Gives back what a version keeps of its tensors.
  void Unpin(const VersionRow& row);
  // Lists the versions that have all their tensors again, some of these among them.
  VersionList HealedBy(const HeldTensors::Hashes& hashes) const;
  void TellHealed(const VersionList& healed);

  const ServerOptions& options_;
  ServerLedger& ledger_;
  Metrics& metrics_;
  const std::unique_ptr<RegistryDb> db_;
  Challenges challenges_;
  LanguageModels language_models_;
  Mutex hook_mu_;
  HealedHook healed_hook_ ABSL_GUARDED_BY(hook_mu_);

  Mutex change_mu_;  // versions are added and deleted one at a time
  HeldTensors tensors_;
  VersionTable versions_;
  Publisher publisher_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_REGISTRY_H_
