// Keeps the registry at what the folder of a model repository holds: looks, loads, unloads, and
// says what could not be loaded.
//
//   RepositoryModels models(options, parts, folder, stopping, await);
//   models.LookAtAll(RepositoryModels::Look::kFirst);
//
// Used by one thread (repository.h), but for unavailable(). A version that is not wanted any more
// is deleted once all those that are wanted serve.
#ifndef ATHANOR_SERVER_REPOSITORY_REPOSITORY_MODELS_H_
#define ATHANOR_SERVER_REPOSITORY_REPOSITORY_MODELS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/base/options.h"
#include "server/batch/request_queue.h"
#include "server/jobs/compile_workers.h"
#include "server/memory/server_ledger.h"
#include "server/models/registry.h"
#include "server/repository/folder.h"
#include "server/repository/version_load.h"

namespace athanor {

struct RepositoryParts {
  Registry& registry;
  CompileWorkers& workers;
  RequestQueue& requests;
  ServerLedger& ledger;
};

// A model or a version of the repository that is not stored.
struct UnavailableModel {
  std::string name;
  std::string version;  // empty: none of the model's
  std::string reason;
};

// Returns true iff only calls load and unload models.
inline bool ByCalls(const ServerOptions& options) { return options.model_control == "explicit"; }

class RepositoryModels {
 public:
  // kPoll leaves a model that is not as the last look found it for the next.
  enum class Look : uint8_t { kFirst, kPoll, kLoad };
  // Called with each version that is loaded, and of kFirst with those that were before.
  using Await = std::function<void(const std::shared_ptr<ModelVersion>& version, Look look)>;

  // The references outlive it. `stopping` ends what is under way.
  RepositoryModels(const ServerOptions& options, const RepositoryParts& parts,
                   RepositoryFolder folder, const std::atomic<bool>& stopping, Await await)
      : options_(options),
        parts_(parts),
        folder_(std::move(folder)),
        stopping_(stopping),
        await_(std::move(await)) {}

  // Loads and unloads what has changed; with --model_control=explicit, only counts the folders.
  void LookAtAll(Look look);
  // Loads what the model's folder holds. Returns the first reason why something of it is not
  // loaded.
  absl::Status LookAt(const std::string& name, Look look);
  absl::Status Unload(const std::string& name);
  // NOT_FOUND: the repository has no such folder.
  absl::Status CheckThere(const std::string& name) const;
  // Deletes versions that are not wanted, if all those that are wanted serve.
  void Tidy(const std::string& name);
  // Lists the name's versions that are of the repository, by number.
  std::map<int64_t, std::shared_ptr<ModelVersion>> Loaded(const std::string& name) const;

  // Lists those of them that the last look wanted.
  std::map<int64_t, std::shared_ptr<ModelVersion>> Wanted(const std::string& name) const;

  // Lists what is not loaded, by name. With --model_control=explicit, looks at the disk for names.
  // Thread-safe.
  std::vector<UnavailableModel> unavailable() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Failure {
    std::string stamp;
    absl::Status status;
    Clock::time_point again;  // when it may be tried again though nothing has changed
  };
  struct Known {
    bool gone = false;                           // the last look found no folder
    std::string seen;                            // changes when any of it does
    std::optional<std::vector<int64_t>> wanted;  // none: it was never read without an error
    std::map<int64_t, std::string> stamps;       // of versions that are loaded
    std::map<int64_t, Failure> failures;         // of versions that could not be
    absl::Status broken;                         // why nothing of it can be loaded
  };
  // A model as a look finds it.
  struct Seen {
    ModelSettings settings;
    std::vector<int64_t> wanted;
    std::map<int64_t, absl::StatusOr<std::string>> stamps;  // of those that are wanted
    std::string all;                                        // changes when any of it does
  };

  absl::StatusOr<Seen> See(const std::string& name) const;
  void LoadWanted(const std::string& name, const Seen& seen, Look look, Known* known);
  absl::Status LoadOne(const std::string& name, int64_t version, const Seen& seen, Look look,
                       Known* known);
  void Fail(const std::string& name, int64_t version, Failure failure, Known* known);
  // Compiles a version, and awaits it.
  void Compile(const std::shared_ptr<ModelVersion>& version, Look look);
  // Awaits a version that was loaded before; compiles it again if it failed and `again` says so.
  void Keep(const std::shared_ptr<ModelVersion>& version, Look look, bool again);
  static absl::Status WhyNot(const std::string& name, const Known& known);
  // Reports whether the stored version can serve: its rows and tensors are as they should be.
  bool Usable(const ModelVersion& version) const;
  absl::Status Delete(const std::string& name, const std::vector<int64_t>& versions);
  // Unloads models whose folders are gone; a poll those that the look before it did not find
  // either.
  void ForgetMissing(const std::vector<std::string>& names, Look look);
  // Has unavailable() say what is known of the model now.
  void Tell(const std::string& name);

  using Unavailable = std::map<std::string, std::vector<UnavailableModel>>;  // by folder
  // Returns `known` of the folders that are there now, and those that nothing is loaded of.
  Unavailable LookForUnloaded(Unavailable known) const;

  const ServerOptions& options_;
  const RepositoryParts parts_;
  const RepositoryFolder folder_;
  const std::atomic<bool>& stopping_;
  const Await await_;
  std::map<std::string, Known> known_;

  mutable Mutex mu_;
  Unavailable unavailable_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_REPOSITORY_REPOSITORY_MODELS_H_
