#include "server/jobs/compile_job.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/public_status.h"

namespace athanor {
namespace {

void SetNow(google::protobuf::Timestamp* time) {
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  time->set_seconds(now / 1'000'000'000);
  time->set_nanos(static_cast<int32_t>(now % 1'000'000'000));
}

}  // namespace

bool IsFinal(v1::CompileJob::Phase phase) {
  return phase == v1::CompileJob::DONE || phase == v1::CompileJob::FAILED ||
         phase == v1::CompileJob::CANCELLED;
}

namespace {

// Reports whether a plan serves after a job that ends for this reason.
bool EndsWell(v1::CompileJob::StopReason reason) {
  switch (reason) {
    case v1::CompileJob::STOP_BASELINE_ONLY:
    case v1::CompileJob::STOP_ROOFLINE:
    case v1::CompileJob::STOP_STAGNATION:
    case v1::CompileJob::STOP_EXHAUSTED:
    case v1::CompileJob::STOP_BUDGET:
    case v1::CompileJob::STOP_SEARCH_FAILED:
    case v1::CompileJob::STOP_RESTORED:
      return true;
    default:
      return false;
  }
}

std::string DoneMessage(const v1::CompileJob& state, v1::CompileJob::StopReason reason,
                        const absl::Status& status) {
  if (reason == v1::CompileJob::STOP_BASELINE_ONLY) return "the baseline serves";
  if (reason == v1::CompileJob::STOP_RESTORED) {
    const int compiled = state.kernels_total() - state.kernels_from_cache();
    if (compiled == 0) return "a plan that was kept serves; nothing was compiled or searched for";
    return absl::StrCat("a plan that was kept serves; ", compiled, " of its ",
                        state.kernels_total(), " kernels were compiled again");
  }
  if (reason == v1::CompileJob::STOP_SEARCH_FAILED) {
    return absl::StrCat("what serves, serves on; the search could not go on: ",
                        PublicStatus(status).message());
  }
  if (state.has_comparison()) {
    return absl::StrFormat("plan %s takes %.3f times as long as %s, which serves",
                           state.comparison().plan_id(), state.comparison().ratio(),
                           state.comparison().against());
  }
  if (state.search().plans_taken() == 0) return "no faster plan was found than the one that serves";
  return absl::StrFormat(
      "a plan serves that takes %.1f %% of the time of the one before the search",
      100 * state.search().best());
}

}  // namespace

CompileJob::CompileJob(std::string id, std::shared_ptr<ModelVersion> version,
                       std::shared_ptr<TapPlan> tapped, SearchPolicy policy,
                       std::optional<BucketGrid::Ranges> buckets, std::shared_ptr<Trace> trace)
    : id_(std::move(id)),
      model_(version->name()),
      for_taps_(tapped != nullptr),
      policy_(std::move(policy)),
      buckets_(std::move(buckets)),
      version_(std::move(version)),
      tapped_(std::move(tapped)),
      spans_(std::move(trace)) {
  state_.set_id(id_);
  state_.set_model(version_->name());
  state_.set_version(absl::StrCat(version_->version()));
  state_.set_phase(v1::CompileJob::QUEUED);
  state_.set_message("waits for a compile worker");
  SetNow(state_.mutable_created());
  if (!for_taps_) *state_.mutable_search_options() = policy_.ToProto();
  if (for_taps_) state_.mutable_taps()->Assign(tapped_->names.begin(), tapped_->names.end());
}

std::shared_ptr<ModelVersion> CompileJob::version() const {
  MutexLock lock(mu_);
  return version_ != nullptr ? version_ : let_go_.lock();
}

void CompileJob::LetGoOfVersion() {
  std::shared_ptr<ModelVersion> last;  // released after the lock
  MutexLock lock(mu_);
  if (version_ == nullptr) return;
  let_go_ = version_;
  last = std::move(version_);
}

std::shared_ptr<TapPlan> CompileJob::tapped() const {
  MutexLock lock(mu_);
  return tapped_;
}

std::shared_ptr<PlanSlot> CompileJob::slot() const {
  if (!for_taps_) {
    const std::shared_ptr<ModelVersion> version = this->version();
    return version == nullptr ? nullptr : std::shared_ptr<PlanSlot>(version, &version->serving());
  }
  std::shared_ptr<TapPlan> tapped = this->tapped();
  if (tapped == nullptr) return nullptr;
  PlanSlot* slot = &tapped->plans.full();
  return std::shared_ptr<PlanSlot>(std::move(tapped), slot);
}

v1::CompileJob CompileJob::state(uint64_t* sequence) const {
  MutexLock lock(mu_);
  if (sequence != nullptr) *sequence = sequence_;
  return state_;
}

bool CompileJob::finished() const {
  MutexLock lock(mu_);
  return IsFinal(state_.phase());
}

void CompileJob::Changed() {
  ++sequence_;
  spans_.Note(state_);
  for (auto& [id, changed] : watchers_) changed();
}

void CompileJob::Update(absl::FunctionRef<void(v1::CompileJob&)> change) {
  MutexLock lock(mu_);
  if (IsFinal(state_.phase())) return;
  const float percent = state_.percent();
  change(state_);
  state_.set_percent(std::max(percent, state_.percent()));
  if (!state_.has_started() && state_.phase() != v1::CompileJob::QUEUED) {
    SetNow(state_.mutable_started());
  }
  Changed();
}

void CompileJob::Enter(v1::CompileJob::Phase phase, float percent, std::string message) {
  Update([&](v1::CompileJob& state) {
    state.set_phase(phase);
    state.set_percent(percent);
    state.set_message(std::move(message));
  });
}

void CompileJob::Finish(const absl::Status& status, v1::CompileJob::StopReason reason) {
  std::shared_ptr<TapPlan> done;  // released after the lock
  MutexLock lock(mu_);
  if (IsFinal(state_.phase())) return;
  done = std::move(tapped_);
  state_.clear_waits_for();
  state_.set_stop_reason(reason);
  if (EndsWell(reason)) {
    state_.set_phase(v1::CompileJob::DONE);
    state_.set_percent(100);
    state_.set_message(for_taps_ ? "calls with these taps are served"
                                 : DoneMessage(state_, reason, status));
    if (!why_.empty()) absl::StrAppend(state_.mutable_message(), "; ", why_);
  } else if (reason == v1::CompileJob::STOP_ERROR) {
    state_.set_phase(v1::CompileJob::FAILED);
    const absl::Status error = PublicStatus(status);
    state_.set_error_code(static_cast<int32_t>(error.code()));
    state_.set_error(std::string(error.message()));
    state_.set_message("failed");
  } else {
    state_.set_phase(v1::CompileJob::CANCELLED);
    state_.set_message("stopped");
  }
  SetNow(state_.mutable_finished());
  Changed();
}

void CompileJob::NoteWhy(std::string why) {
  MutexLock lock(mu_);
  why_ = std::move(why);
}

void CompileJob::FinishRestored(const ServedPlan& plan) {
  const int kernels = plan.compiled->plan.kernels_size();
  Update([&](v1::CompileJob& state) {
    if (state.kernels_total() > 0) return;  // as it was built
    state.set_kernels_total(kernels);
    state.set_kernels_done(kernels);
    state.set_kernels_from_cache(kernels);
  });
  Finish(absl::OkStatus(), v1::CompileJob::STOP_RESTORED);
}

void CompileJob::RequestStop(v1::CompileJob::StopReason reason) {
  MutexLock lock(mu_);
  if (!stop_.has_value()) stop_ = reason;
}

std::optional<v1::CompileJob::StopReason> CompileJob::stop_requested() const {
  MutexLock lock(mu_);
  return stop_;
}

uint64_t CompileJob::Watch(absl::AnyInvocable<void()> changed) {
  MutexLock lock(mu_);
  watchers_.emplace(++last_watcher_, std::move(changed));
  return last_watcher_;
}

void CompileJob::Unwatch(uint64_t id) {
  MutexLock lock(mu_);
  watchers_.erase(id);
}

}  // namespace athanor
