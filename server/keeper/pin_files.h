// Pinned plans as files of the state directory: a pin must last, but the cache may be deleted.
//
//   absl::Status kept = files.Write(version, key, stored);    // before PinPlan answers
//   std::optional<internal::StoredPlan> stored = files.Read(version, key, "p-12ab");
//
// Each file belongs to one version, even if another version is pinned to a plan of the same id. Its
// name is made of 32 hex digits of the hash of the model's name, the version's number (which is
// never reused) and the plan's id. Thread-safe.
#ifndef ATHANOR_SERVER_KEEPER_PIN_FILES_H_
#define ATHANOR_SERVER_KEEPER_PIN_FILES_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/cache/keys.h"
#include "proto/athanor/internal/stored.pb.h"
#include "server/base/disk.h"
#include "server/models/model_version.h"

namespace athanor {

class PinFiles {
 public:
  // `state_dir` must exist; `disk` must outlive it.
  PinFiles(const std::string& state_dir, Disk* disk)
      : folder_(state_dir + "/plans"), disk_(*disk) {}

  // Writes a file that survives the loss of power once this returns OK.
  absl::Status Write(const ModelVersion& version, const PlanKey& key,
                     const internal::StoredPlan& stored);
  // Returns nullopt if there is no file, if it is damaged, or if it was made for another key; logs
  // the last two.
  std::optional<internal::StoredPlan> Read(const ModelVersion& version, const PlanKey& key,
                                           const std::string& plan_id) const;
  void Remove(const ModelVersion& version, const std::string& plan_id);
  // Runs at start, with all versions. Earlier servers named files by the plan's id alone; copies
  // these to each version pinned to the plan. Removes files of plans that no version is pinned to.
  void Take(absl::Span<const std::shared_ptr<ModelVersion>> versions);

 private:
  std::string PathOf(const ModelVersion& version, const std::string& plan_id) const;
  // Copies a file named by a plan's id alone. Returns false if that file must stay.
  bool Adopt(const ModelVersion& version, const std::string& plan_id);
  absl::Status WriteBytes(const std::string& path, absl::string_view bytes);

  const std::string folder_;
  Disk& disk_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_KEEPER_PIN_FILES_H_
