// Pinned plans as files of the state directory: a pin is a promise, and the cache may be deleted.
//
//   absl::Status kept = files.Write(version, key, stored);    // before PinPlan answers
//   std::optional<internal::StoredPlan> stored = files.Read(version, key, "p-12ab");
//
// A file is one version's, also where another version is pinned to a plan of the same id: its name
// is 32 hex digits of the model's name, the version's number (which is never used again), the
// plan's id. Thread-safe.
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
  // `state_dir` exists; `disk` outlives it.
  PinFiles(const std::string& state_dir, Disk* disk)
      : folder_(state_dir + "/plans"), disk_(*disk) {}

  // It survives the loss of power when this returns OK.
  absl::Status Write(const ModelVersion& version, const PlanKey& key,
                     const internal::StoredPlan& stored);
  // nullopt: there is none, it is damaged, or it was made for another key; the last two are logged.
  std::optional<internal::StoredPlan> Read(const ModelVersion& version, const PlanKey& key,
                                           const std::string& plan_id) const;
  void Remove(const ModelVersion& version, const std::string& plan_id);
  // At start, of all versions there are: files named by the plan's id alone, as servers did before,
  // become those of each version that is pinned to it. What nobody is pinned to goes.
  void Take(absl::Span<const std::shared_ptr<ModelVersion>> versions);

 private:
  std::string PathOf(const ModelVersion& version, const std::string& plan_id) const;
  // From a server's that named files by plan ids alone. False: it has to stay.
  bool Adopt(const ModelVersion& version, const std::string& plan_id);
  absl::Status WriteBytes(const std::string& path, absl::string_view bytes);

  const std::string folder_;
  Disk& disk_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_KEEPER_PIN_FILES_H_
