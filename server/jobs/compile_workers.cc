#include "server/jobs/compile_workers.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "server/base/log.h"
#include "server/jobs/worker_searches.h"

namespace athanor {

CompileWorkers::CompileWorkers(const ServerOptions& options, Registry* registry,
                               CompileBackends* backends, PlanKeeper* keeper,
                               const PlanLoader* loader, Tracer* tracer)
    : options_(options),
      registry_(registry),
      backends_(*backends),
      keeper_(*keeper),
      loader_(*loader),
      policies_(options, backends, keeper),
      pins_(registry, keeper, loader, &policies_),
      jobs_(options.max_compile_jobs, tracer),
      queue_(static_cast<int>(options.compile_workers), options.max_compile_jobs) {
  const int count = static_cast<int>(options.compile_workers);
  for (int i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>(backends_.New()));
  }
  if (backends_.cache() != nullptr) {
    parked_ =
        std::make_unique<ParkedJobs>(backends_.cache(), [this](const auto& job) { Resume(job); });
  }
  for (int i = 0; i < count; ++i) {
    workers_[i]->builder = std::thread([this, i] { BuildLoop(i); });
    pthread_setname_np(workers_[i]->builder.native_handle(), "compile");
    workers_[i]->searcher = std::thread([this, i] { SearchLoop(i); });
    pthread_setname_np(workers_[i]->searcher.native_handle(), "search");
  }
}

absl::StatusOr<std::shared_ptr<CompileJob>> CompileWorkers::Start(
    const std::shared_ptr<ModelVersion>& version, SearchPolicy policy,
    std::optional<BucketGrid::Ranges> buckets) {
  version->taps().ForgetFailed();
  auto job = Submit(version, nullptr, std::move(policy), std::move(buckets));
  if (!absl::IsResourceExhausted(job.status())) return job;
  return Prefixed(absl::StrCat(version->Describe(), ": "), job.status());
}

absl::StatusOr<std::shared_ptr<TapPlan>> CompileWorkers::Tap(
    const std::shared_ptr<ModelVersion>& version, std::vector<NodeId> taps) {
  if (options_.tap_plans == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(version->Describe(), ": this server returns no inner values (--tap_plans=0)"));
  }
  const PlanSlot::View serving = version->serving().view();
  if (!serving.error.ok()) return serving.error;
  auto tapped = version->taps().Get(std::move(taps), options_.tap_plans,
                                    [&](const std::shared_ptr<TapPlan>& added) {
                                      return Submit(version, added, {}, std::nullopt).status();
                                    });
  if (!absl::IsResourceExhausted(tapped.status())) return tapped;
  return Prefixed(absl::StrCat(version->Describe(), ": "), tapped.status());
}

absl::StatusOr<std::shared_ptr<CompileJob>> CompileWorkers::Submit(
    const std::shared_ptr<ModelVersion>& version, const std::shared_ptr<TapPlan>& tapped,
    SearchPolicy policy, std::optional<BucketGrid::Ranges> buckets) {
  auto job =
      queue_.Add([&] { return jobs_.New(version, tapped, std::move(policy), std::move(buckets)); });
  if (absl::IsResourceExhausted(job.status())) {
    registry_->metrics().server().Count(Metric::kRefusals, Refusal::kCompileJobs);
  }
  if (job.ok()) jobs_.Forget();
  return job;
}

void CompileWorkers::StartAll(const std::vector<std::shared_ptr<ModelVersion>>& versions,
                              const std::vector<std::shared_ptr<ModelVersion>>& old) {
  std::vector<std::shared_ptr<CompileJob>> jobs, old_jobs;
  for (const auto& version : versions) {
    jobs.push_back(jobs_.New(version, nullptr, policies_.Automatic(*version), std::nullopt));
  }
  for (const auto& version : old) {
    SearchPolicy policy = policies_.Automatic(*version);
    policy.budget.search = false;
    old_jobs.push_back(jobs_.New(version, nullptr, std::move(policy), std::nullopt));
  }
  queue_.AddAll(jobs, old_jobs);
  jobs_.Forget();
}

