// The models the server knows: versions, what serves, and the tensors they share. What it says it
// has, it has on disk.
//
//   std::shared_ptr<ModelVersion> v = registry.Find("digits", "").value();   // the one that serves
//   registry.Publish(v, plan);                                               // from now on it
//   serves
//
// Lookups take one short lock and never touch the disk; changes are serialised by another, so that
// a slow disk does not hold requests up. Thread-safe.
#ifndef ATHANOR_SERVER_MODELS_REGISTRY_H_
#define ATHANOR_SERVER_MODELS_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/frontend/frontend.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/base/options.h"
#include "server/memory/server_ledger.h"
#include "server/metrics/metrics.h"
#include "server/models/challenges.h"
#include "server/models/model_version.h"
#include "server/storage/registry_db.h"
#include "server/storage/tensor_store.h"

namespace athanor {

class Registry {
 public:
  // Tensors that may not go away while this lives: the ones an upload or a plan needs.
  class Pins {
   public:
    Pins() = default;
    Pins(Pins&& other) noexcept { *this = std::move(other); }
    Pins& operator=(Pins&& other) noexcept {
      std::swap(registry_, other.registry_);
      std::swap(hashes_, other.hashes_);
      return *this;
    }
    ~Pins();

   private:
    friend class Registry;
    Registry* registry_ = nullptr;
    std::vector<std::string> hashes_;
  };

  // Told of a model whenever that it serves, or that there is one, may have changed; one call at a
  // time, without locks of the registry.
  using ServingHook = std::function<void(const std::string& name)>;

  // Reads what is stored under `options.state_dir`, which the caller has locked, and puts files
  // aside that nothing refers to. All arguments outlive the registry.
  static absl::StatusOr<std::unique_ptr<Registry>> Open(const ServerOptions& options,
                                                        ServerLedger* ledger, Metrics* metrics,
                                                        Disk* disk);
  void SetServingHook(ServingHook hook);
  // Told of a version whose damaged tensors are all held again, without locks.
  using HealedHook = std::function<void(const std::shared_ptr<ModelVersion>& version)>;
  void SetHealedHook(HealedHook hook);
  void TellServing(const std::string& name);

  // An empty `version`: the one that serves, else the newest. NOT_FOUND names what is missing and
  // what there is; a version that is no positive number is INVALID_ARGUMENT.
  absl::StatusOr<std::shared_ptr<ModelVersion>> Find(absl::string_view name,
                                                     absl::string_view version) const;
  // By name, newest first; an empty name means all.
  std::vector<std::shared_ptr<ModelVersion>> List(absl::string_view name) const;
  bool Serves(const ModelVersion& version) const;
  v1::Model Describe(const ModelVersion& version) const { return version.ToProto(Serves(version)); }

  // A tensor's file is hashed before it is relied on, unless it is as it was when that was done
  // before (FileStamp). Where it is damaged or gone the tensor is not held any more, and no version
  // that has it is served until an upload has brought it again.

  int64_t TensorBytes(const std::string& hash) const;  // -1: it is not held
  // FAILED_PRECONDITION names a hash that is not held. Looks at the files.
  absl::StatusOr<Pins> Pin(absl::Span<const std::string> hashes);
  // Whether the tensor is held and `proof` shows that who sent it has the bytes
  // (deploy/bazel/libs/possession.h). Takes as long for one that is not held; the file is looked at
  // after a right proof only. What may be said to who fails it, and where Pin fails, is the same:
  // NeitherSentNorProved.
  bool Proves(const std::string& nonce, const std::string& hash, const std::string& proof);
  static absl::Status NeitherSentNorProved(const std::string& hash);
  Challenges& challenges() { return challenges_; }
  absl::StatusOr<std::shared_ptr<const MappedTensor>> Map(const std::string& hash);
  // Whether all that is stored of a version is as it should be. FAILED_PRECONDITION names what is
  // damaged and what to do; CANCELLED: `stop` said so.
  using Stop = absl::FunctionRef<bool()>;
  static bool Never() { return false; }
  absl::Status Verify(const ModelVersion& version, Stop stop = Never);
  int64_t UnverifiedBytes(const ModelVersion& version) const;  // that Verify would read
  TensorStore& tensors() { return *tensors_; }
  ServerLedger& ledger() { return *ledger_; }
  RegistryDb& db() { return *db_; }              // for tests
  Metrics& metrics() const { return metrics_; }  // where its versions are counted

