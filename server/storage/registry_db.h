// The durable state of models: an SQLite file in the state directory. A call that returned OK
// survives the loss of the process and of power.
//
//   std::unique_ptr<RegistryDb> db = RegistryDb::Open(state_dir + "/registry.db").value();
//   absl::Status s = db->AddVersion(row);
//
// Tables: versions (a row per model version), version_tensors (its parameters), version_plans (the
// ids of the plans that serve it or can be pinned; the cache holds the plans), names (per model:
// the next version number and the serving version), tensor_magnitudes (known facts about tensors'
// contents), tensor_blobs (locations of tensors without a file of their own), verified_tensors
// (files found to hold the right bytes) and tensor_seals (secrets by which clients prove that they
// have the bytes). Rows about a tensor are kept as long as a version has it. Tensor bytes are files
// (tensor_store.h). Schema changes are numbered steps applied at start (PRAGMA user_version).
// Thread-safe.
//
// Returns RESOURCE_EXHAUSTED on a full disk and FAILED_PRECONDITION on a read-only one; both name
// the file.
#ifndef ATHANOR_SERVER_STORAGE_REGISTRY_DB_H_
#define ATHANOR_SERVER_STORAGE_REGISTRY_DB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/sqlite_file.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/storage/file_stamp.h"

namespace athanor {

struct TensorRow {
  std::string hash;  // 32 bytes
  int64_t bytes = 0;
  // 32 bytes: the blob that holds it at `blob_offset`; empty: it has a file of its own
  std::string blob;
  int64_t blob_offset = 0;
  std::string seal;  // 32 bytes (deploy/bazel/libs/possession.h); empty: unknown
};

// A known fact about a tensor's contents as elements of a dtype (compiler/ir/graph/magnitude.h).
struct MagnitudeRow {
  std::string hash;  // 32 bytes
  std::string dtype;
  std::optional<int> magnitude;  // nullopt: it was examined and has none
};

// A plan that has served a version, or that a search found for it.
struct VersionPlanRow {
  std::string plan_id;
  bool first = false;   // every search may start from it
  bool served = false;  // the last such plan serves unless another one is pinned
  bool pinned = false;
  std::string info;  // a serialised v1.PlanInfo; empty: only the id is known
  std::string box;   // a serialised internal.Box; empty: the full range
};

// The stamp of a tensor's file when its bytes were found to have the tensor's hash.
struct VerifiedRow {
  std::string hash;  // 32 bytes
  FileStamp stamp;   // stamp of its file, or of the blob that holds it
};

struct VersionRow {
  std::string name;
  int64_t version = 0;
  std::string format;  // as in UploadHeader
  std::string graph;
  std::string search_budget;
  std::string disable_rules;  // names, separated by commas
  bool approximate = false;
  bool deterministic = false;
  std::string batch_dim;   // empty: none
  std::string buckets;     // a serialised UploadHeader with only its buckets set
  int64_t created_us = 0;  // microseconds since 1970
  std::string notes;       // a serialised v1.Model with only its notes set
  std::vector<TensorRow> tensors;
  // Plans of the full range of its dims, the latest last. SetPlans writes them.
  std::vector<VersionPlanRow> plans;
  std::vector<VersionPlanRow> pinned_boxes;  // one per box; SetPinnedBoxes writes them
  std::vector<MagnitudeRow> magnitudes;      // magnitudes of `tensors`; ReadMagnitudes reads them
  std::vector<VerifiedRow> verified;         // stamps of `tensors`; ReadVerified reads them
  std::string damage = {};  // set by ReadVersions: why the row does not match its checksum
};

// Returns the SHA-256 over the part of the row that never changes: its graph, and how it is to be
// served.
std::string ChecksumOf(const VersionRow& row);

struct NameRow {
  std::string name;
  int64_t next_version = 1;  // numbers are never reused, not even after a deletion
  int64_t serving = 0;       // the serving version; 0: none yet
  int64_t rolled_back = 0;   // versions up to this one do not take over automatically
};

class RegistryDb {
 public:
  // Opens or creates the file. Returns FAILED_PRECONDITION, saying why the file cannot be used and
  // what to do, and leaves the file as it is. If the file is missing or empty but left a log, the
  // log is kept under another name.
  static absl::StatusOr<std::unique_ptr<RegistryDb>> Open(const std::string& path);

  // Also stores the checksums of rows that predate checksums.
  absl::StatusOr<std::vector<VersionRow>> ReadVersions();
  absl::StatusOr<std::vector<NameRow>> ReadNames();
  // Returns 1 for a name that was never used.
  absl::StatusOr<int64_t> NextVersion(const std::string& name);

  absl::StatusOr<std::vector<MagnitudeRow>> ReadMagnitudes();

  absl::StatusOr<std::vector<VerifiedRow>> ReadVerified();
  // Replaces what was stored for the same tensors.
  absl::Status SetVerified(const std::vector<VerifiedRow>& rows);
  // Leaves facts that are stored already as they are.
  absl::Status AddMagnitudes(const std::vector<MagnitudeRow>& rows);
  // Replaces the seals of the tensors in `rows`; a tensor without one in `rows` keeps its own.
  absl::Status SetSeals(const std::vector<TensorRow>& rows);
  // Updates the location of these tensors for all versions.
  absl::Status SetPlaces(const std::vector<TensorRow>& rows);
  // Also stores the name's next version number.
  absl::Status AddVersion(const VersionRow& row);
  absl::Status DeleteVersions(const std::string& name, const std::vector<int64_t>& versions);
  absl::Status SetServing(const NameRow& row);
  absl::Status SetBuckets(const std::string& name, int64_t version, const std::string& buckets);
  // Replaces the version's pinned boxes.
  absl::Status SetPinnedBoxes(const std::string& name, int64_t version,
                              const std::vector<VersionPlanRow>& rows);
  absl::Status SetPlans(const std::string& name, int64_t version,
                        const std::vector<VersionPlanRow>& rows);

  // Lets tests simulate a full or read-only disk.
  absl::Status Execute(const std::string& sql);

 private:
  explicit RegistryDb(const std::string& path);
  // Returns the status of the latest failure, which happened while doing `what`.
  absl::Status Error(absl::string_view what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Transaction(absl::FunctionRef<absl::Status()> body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status InsertVersion(const VersionRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status InsertTensors(const VersionRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status InsertPlace(const TensorRow& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status InsertSeals(const std::vector<TensorRow>& rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status InsertMagnitudes(const std::vector<MagnitudeRow>& rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status InsertVerified(const std::vector<VerifiedRow>& rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `checksums` are the stored ones, in the order of `rows`.
  absl::Status CompareChecksums(const std::vector<std::string>& checksums,
                                std::vector<VersionRow>* rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ReadTensors(VersionRow* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status InsertPlans(const std::string& name, int64_t version,
                           const std::vector<VersionPlanRow>& rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ReadPlans(VersionRow* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  SqliteFile file_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_REGISTRY_DB_H_