void CompileWorkers::AddRestored(const std::shared_ptr<ModelVersion>& version) {
  const std::shared_ptr<const ServedPlan> plan = version->plan();
  if (plan == nullptr) return;  // the version was deleted
  const auto job = jobs_.New(version, nullptr, policies_.Automatic(*version), std::nullopt);
  job->FinishRestored(*plan);
  Release(job);
}

void CompileWorkers::Cancel(const std::shared_ptr<CompileJob>& job,
                            v1::CompileJob::StopReason reason) {
  job->RequestStop(reason);
  const JobQueue::Place place = queue_.Cancel(job);
  if (place == JobQueue::Place::kToSearch) {
    job->Finish(absl::OkStatus(), *job->stop_requested());
  } else if (place == JobQueue::Place::kToBuild || (parked_ != nullptr && parked_->Remove(job))) {
    EndWithoutPlan(*job, absl::OkStatus(), 0);
  } else {
    return;  // its worker ends it
  }
  Release(job);
}

void CompileWorkers::CancelFor(const ModelVersion& version) {
  pins_.ForgetDeleted(version);
  for (const auto& job : jobs_.List(version.name())) {
    if (job->version().get() == &version && !job->finished()) {
      Cancel(job, v1::CompileJob::STOP_MODEL_DELETED);
    }
  }
}

void CompileWorkers::Stop() {
  if (!queue_.Stop()) return;
  const absl::Status draining = absl::UnavailableError("the server is draining");
  for (const auto& job : jobs_.List("")) {
    const std::shared_ptr<PlanSlot> slot = job->slot();
    if (job->finished() || slot == nullptr) continue;
    Cancel(job, v1::CompileJob::STOP_SHUTDOWN);
    slot->Refuse(draining);
  }
  for (auto& worker : workers_) {
    worker->builder.join();
    worker->searcher.join();
  }
}

void CompileWorkers::Release(const std::shared_ptr<CompileJob>& job) {
  if (!job->finished()) return;
  registry_->metrics().server().Count(Metric::kCompileJobs, job->state().stop_reason());
  queue_.Release(job);
  job->LetGoOfVersion();
}

void CompileWorkers::BuildLoop(int index) {
  CompileBackend* const backend = workers_[index]->backend.get();
  JobRunner runner(
      options_, registry_, &backends_, &policies_,
      {*backend, loader_, keeper_, registry_->metrics().server(), backends_.cache(),
       [this, index] { return queue_.GivesWay(index); },
       [this, index](std::shared_ptr<KernelWork> work) { queue_.Share(index, std::move(work)); },
       [this] { queue_.Wake(); }});
  for (;;) {
    JobQueue::Build build = queue_.NextBuild(index, backend);
    if (build.job == nullptr) return;
    if (build.help != nullptr) {
      backend->Use(build.help->device());
      build.help->DoTask(*backend);
      queue_.Built(index);
      continue;
    }
    backend->Use(build.job->version()->device());
    const bool goes_on = GoOn(index, build.job, runner.Run(build.job, std::move(build.rest)));
    queue_.Built(index);
    if (!goes_on) Release(build.job);
  }
}

void CompileWorkers::SearchLoop(int index) {
  while (queue_.AwaitSearch(index)) {
    // Its child process holds the state of the searches, and ends with the last of them.
    const std::unique_ptr<CompileBackend> backend = backends_.New();
    WorkerSearches searches(registry_, backend.get(), &keeper_, &loader_, &policies_,
                            backends_.cache());
    for (JobQueue::Turn turn;
         (turn = queue_.NextTurn(index, &searches, backend.get())).job != nullptr;) {
      std::optional<LeaseWait> wait;
      if (turn.serving != nullptr) {
        wait = searches.Start(turn.job, std::move(turn.serving));
      } else {
        searches.Step();
      }
      queue_.EndTurn(index, /*leaves=*/turn.job->finished() || wait.has_value());
      if (!wait.has_value() || !Park(turn.job, *std::move(wait), kSearchLease)) Release(turn.job);
    }
  }
}

