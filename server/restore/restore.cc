#include "server/restore/restore.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/keeper/remembered.h"
#include "server/restore/warm_up.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

// Verifying more bytes than this takes a second and longer: that is not done before the server
// listens.
constexpr int64_t kMostVerifiedBytes = int64_t{1} << 30;

int64_t ParameterBytes(const ModelVersion& version) {
  int64_t bytes = 0;
  for (const TensorRow& tensor : version.row().tensors) bytes += tensor.bytes;
  return bytes;
}

absl::Status RestoreOne(const std::shared_ptr<ModelVersion>& version, const RestoreTools& tools) {
  const auto begin = Clock::now();
  if (const int64_t bytes = tools.registry.UnverifiedBytes(*version); bytes > kMostVerifiedBytes) {
    return absl::UnavailableError(absl::StrCat(
        "files of ", bytes, " bytes of its weights are new or changed: they are verified first"));
  }
  RETURN_IF_ERROR(tools.registry.Verify(*version));
  ASSIGN_OR_RETURN(std::vector<KeptPlan> had, FindRemembered(tools.keeper, *version));
  const std::shared_ptr<const CompiledPlan> serving = ServingOf(had, *version);
  if (!serving->whole()) {
    return absl::NotFoundError(absl::StrCat(serving->missing.size(), " of the ",
                                            serving->plan.kernels_size(), " kernels of plan ",
                                            serving->id(), " are not in the cache"));
  }
  ASSIGN_OR_RETURN(auto served, tools.loader.Load(*version, version->graph(), serving));
  if (absl::Status s = WarmUp(*version, *served); !s.ok()) {
    LogWarn("a restored plan's first run failed",
            {{"model", version->name()}, {"version", version->version()}, {"error", s.message()}});
  }
  const std::string id = serving->id();
  absl::Status serves = tools.registry.Restore(version, std::move(served), std::move(had));
  if (!serves.ok()) return serves;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  LogInfo("plan restored", {{"model", version->name()},
                            {"version", version->version()},
                            {"plan", id},
                            {"ms", took.count()}});
  return absl::OkStatus();
}

}  // namespace

RestoreReport Restore(std::vector<std::shared_ptr<ModelVersion>> serving,
                      const std::vector<std::shared_ptr<ModelVersion>>& old,
                      const RestoreTools& tools, int threads, std::chrono::milliseconds limit) {
  // Starts the largest first, since they take the longest.
  std::sort(serving.begin(), serving.end(),
            [](const auto& a, const auto& b) { return ParameterBytes(*a) > ParameterBytes(*b); });
  const auto end = Clock::now() + limit;
  std::vector<absl::Status> verdicts(serving.size(), absl::UnavailableError("no time was left"));
  std::atomic<size_t> next = 0;
  const auto load = [&] {
    for (size_t i = next++; i < serving.size() && Clock::now() < end; i = next++) {
      verdicts[i] = RestoreOne(serving[i], tools);
    }
  };
  std::vector<std::thread> loaders;
  const size_t wanted = std::min<size_t>(std::max(1, threads), serving.size());
  for (size_t t = 0; t < wanted; ++t) {
    loaders.emplace_back(load);
    pthread_setname_np(loaders.back().native_handle(), "restore");
  }
  for (std::thread& loader : loaders) loader.join();
  RestoreReport report;
  std::vector<std::shared_ptr<ModelVersion>> jobs;
  for (size_t i = 0; i < serving.size(); ++i) {
    const std::shared_ptr<ModelVersion>& version = serving[i];
    if (!verdicts[i].ok()) {
      ++report.queued;
      jobs.push_back(version);
      // A version without rows was uploaded and not built yet, or stored by a server that kept no
      // plans.
      if (version->row().plans.empty()) continue;
      LogInfo("plan not restored", {{"model", version->name()},
                                    {"version", version->version()},
                                    {"why", verdicts[i].message()}});
      continue;
    }
    ++report.restored;
    const SearchPolicy policy = tools.workers.policies().Automatic(*version);
    if (tools.workers.policies().SearchDue(*version, policy) ||
        tools.workers.policies().BetterKept(*version, policy)) {
      ++report.searched;
      jobs.push_back(version);
    } else if (version->plans().grid()->size() > 1) {
      jobs.push_back(version);  // to build its buckets
    } else {
      tools.workers.AddRestored(version);
    }
  }
  tools.workers.StartAll(jobs, old);
  return report;
}

}  // namespace athanor
