// The models of a folder in Triton's layout: loaded at start, when their files change, or when a
// client says so (--model_control).
//
//   std::unique_ptr<Repository> repository = Repository::Open(options, parts).value();
//   repository->Start();
//   repository->Load("digits", [](absl::Status loaded) { ... });
//
// One thread looks at the folder and loads; versions become those of the registry, with jobs like
// uploaded ones. A model that is broken costs nothing but itself, and takes nothing away that
// serves. Thread-safe.
#ifndef ATHANOR_SERVER_REPOSITORY_REPOSITORY_H_
#define ATHANOR_SERVER_REPOSITORY_REPOSITORY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/base/options.h"
#include "server/repository/folder.h"
#include "server/repository/repository_models.h"

namespace athanor {

class Repository {
 public:
  // FAILED_PRECONDITION: --model_repository cannot be listed. The arguments outlive it; `options`
  // has a model_repository.
  static absl::StatusOr<std::unique_ptr<Repository>> Open(const ServerOptions& options,
                                                          const RepositoryParts& parts);
  ~Repository() { Stop(); }

  // Begins to look. Call it once, when stored versions have been restored.
  void Start();
  // Ends what is under way, and answers calls with UNAVAILABLE. Later calls are answered so too.
  void Stop();

  // Reports whether the first look has ended and its versions have a plan, or none to come.
  bool ready() const { return looked_ && starting_ == 0; }
  // Told once, when it becomes ready, without locks. Told at once if it is.
  void SetReadyHook(std::function<void()> hook);

  using Done = absl::AnyInvocable<void(absl::Status)>;
  // Loads what the model's folder holds now. `done` is called once, on some thread, when all
  // versions that its configuration wants serve, or with why one does not. A version that failed
  // is compiled again. FAILED_PRECONDITION unless --model_control=explicit; NOT_FOUND: there is no
  // such folder.
  void Load(const std::string& name, Done done);
  // Unloads all versions; requests that run finish. Same codes.
  void Unload(const std::string& name, Done done);

  // May look at the disk.
  std::vector<UnavailableModel> unavailable() const { return models_.unavailable(); }

 private:
  static constexpr int64_t kMostAsked = 256;

  using Clock = std::chrono::steady_clock;
  using Work = absl::AnyInvocable<void()>;
  using Look = RepositoryModels::Look;

  Repository(const ServerOptions& options, const RepositoryParts& parts, RepositoryFolder folder);
  void Loop();
  // Has the thread do it; after Stop, the caller's does.
  void Post(Work work);
  // Calls `work` on the thread, or `done` with why it is not: RESOURCE_EXHAUSTED if kMostAsked are
  // being done.
  void Ask(Done done, absl::AnyInvocable<void(Done)> work);
  void DoLoad(const std::string& name, Done done);
  // Calls `done` once all versions that the model's configuration wants by then serve, or one
  // cannot.
  void AnswerWhenReady(const std::string& name, Done done);
  // Tidies the model once the version serves, or cannot. Of the first look, it is not ready before.
  void Await(const std::shared_ptr<ModelVersion>& version, Look look);
  void TellReady();

  const ServerOptions& options_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> looked_{false};
  std::atomic<int64_t> starting_{0};
  RepositoryModels models_;

  // Waiters of plans may outlive the repository.
  struct Link {
    Mutex mu;
    Repository* repository ABSL_GUARDED_BY(mu) = nullptr;
  };
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
  // Loads and unloads that have not ended.
  const std::shared_ptr<std::atomic<int64_t>> asked_ = std::make_shared<std::atomic<int64_t>>(0);

  Mutex mu_;
  CondVar wake_;
  std::deque<Work> work_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // the thread takes no more work
  std::function<void()> ready_hook_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

// Asks to load or unload a model of the repository, with the names of the call's parameters.
struct RepositoryCall {
  enum class Kind : uint8_t { kLoad, kUnload };
  Kind kind = Kind::kLoad;
  std::string model;
  std::vector<std::string> parameters;
};

// Does what a client asks, over gRPC or REST. FAILED_PRECONDITION also if `repository` is null;
// INVALID_ARGUMENT names a parameter that is not served.
void AnswerRepositoryCall(Repository* repository, const RepositoryCall& call,
                          Repository::Done done);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REPOSITORY_REPOSITORY_H_