  // Stores a version: tensors first, then its rows; `version` was made from `row` and gets its
  // number here.
  struct NewTensor {
    std::string hash;
    ServerLedger::Reservation reservation;
    // Either a file of its own or, without one, a range of `blob`; synced.
    TensorWriter* writer = nullptr;
    SpooledFile* blob = nullptr;
    int64_t offset = 0;
    // As elements of a dtype, where that is known already (compiler/ir/graph/magnitude.h).
    std::optional<std::pair<DType, std::optional<int>>> magnitude;
    std::string seal;  // where it is known already
  };
  absl::Status Add(VersionRow row, const std::shared_ptr<ModelVersion>& version,
                   std::vector<NewTensor> tensors);
  // The versions deleted. Requests that run keep what they use.
  using Versions = std::vector<std::shared_ptr<ModelVersion>>;
  absl::StatusOr<Versions> Delete(const std::string& name, const std::string& version);
  // No plan serves a version of which a tensor was found damaged, though it was loaded before.
  // Publish, PublishBox, PublishBoxes, Restore, PinPlan, PinBox and UnpinBoxes are
  // FAILED_PRECONDITION then and name the parameter; where it was healed since, ABORTED.

  // The plan serves its version from now on, and the version its name unless a newer one or a
  // rollback says otherwise. ABORTED: the version was deleted meanwhile, or is served and pinned.
  absl::Status Publish(const std::shared_ptr<ModelVersion>& version,
                       std::shared_ptr<const ServedPlan> plan);
  // As Publish, of a plan of one of the version's boxes. ABORTED also where its boxes are others
  // now.
  absl::Status PublishBox(ModelVersion& version, const std::shared_ptr<const BucketGrid>& grid,
                          int bucket, std::shared_ptr<const ServedPlan> plan);
  // Other boxes with their plans; see Plans::Replace. FAILED_PRECONDITION also where a box that
  // is none of these was pinned. OK and nothing done: the version was deleted.
  absl::Status PublishBoxes(ModelVersion& version, std::shared_ptr<const BucketGrid> grid,
                            std::vector<PlanBook> boxes);
  // As Publish, of plans that the version's rows name already: `kept` with `plan` among them.
  absl::Status Restore(const std::shared_ptr<ModelVersion>& version,
                       std::shared_ptr<const ServedPlan> plan, std::vector<KeptPlan> kept);
  // A plan that may be pinned, beside the one that serves.
  void Keep(ModelVersion& version, std::shared_ptr<const CompiledPlan> plan);
  // `version` is served by `plan`, if any, and by no other while `plan_id` is not empty. NOT_FOUND
  // unless that is the plan's.
  absl::Status PinPlan(const std::shared_ptr<ModelVersion>& version, const std::string& plan_id,
                       std::shared_ptr<const ServedPlan> plan);
  // One of the version's boxes is served by `plan` and no other, also after the next start.
  // FAILED_PRECONDITION: it has other boxes now.
  absl::Status PinBox(ModelVersion& version, const std::shared_ptr<const BucketGrid>& grid,
                      int bucket, std::shared_ptr<const ServedPlan> plan);
  // All of them are served by `plans` from now on, by bucket, or by the full range's plan.
  absl::Status UnpinBoxes(ModelVersion& version,
                          std::vector<std::shared_ptr<const ServedPlan>> plans);
  // The buckets that the version is compiled for after the next start.
  absl::Status SetBuckets(const ModelVersion& version, const BucketGrid::Ranges& buckets);
  absl::StatusOr<std::shared_ptr<ModelVersion>> Rollback(const std::string& name,
                                                         const std::string& version);

 private:
  struct TensorEntry {
    int64_t bytes = 0;
    int64_t references = 0;
    bool held = false;   // its file is under its name; before, only who writes it refers to it
    std::string damage;  // why it is not, though versions have it
    std::optional<FileStamp> verified;               // of its file, when it had the tensor's hash
    std::optional<TensorStore::Range> range;         // else a file of its own
    std::map<DType, std::optional<int>> magnitudes;  // as far as they were looked for
    std::string seal;                                // empty: not known
    ServerLedger::Reservation reservation;
  };
  struct Name {
    NameRow row;
    std::map<int64_t, std::shared_ptr<ModelVersion>> versions;
  };

