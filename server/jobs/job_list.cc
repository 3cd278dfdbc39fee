#include "server/jobs/job_list.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "compiler/ir/value/message.h"
#include "server/tracing/tracer.h"

namespace athanor {
namespace {

// Ids of an earlier process are unknown to this one, and must not name a different job.
std::string NewIdPrefix() {
  return absl::StrFormat("job-%06x-", std::random_device()() & 0xffffff);
}

// Jobs of deleted models are kept only for those who watch their end, so fewer than of others.
constexpr int64_t kMostOfDeleted = 50;

}  // namespace

JobList::JobList(int64_t most, Tracer* tracer)
    : most_(most), id_prefix_(NewIdPrefix()), tracer_(tracer) {}

std::shared_ptr<CompileJob> JobList::New(const std::shared_ptr<ModelVersion>& version,
                                         const std::shared_ptr<TapPlan>& tapped,
                                         SearchPolicy policy,
                                         std::optional<BucketGrid::Ranges> buckets) {
  std::shared_ptr<Trace> trace;
  if (tracer_ != nullptr) {
    trace = tracer_->BeginOwn(absl::StrCat("compile ", version->name()),
                              std::chrono::steady_clock::now());
  }
  MutexLock lock(mu_);
  const uint64_t number = ++last_id_;
  auto job = std::make_shared<CompileJob>(absl::StrCat(id_prefix_, number), version, tapped,
                                          std::move(policy), std::move(buckets), std::move(trace));
  job->slot()->SetJob(job->id(), /*compiling=*/false);
  jobs_.emplace(number, job);
  return job;
}

void JobList::Forget() {
  const auto of_deleted = [](const auto& entry) {
    return entry.second->finished() && entry.second->version() == nullptr;
  };
  MutexLock lock(mu_);
  int64_t deleted = std::count_if(jobs_.begin(), jobs_.end(), of_deleted);
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const bool gone = of_deleted(*it);
    const bool full = static_cast<int64_t>(jobs_.size()) > most_;
    if ((gone && deleted > kMostOfDeleted) || (full && it->second->finished())) {
      deleted -= gone ? 1 : 0;
      it = jobs_.erase(it);
    } else {
      ++it;
    }
  }
}

absl::StatusOr<std::shared_ptr<CompileJob>> JobList::Find(const std::string& id) const {
  absl::string_view text = id;
  uint64_t number = 0;
  if (absl::ConsumePrefix(&text, id_prefix_) && absl::SimpleAtoi(text, &number)) {
    MutexLock lock(mu_);
    auto it = jobs_.find(number);
    if (it != jobs_.end() && it->second->id() == id) return it->second;
  }
  return absl::NotFoundError(Cat("compile job ", Quoted(id),
                                 " does not exist; jobs are forgotten when the server restarts"));
}

std::vector<std::shared_ptr<CompileJob>> JobList::List(absl::string_view model) const {
  std::vector<std::shared_ptr<CompileJob>> found;
  MutexLock lock(mu_);
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    if (model.empty() || it->second->model() == model) found.push_back(it->second);
  }
  return found;
}

}  // namespace athanor
