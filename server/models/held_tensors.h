// The tensors that versions have and uploads bring: who needs them, where they lie, and whether
// they are whole.
//
//   HeldTensors::Pins pins = tensors.Pin(hashes).value();   // they stay while this lives
//   std::shared_ptr<const MappedTensor> w = tensors.Map(hash).value();
//
// A tensor's file is hashed before it is relied on, unless it is as it was when that was done
// before (FileStamp). Where it is damaged or gone the tensor is not held any more, and no version
// that has it is served until an upload has brought it again.
//
// Two locks: one serialises changes to files and is held while the disk is slow; the other guards
// the entries; it is held for a moment, or while files are unlinked or moved. Thread-safe.
#ifndef ATHANOR_SERVER_MODELS_HELD_TENSORS_H_
#define ATHANOR_SERVER_MODELS_HELD_TENSORS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/base/options.h"
#include "server/memory/server_ledger.h"
#include "server/models/tensor_facts.h"
#include "server/storage/registry_db.h"
#include "server/storage/tensor_store.h"

namespace athanor {

class HeldTensors {
 public:
  // Tensors that may not go away while this lives: those that an upload or a plan needs.
  class Pins {
   public:
    Pins() = default;
    // Takes over a reference to each.
    Pins(HeldTensors* tensors, absl::Span<const std::string> hashes)
        : tensors_(tensors), hashes_(hashes.begin(), hashes.end()) {}
    Pins(Pins&& other) noexcept { *this = std::move(other); }
    Pins& operator=(Pins&& other) noexcept {
      std::swap(tensors_, other.tensors_);
      std::swap(hashes_, other.hashes_);
      return *this;
    }
    ~Pins() {
      if (tensors_ != nullptr) tensors_->Unpin(hashes_);
    }

   private:
    HeldTensors* tensors_ = nullptr;
    std::vector<std::string> hashes_;
  };

  struct NewTensor {
    std::string hash;
    ServerLedger::Reservation reservation;
    // Either a file of its own or, without one, a range of `blob`; synced.
    TensorWriter* writer = nullptr;
    SpooledFile* blob = nullptr;
    int64_t offset = 0;
    // Its magnitude as elements of a dtype, if known already (compiler/ir/graph/magnitude.h).
    std::optional<std::pair<DType, std::optional<int>>> magnitude;
    std::string seal;  // empty: not known yet
  };

  // Told that a tensor was found damaged, and why, before any upload can bring it again. Must not
  // call back but for lookups.
  using DamageHook = std::function<void(const std::string& hash, const std::string& damage)>;

  // Borrows all but the store.
  HeldTensors(const ServerOptions& options, ServerLedger* ledger, TensorRows* rows,
              std::unique_ptr<TensorStore> store, DamageHook on_damage)
      : options_(options),
        ledger_(*ledger),
        rows_(*rows),
        store_(std::move(store)),
        on_damage_(std::move(on_damage)) {}

  TensorStore& store() { return *store_; }

  // Adds a stored version's tensors at start. RESOURCE_EXHAUSTED: there is no memory for them.
  absl::Status TakeStored(const VersionRow& row);
  // Takes files back that are named again, and puts aside those that are not, once all stored
  // versions are known. `fresh`: none ever was named.
  void SortFiles(bool fresh);
  // Takes the stamps of files that were verified before the start.
  void TakeVerified(const std::vector<VerifiedRow>& rows);

  int64_t Bytes(const std::string& hash) const;  // -1: it is not held
  int64_t count() const {
    MutexLock lock(mu_);
    return static_cast<int64_t>(entries_.size());
  }
  // Returns why the tensor is not held, though versions have it.
  std::optional<std::string> Damage(const std::string& hash) const;
  // Returns what is known of its contents; of a tensor that nobody needs, facts to forget.
  std::shared_ptr<TensorFacts> Facts(const std::string& hash) const;

