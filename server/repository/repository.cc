#include "server/repository/repository.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::Status Draining() { return absl::UnavailableError("the server is draining"); }

absl::Status CheckParameter(const std::string& name) {
  if (name == "unload_dependents") return absl::OkStatus();  // no model depends on another
  if (name == "config" || name.starts_with("file:")) {
    return Invalid("parameter ", Quoted(name),
                   ": a model is what its folder holds; change config.pbtxt and the files there");
  }
  return Invalid("there is no parameter ", Quoted(name), "; there is unload_dependents");
}

}  // namespace

void AnswerRepositoryCall(Repository* repository, const RepositoryCall& call,
                          Repository::Done done) {
  if (repository == nullptr) {
    return done(
        absl::FailedPreconditionError("the server has no --model_repository: models serve from "
                                      "their upload on, until they are deleted"));
  }
  for (const std::string& name : call.parameters) {
    if (absl::Status known = CheckParameter(name); !known.ok()) return done(known);
  }
  if (call.kind == RepositoryCall::Kind::kLoad) {
    repository->Load(call.model, std::move(done));
  } else {
    repository->Unload(call.model, std::move(done));
  }
}

Repository::Repository(const ServerOptions& options, const RepositoryParts& parts,
                       RepositoryFolder folder)
    : options_(options),
      models_(options, parts, std::move(folder), stopping_,
              [this](const std::shared_ptr<ModelVersion>& version, Look look) {
                Await(version, look);
              }) {
  MutexLock lock(link_->mu);
  link_->repository = this;
}

absl::StatusOr<std::unique_ptr<Repository>> Repository::Open(const ServerOptions& options,
                                                             const RepositoryParts& parts) {
  ASSIGN_OR_RETURN(RepositoryFolder folder, RepositoryFolder::Open(options.model_repository));
  return std::unique_ptr<Repository>(new Repository(options, parts, std::move(folder)));
}

void Repository::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Repository::Stop() {
  stopping_ = true;
  {
    MutexLock lock(link_->mu);
    link_->repository = nullptr;
  }
  {
    MutexLock lock(mu_);
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Repository::Loop() {
  models_.LookAtAll(Look::kFirst);
  looked_ = true;
  TellReady();
  const bool polls = options_.model_control == "poll";
  const std::chrono::milliseconds poll(options_.repository_poll_ms);
  Clock::time_point next = Clock::now() + poll;
  for (;;) {
    Work work;
    {
      MutexLock lock(mu_);
      while (work_.empty() && !stopping_ && (!polls || Clock::now() < next)) {
        if (polls) {
          wake_.WaitUntil(lock, next);
        } else {
          wake_.Wait(lock);
        }
      }
      ended_ = stopping_ && work_.empty();
      if (ended_) return;
      if (!work_.empty()) {
        work = std::move(work_.front());
        work_.pop_front();
      }
    }
    if (work) {
      work();
      continue;
    }
    models_.LookAtAll(Look::kPoll);
    next = Clock::now() + poll;
  }
}

void Repository::Post(Work work) {
  {
    MutexLock lock(mu_);
    if (!ended_) {
      work_.push_back(std::move(work));
      wake_.NotifyAll();
      return;
    }
  }
  work();  // which finds that it is stopping
}

void Repository::Ask(Done done, absl::AnyInvocable<void(Done)> work) {
  // The work goes on where its caller has left, whose call no longer counts among the calls.
  if (++*asked_ > kMostAsked) {
    --*asked_;
    return done(absl::ResourceExhaustedError(Cat(
        kMostAsked, " loads and unloads of models are being done, the most allowed; come again")));
  }
  done = [asked = asked_, done = std::move(done)](const absl::Status& status) mutable {
    --*asked;
    done(status);
  };
  if (!ByCalls(options_)) {
    done(absl::FailedPreconditionError(
        Cat("models are loaded and unloaded by calls with --model_control=explicit only; it is ",
            options_.model_control)));
    return;
  }
  Post([this, done = std::move(done), work = std::move(work)]() mutable {
    if (stopping_) {
      done(Draining());
    } else {
      work(std::move(done));
    }
  });
}

void Repository::Load(const std::string& name, Done done) {
  Ask(std::move(done), [this, name](Done answer) { DoLoad(name, std::move(answer)); });
}

void Repository::Unload(const std::string& name, Done done) {
  Ask(std::move(done), [this, name](Done answer) { answer(models_.Unload(name)); });
}

void Repository::SetReadyHook(std::function<void()> hook) {
  {
    MutexLock lock(mu_);
    ready_hook_ = std::move(hook);
  }
  TellReady();
}

void Repository::TellReady() {
  if (!ready()) return;
  std::function<void()> hook;
  {
    MutexLock lock(mu_);
    hook = std::exchange(ready_hook_, nullptr);
  }
  if (hook) hook();
}

void Repository::Await(const std::shared_ptr<ModelVersion>& version, Look look) {
  const bool first = look == Look::kFirst;
  if (first) ++starting_;
  version->serving().WhenReady([link = link_, name = version->name(), first](const absl::Status&) {
    MutexLock lock(link->mu);
    if (link->repository == nullptr) return;
    link->repository->Post([repository = link->repository, name, first] {
      if (repository->stopping_) return;
      repository->models_.Tidy(name);
      if (!first) return;
      --repository->starting_;
      repository->TellReady();
    });
  });
}

void Repository::DoLoad(const std::string& name, Done done) {
  absl::Status loaded = models_.CheckThere(name);
  if (loaded.ok()) loaded = models_.LookAt(name, Look::kLoad);
  if (!loaded.ok()) return done(loaded);
  AnswerWhenReady(name, std::move(done));
}

void Repository::AnswerWhenReady(const std::string& name, Done done) {
  for (const auto& [number, version] : models_.Wanted(name)) {
    if (version->plan() != nullptr) continue;
    const auto got = [link = link_, name, waited = std::weak_ptr<ModelVersion>(version),
                      done = std::make_shared<Done>(std::move(done))](const absl::Status& status) {
      MutexLock lock(link->mu);
      Repository* const repository = link->repository;
      if (repository == nullptr) return (*done)(Draining());
      repository->Post([=, status = OwnCopy(status)] {
        if (repository->stopping_) return (*done)(Draining());
        // Another load may have changed meanwhile what is wanted.
        const auto wanted = repository->models_.Wanted(name);
        const bool still =
            absl::c_any_of(wanted, [&](const auto& each) { return each.second == waited.lock(); });
        if (!status.ok() && (still || wanted.empty())) return (*done)(status);
        repository->AnswerWhenReady(name, std::move(*done));
      });
    };
    version->serving().WhenReady(got);
    return;
  }
  models_.Tidy(name);  // the versions' own waiters may not have asked for it yet
  done(absl::OkStatus());
}

}  // namespace athanor