  Registry(const ServerOptions& options, ServerLedger* ledger, Metrics* metrics)
      : options_(options), ledger_(ledger), metrics_(*metrics) {}
  absl::Status Load();
  void LoadVersions(std::vector<NameRow> names, std::vector<VersionRow> rows);
  // Takes files back that are named again, puts aside those that are not. `fresh`: none ever was.
  void SortFiles(bool fresh) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LoadMagnitudes();
  void LoadVersion(VersionRow row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of a held tensor as elements of `dtype`: what is known, else from its contents.
  absl::StatusOr<std::optional<int>> FindMagnitude(const std::string& hash, DType dtype);
  // Gives the version the magnitudes of its parameters: from what is known of the tensors, else
  // from their contents. Returns what it gave, by tensor and dtype. Nothing is known of a tensor
  // that cannot be read.
  std::vector<MagnitudeRow> FindMagnitudes(ModelVersion* version);
  absl::Status LoadSeals();
  // Into each row: what is known of its tensor, else from its contents.
  void FindSeals(std::vector<TensorRow>* rows);
  void Unpin(absl::Span<const std::string> hashes);
  bool Holds(const std::string& hash) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unreference(const std::string& hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UnreferenceBlob(const std::string& blob) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::shared_ptr<ModelVersion>> FindLocked(absl::string_view name,
                                                           absl::string_view version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds a reference to each of the version's tensors, so that new ones stay once published.
  void Reference(const VersionRow& row, std::vector<NewTensor>& tensors);
  absl::Status PublishTensors(absl::Span<const NewTensor> tensors, Versions* healed);
  // Stores where those of them are from now on that are damaged in other versions.
  absl::Status StorePlaces(absl::Span<const NewTensor> tensors)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  void Hold(const NewTensor& published) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_, mu_);
  Versions VersionsWith(const std::string& hash) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Publishes them, and says which versions have all of theirs again.
  absl::Status Place(absl::Span<const NewTensor> tensors, Versions* healed);
  // Into the row: where its tensors are, and as what they were verified there.
  void FillPlaces(VersionRow* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  void TellHealed(const Versions& healed);

  struct Found {
    TensorStore::Location location;
    std::optional<FileStamp> verified;
  };
  absl::StatusOr<Found> FindTensor(const std::string& hash) const;  // or why it is not held
  absl::Status CheckTensor(const std::string& hash, Stop stop = Never);
  absl::Status HashTensor(const std::string& hash, Stop stop);
  // `stamp` is of the file that holds something else; none: it cannot be read. Nothing is done
  // where it has been replaced since.
  void SetDamaged(const std::string& hash, const Found& found,
                  const std::optional<FileStamp>& stamp, const std::string& why);
  // Returns the versions that have it, withdrawn.
  Versions Withdraw(const std::string& hash, const Found& found,
                    const std::optional<FileStamp>& stamp, const std::string& why);
  // FAILED_PRECONDITION names a tensor of the version that is damaged. ABORTED: one was when `plan`
  // was loaded, which may compute with it still.
  absl::Status CheckHeld(const ModelVersion& version, const ServedPlan& plan) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  void SaveVerified();  // what was verified since the last time
  absl::Status CheckRoom(const std::string& name);
  absl::Status Store(VersionRow* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Forgets versions that are gone from the disk; the newest that is ready
  // takes over from one that served.
  void Forget(const std::string& name, absl::Span<const std::shared_ptr<ModelVersion>> gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Stores which plans the version has, pinned to `pinned`.
  absl::Status StorePlans(const ModelVersion& version, const std::string& pinned)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // What is written beside a plan that serves; failing costs a later start, not this one.
  void NotePlans(const ModelVersion& version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  // Has the version serve its name unless a newer one or a rollback says otherwise.
  std::optional<NameRow> TakeOver(const ModelVersion& version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  absl::StatusOr<NameRow> ChooseRollback(const std::string& name, const std::string& version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);

  const ServerOptions& options_;
  ServerLedger* const ledger_;
  Metrics& metrics_;
  std::unique_ptr<TensorStore> tensors_;
  std::unique_ptr<RegistryDb> db_;
  Challenges challenges_;
  Mutex hook_mu_;
  ServingHook hook_ ABSL_GUARDED_BY(hook_mu_);
  HealedHook healed_hook_ ABSL_GUARDED_BY(hook_mu_);

  // Taken before mu_.
  Mutex change_mu_;
  mutable Mutex mu_;
  // Names that have versions; those of deleted ones are in the file only.
  std::map<std::string, Name, std::less<>> names_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, TensorEntry> tensor_entries_ ABSL_GUARDED_BY(mu_);
  // By blob: its tensors, and those that an upload is about to publish in it.
  absl::flat_hash_map<std::string, int64_t> blobs_ ABSL_GUARDED_BY(mu_);
  int64_t versions_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_set<std::string> checking_ ABSL_GUARDED_BY(mu_);  // tensors, by some thread
  CondVar checked_;
  std::vector<VerifiedRow> unsaved_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_REGISTRY_H_
