// The versions of all models, and which of them serves its name.
//
//   std::shared_ptr<ModelVersion> v = versions.Find("digits", "").value();  // the one that serves
//
// One short lock, never held while the disk is touched, so that lookups wait for nobody. A change
// is on disk before it is made here, but for the successor of a deleted version. Thread-safe.
#ifndef ATHANOR_SERVER_MODELS_VERSION_TABLE_H_
#define ATHANOR_SERVER_MODELS_VERSION_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/models/model_version.h"
#include "server/storage/registry_db.h"

namespace athanor {

using VersionList = std::vector<std::shared_ptr<ModelVersion>>;

class VersionTable {
 public:
  // Fills the empty table at start. Leaves out names without versions.
  void Load(std::vector<NameRow> names, const VersionList& versions);

  // Finds a version; an empty `version` is the one that serves, else the newest. NOT_FOUND names
  // what is missing and what there is; INVALID_ARGUMENT: `version` is no positive number.
  absl::StatusOr<std::shared_ptr<ModelVersion>> Find(absl::string_view name,
                                                     absl::string_view version) const;
  // Lists them by name, newest first; an empty name means all.
  VersionList List(absl::string_view name) const;
  // Lists those that have a tensor which `wanted` picks by its hash.
  VersionList With(absl::FunctionRef<bool(const std::string& hash)> wanted) const;
  bool Serves(const ModelVersion& version) const;
  v1::Model Describe(const ModelVersion& version) const { return version.ToProto(Serves(version)); }
  int64_t count() const;

  // Returns the number that the name's next version gets; 0: it has no versions, see
  // RegistryDb::NextVersion.
  int64_t NextNumber(const std::string& name) const;
  // Returns the version that it replaces, which had its number; null: none had. A rollback of that
  // number is over.
  std::shared_ptr<ModelVersion> Add(const std::shared_ptr<ModelVersion>& version);
  // Returns whether the version is still there: neither deleted nor replaced.
  bool Holds(const ModelVersion& version) const;
  // Removes versions. Returns the name's row if another version, the newest that is ready, serves
  // it from now on.
  std::optional<NameRow> Remove(const std::string& name, const VersionList& gone);

  // Each returns the name's row as it would be after the change; SetServing makes it.

  // Has the version serve its name unless a newer one or a rollback says otherwise.
  std::optional<NameRow> TakenOverBy(const ModelVersion& version) const;
  // Has an earlier version serve the name: `version`, or the newest that is ready if that is empty.
  absl::StatusOr<NameRow> RolledBack(const std::string& name, const std::string& version) const;
  // Sets which version serves, and up to which one was rolled back.
  void SetServing(const NameRow& row);

 private:
  struct Name {
    NameRow row;
    std::map<int64_t, std::shared_ptr<ModelVersion>> versions;
  };

  absl::StatusOr<std::shared_ptr<ModelVersion>> FindLocked(absl::string_view name,
                                                           absl::string_view version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  // Names that have versions; those of deleted ones are in the file only.
  std::map<std::string, Name, std::less<>> names_ ABSL_GUARDED_BY(mu_);
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_VERSION_TABLE_H_