bool CompileWorkers::GoOn(int index, const std::shared_ptr<CompileJob>& job, JobRunner::GoOn next) {
  if (auto* serving = std::get_if<std::shared_ptr<const CompiledPlan>>(&next)) {
    return BeginSearch(index, job, std::move(*serving));
  }
  if (auto* wait = std::get_if<LeaseWait>(&next)) return Park(job, std::move(*wait), kPlanLease);
  if (auto* rest = std::get_if<JobRest>(&next)) return Leave(job, std::move(*rest));
  return false;
}

bool CompileWorkers::BeginSearch(int index, const std::shared_ptr<CompileJob>& job,
                                 std::shared_ptr<const CompiledPlan> serving) {
  if (!SearchPolicies::Wanted(*job->version(), job->policy())) {
    job->Finish(absl::OkStatus(), v1::CompileJob::STOP_BASELINE_ONLY);
    return false;
  }
  job->Enter(v1::CompileJob::SEARCHING, 96, "waits for its search to begin");
  // Whoever stops the job from here on finds it in the queue.
  if (queue_.AddSearch(index, job, std::move(serving))) return true;
  job->Finish(absl::OkStatus(), job->stop_requested().value_or(v1::CompileJob::STOP_SHUTDOWN));
  return false;
}

bool CompileWorkers::Leave(const std::shared_ptr<CompileJob>& job, JobRest rest) {
  std::string left = "a plan serves; its boxes are made when no model waits for its first plan";
  if (auto* incomplete = std::get_if<ChosenPlan>(&rest)) {
    left = absl::StrCat("the baseline serves until plan ", incomplete->plan->id(), " has the ",
                        incomplete->plan->missing.size(), " kernels that are not in the cache");
  }
  job->Update([&](v1::CompileJob& state) {
    state.set_phase(v1::CompileJob::QUEUED);
    state.set_message(std::move(left));
  });
  // Whoever stops the job from here on finds it in the queue.
  if (queue_.AddRest(job, std::move(rest))) return true;
  job->Finish(absl::OkStatus(), job->stop_requested().value_or(v1::CompileJob::STOP_SHUTDOWN));
  return false;
}

bool CompileWorkers::Park(const std::shared_ptr<CompileJob>& job, LeaseWait wait,
                          absl::string_view kind) {
  const bool search = kind == kSearchLease;
  if (!search) job->slot()->SetJob(job->id(), /*compiling=*/false);
  job->Update([&](v1::CompileJob& state) {
    if (!search) state.set_phase(v1::CompileJob::QUEUED);
    state.set_waits_for(wait.waits_for);
    state.set_message(search ? "waits for another search for the same on this cache"
                             : "waits for another server on the same cache, which makes this plan");
  });
  LogInfo(search ? "search waits" : "compile job waits",
          {{"job", job->id()}, {"model", job->model()}, {"for", wait.waits_for}});
  parked_->Park(job, std::move(wait.key), kind);
  // Whoever stops it from here on finds it; who did so before, did not.
  if (!job->stop_requested().has_value() || !parked_->Remove(job)) return true;
  EndWithoutPlan(*job, absl::OkStatus(), 0);
  return false;
}

void CompileWorkers::ResumeSearch(const std::shared_ptr<CompileJob>& job) {
  const std::shared_ptr<const ServedPlan> plan = job->version()->plan();
  if (plan == nullptr) {
    job->Finish(absl::OkStatus(),
                job->stop_requested().value_or(v1::CompileJob::STOP_MODEL_DELETED));
  } else if (BeginSearch(0, job, plan->compiled)) {
    return;
  }
  Release(job);
}

void CompileWorkers::Resume(const std::shared_ptr<CompileJob>& job) {
  if (job->state().phase() == v1::CompileJob::SEARCHING) return ResumeSearch(job);
  if (queue_.AddFirst(job)) return;
  if (queue_.stopped()) {
    job->RequestStop(v1::CompileJob::STOP_SHUTDOWN);  // keeps an earlier reason
    job->slot()->Refuse(absl::UnavailableError("the server is draining"));
  }
  EndWithoutPlan(*job, absl::OkStatus(), 0);
  Release(job);
}

}  // namespace athanor
