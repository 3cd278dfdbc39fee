// What lasts about models: an SQLite file in the state directory. A call that returned OK survives
// the loss of the process and of power.
//
//   std::unique_ptr<RegistryDb> db = RegistryDb::Open(state_dir + "/registry.db").value();
//   absl::Status s = db->AddVersion(row);
//
// Tables: versions (a row per model version), version_tensors (its parameters), version_plans (the
// plans that serve it or can be pinned, by id: their bodies are the cache's), names (per model: the
// next version number, what serves), tensor_magnitudes (what is known of tensors' contents),
// tensor_blobs (where those are that have no file of their own), verified_tensors (which files were
// found to hold what they should) and tensor_seals (secrets by which clients prove that they have
// the bytes), kept as long as a version has the tensor. Tensor bytes are
// files (tensor_store.h). Schema changes are numbered steps applied at start (PRAGMA user_version).
// Thread-safe.
//
// A full disk is RESOURCE_EXHAUSTED, a read-only one FAILED_PRECONDITION; both name the file.
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
  std::string blob;  // 32 bytes: the file that holds it at `blob_offset`; empty: one of its own
  int64_t blob_offset = 0;
  std::string seal;  // 32 bytes (deploy/bazel/libs/possession.h); empty: not known
};

// What is known of a tensor's contents as elements of a dtype (compiler/ir/graph/magnitude.h).
struct MagnitudeRow {
  std::string hash;  // 32 bytes
  std::string dtype;
  std::optional<int> magnitude;  // nullopt: it was looked at and has none
};

// One of the plans that a version was served by, or that were found for it to be kept.
struct VersionPlanRow {
  std::string plan_id;
  bool first = false;   // where every search could begin
  bool served = false;  // the last of these serves unless another one is pinned
  bool pinned = false;
  std::string info;  // a serialised v1.PlanInfo; empty: nothing is known but the id
  std::string box;   // a serialised internal.Box; empty: the full range
};

// A tensor's file as it was when its bytes had the tensor's hash.
struct VerifiedRow {
  std::string hash;  // 32 bytes
  FileStamp stamp;   // of its file, or of the blob that it lies in
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
  std::string batch_dim;   // empty: none was named
  std::string buckets;     // a serialised UploadHeader with nothing but buckets
  int64_t created_us = 0;  // since 1970
  std::string notes;       // a serialised v1.Model with nothing but notes
  std::vector<TensorRow> tensors;
  // Of the full range of its dims, the latest last. SetPlans writes them.
  std::vector<VersionPlanRow> plans;
  std::vector<VersionPlanRow> pinned_boxes;  // one a box; SetPinnedBoxes writes them
  std::vector<MagnitudeRow> magnitudes;      // of `tensors`; ReadMagnitudes reads them
  std::vector<VerifiedRow> verified;         // of `tensors`; ReadVerified reads them
  std::string damage = {};                   // ReadVersions: what does not fit its checksum
};

// SHA-256 over all of the row that never changes: its graph, and how that is to be served.
std::string ChecksumOf(const VersionRow& row);

struct NameRow {
  std::string name;
  int64_t next_version = 1;  // numbers are never used again, not even after a deletion
  int64_t serving = 0;       // 0: none yet
  int64_t rolled_back = 0;   // versions up to this one do not take over by themselves
};

class RegistryDb {
 public:
  // FAILED_PRECONDITION says why the file cannot be used, and how to go on; it stays as it is. One
  // that is missing or empty is made; a log that it left is put aside.
  static absl::StatusOr<std::unique_ptr<RegistryDb>> Open(const std::string& path);

  // Rows from before there were checksums get theirs.
  absl::StatusOr<std::vector<VersionRow>> ReadVersions();
  absl::StatusOr<std::vector<NameRow>> ReadNames();
  // 1 for a name that was never used.
  absl::StatusOr<int64_t> NextVersion(const std::string& name);

  absl::StatusOr<std::vector<MagnitudeRow>> ReadMagnitudes();

  absl::StatusOr<std::vector<VerifiedRow>> ReadVerified();
  // In the place of what was known of them.
  absl::Status SetVerified(const std::vector<VerifiedRow>& rows);
  // Those that are known already stay as they are.
  absl::Status AddMagnitudes(const std::vector<MagnitudeRow>& rows);
  // Of `rows`, what is known of them, in the place of what was.
  absl::Status SetSeals(const std::vector<TensorRow>& rows);
  // Where these tensors are from now on, in all versions.
  absl::Status SetPlaces(const std::vector<TensorRow>& rows);
  // Also writes the name's next version number.
  absl::Status AddVersion(const VersionRow& row);
  absl::Status DeleteVersions(const std::string& name, const std::vector<int64_t>& versions);
  absl::Status SetServing(const NameRow& row);
  absl::Status SetBuckets(const std::string& name, int64_t version, const std::string& buckets);
  // In the place of those the version had.
  absl::Status SetPinnedBoxes(const std::string& name, int64_t version,
                              const std::vector<VersionPlanRow>& rows);
  absl::Status SetPlans(const std::string& name, int64_t version,
                        const std::vector<VersionPlanRow>& rows);

  // For tests of a full or read-only disk.
  absl::Status Execute(const std::string& sql);

 private:
  explicit RegistryDb(const std::string& path);
  // What failed last, while it was to `what`.
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
  // `checksums`: as stored, by row.
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
