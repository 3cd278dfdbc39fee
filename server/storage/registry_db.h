// The durable state of models: an SQLite file in the state directory. A call that returned OK
// survives the loss of the process and of power.
//
//   std::unique_ptr<RegistryDb> db = RegistryDb::Open(state_dir + "/registry.db").value();
//   absl::Status s = db->AddVersion(row);
//
// Tables: versions (a row per model version), version_tensors (its parameters and files),
// version_files (paths of files among them), repository_versions (those that come from
// --model_repository), version_plans (the ids of the plans that serve it or
// can be pinned; the cache holds the plans), names (per model: the next version number and the
// serving version). Rows about tensors are TensorRows; their bytes are files (tensor_store.h).
// Errors are those of RegistryFile. Thread-safe.
#ifndef ATHANOR_SERVER_STORAGE_REGISTRY_DB_H_
#define ATHANOR_SERVER_STORAGE_REGISTRY_DB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/storage/registry_file.h"
#include "server/storage/tensor_rows.h"

namespace athanor {

// A plan that has served a version, or that a search found for it.
struct VersionPlanRow {
  std::string plan_id;
  bool first = false;   // every search may start from it
  bool served = false;  // the last such plan serves unless another one is pinned
  bool pinned = false;
  std::string info;  // a serialised v1.PlanInfo; empty: only the id is known
  std::string box;   // a serialised internal.Box; empty: the full range
};

// A file that is kept beside a version's weights, such as its tokenizer.
struct FileRow {
  std::string path;  // as uploaded; of a GGUF file only its head is kept
  std::string hash;  // 32 bytes: of the tensor that holds its bytes
};

// Tells from which files of a model repository a version was made.
struct RepositorySource {
  std::string content;  // 32 bytes: hash of its files and its configuration; empty: it was uploaded
  std::string stamp;    // 32 bytes: hash of its files' names, sizes and times
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
  std::string notes;       // a serialised v1.Model with only its notes and its device set
  std::string device =
      {};  // that executes it; of no column: the server's first, or that of `notes`
  std::string generation = {};      // a serialised internal.Generation; empty: no language model
  std::vector<TensorRow> tensors;   // parameters and files
  std::vector<FileRow> files = {};  // by path
  RepositorySource source = {};
  // Plans of the full range of its dims, the latest last. SetPlans writes them.
  std::vector<VersionPlanRow> plans;
  std::vector<VersionPlanRow> pinned_boxes;  // one per box; SetPinnedBoxes writes them
  std::vector<MagnitudeRow> magnitudes;      // of `tensors`; TensorRows reads them
  std::vector<VerifiedRow> verified;         // of `tensors`; TensorRows reads them
  std::string damage = {};  // set by ReadVersions: why the row does not match its checksum
};

// Returns the SHA-256 over the part of the row that never changes: its graph and files, and how it
// is to be served.
std::string ChecksumOf(const VersionRow& row);

struct NameRow {
  std::string name;
  // Numbers of uploads are never reused, not even after a deletion; those of a model repository are
  // its folders'.
  int64_t next_version = 1;
  int64_t serving = 0;      // the serving version; 0: none yet
  int64_t rolled_back = 0;  // versions up to this one do not take over automatically
};

class RegistryDb {
 public:
  // See RegistryFile::Open.
  static absl::StatusOr<std::unique_ptr<RegistryDb>> Open(const std::string& path);

  TensorRows& tensors() { return tensors_; }

  // Also stores the checksums of rows that predate checksums.
  absl::StatusOr<std::vector<VersionRow>> ReadVersions();
  absl::StatusOr<std::vector<NameRow>> ReadNames();
  // Returns 1 for a name that was never used.
  absl::StatusOr<int64_t> NextVersion(const std::string& name);
  // Also stores the name's next version number. A version of the same number is replaced. With an
  // uploaded one, all of the name are as good as uploaded.
  absl::Status AddVersion(const VersionRow& row);
  absl::Status DeleteVersions(const std::string& name, const std::vector<int64_t>& versions);
  absl::Status SetServing(const NameRow& row);
  absl::Status SetBuckets(const std::string& name, int64_t version, const std::string& buckets);
  // Replaces the version's pinned boxes.
  absl::Status SetPinnedBoxes(const std::string& name, int64_t version,
                              const std::vector<VersionPlanRow>& rows);
  absl::Status SetPlans(const std::string& name, int64_t version,
                        const std::vector<VersionPlanRow>& rows);
  // Stores that the same content has other times now. Does nothing for an uploaded version.
  absl::Status SetStamp(const std::string& name, int64_t version, const std::string& stamp);

  // Lets tests simulate a full or read-only disk.
  absl::Status Execute(const std::string& sql);

 private:
  using Connection = RegistryFile::Connection;
  explicit RegistryDb(std::unique_ptr<RegistryFile> file)
      : file_(std::move(file)), tensors_(file_.get()) {}
  static absl::Status ReadTensors(Connection& from, VersionRow* row);
  static absl::Status ReadFiles(Connection& from, VersionRow* row);
  static absl::Status ReadPlans(Connection& from, VersionRow* row);
  static absl::Status ReadSource(Connection& from, VersionRow* row);
  static absl::Status AddVersion(Connection& to, const VersionRow& row);
  // Deletes all rows of a version but that of its name.
  static absl::Status DeleteVersion(Connection& from, const std::string& name, int64_t version);
  static absl::Status AddPlans(Connection& to, const std::string& name, int64_t version,
                               const std::vector<VersionPlanRow>& rows);
  // Stores the checksums of these rows.
  absl::Status SetChecksums(const std::vector<const VersionRow*>& rows);

  const std::unique_ptr<RegistryFile> file_;
  TensorRows tensors_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_REGISTRY_DB_H_