  // FAILED_PRECONDITION names a hash that is not held. Looks at the files.
  absl::StatusOr<Pins> Pin(absl::Span<const std::string> hashes);
  // Gives back a reference to each. The last one removes the tensor.
  void Unpin(absl::Span<const std::string> hashes);
  // Reports whether the tensor is held and `proof` shows that who sent it has the bytes
  // (deploy/bazel/libs/possession.h). Takes as long for one that is not held; the file is looked at
  // after a right proof only. A client that fails it, or Pin, is told the same:
  // NeitherSentNorProved.
  bool Proves(const std::string& nonce, const std::string& hash, const std::string& proof);
  static absl::Status NeitherSentNorProved(const std::string& hash);

  absl::StatusOr<std::shared_ptr<const MappedTensor>> Map(const std::string& hash);
  // Hashes its file unless that is unchanged. FAILED_PRECONDITION: why it is not held; CANCELLED:
  // `stop` said so.
  using Stop = absl::FunctionRef<bool()>;
  static bool Never() { return false; }
  absl::Status Check(const std::string& hash, Stop stop = Never);
  void SaveVerified();  // stores what Check found since the last time
  // Returns how many bytes Check would read for all of them.
  int64_t UnverifiedBytes(absl::Span<const TensorRow> tensors) const;

  // Adds a version in three steps; Unpin undoes the first.

  // Adds a reference to each tensor of the version, so that new ones stay once published.
  void Reference(const VersionRow& row, absl::Span<NewTensor> tensors);
  // Gives the new tensors' files their names. Calls `healed` with those that were damaged before,
  // if any, while no tensor changes.
  using Hashes = absl::flat_hash_set<std::string>;
  absl::Status Publish(absl::Span<const NewTensor> tensors,
                       absl::FunctionRef<void(const Hashes& hashes)> healed);
  // Fills into the row where its tensors are, and as what they were verified there, and calls
  // `store` with it while no tensor changes its place.
  absl::Status Store(VersionRow* row, absl::FunctionRef<absl::Status()> store);

 private:
  struct Entry {
    int64_t bytes = 0;
    int64_t references = 0;
    bool held = false;   // its file is under its name; before, only the upload refers to it
    std::string damage;  // why it is not held, though versions have it
    std::optional<FileStamp> verified;        // stamp of its file when it had the tensor's hash
    std::optional<TensorStore::Range> range;  // empty: it has a file of its own
    std::shared_ptr<TensorFacts> facts = std::make_shared<TensorFacts>();
    ServerLedger::Reservation reservation;
  };
  struct Found {
    int64_t bytes = 0;
    std::optional<TensorStore::Range> range;
    TensorStore::Location location;
    std::optional<FileStamp> verified;
  };

  bool Holds(const std::string& hash) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto it = entries_.find(hash);
    return it != entries_.end() && it->second.held;
  }
  absl::StatusOr<Found> Find(const std::string& hash) const;  // or why it is not held
  absl::Status Hash(const std::string& hash, Stop stop);
  // Moves the file to quarantine and tells the hook. `stamp` is of the file that holds something
  // else; none: it cannot be read. Does nothing where the file has been replaced since.
  void SetDamaged(const std::string& hash, const Found& found,
                  const std::optional<FileStamp>& stamp, const std::string& why);
  void Unreference(const std::string& hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UnreferenceBlob(const std::string& blob) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Stores the new places of tensors that are damaged in other versions.
  absl::Status StorePlaces(absl::Span<const NewTensor> tensors)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_);
  void Hold(const NewTensor& published) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mu_, mu_);

  const ServerOptions& options_;
  ServerLedger& ledger_;
  TensorRows& rows_;
  const std::unique_ptr<TensorStore> store_;
  const DamageHook on_damage_;

  Mutex change_mu_;  // one change of files and their places at a time; taken before mu_
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  // By blob: how many tensors lie in it, and how many an upload is about to publish in it.
  absl::flat_hash_map<std::string, int64_t> blobs_ ABSL_GUARDED_BY(mu_);
  Hashes checking_ ABSL_GUARDED_BY(mu_);  // tensors that some thread hashes
  CondVar checked_;
  std::vector<VerifiedRow> unsaved_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_HELD_TENSORS_H_
