#include "server/repository/repository_models.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/models/version_batching.h"
#include "server/storage/registry_db.h"

namespace athanor {
namespace {

constexpr int64_t kMostConfigBytes = 1 << 20;
// Waits this many times as long as the last try took before it tries again what may pass by itself.
constexpr int kRest = 10;
constexpr std::chrono::seconds kLeastRest{1};

// Reports whether trying again without a change of the files may help.
bool MayPass(const absl::Status& status) {
  return !absl::IsInvalidArgument(status) && !absl::IsUnimplemented(status);
}

// Returns the numbers among the names of folders, ascending. As in Triton's layout, other names,
// and numbers that begin with 0, are no versions.
std::vector<int64_t> VersionsOf(const std::vector<std::string>& names) {
  constexpr size_t kMostDigits = 18;
  std::vector<int64_t> versions;
  for (const std::string& name : names) {
    const bool digits = absl::c_all_of(name, absl::ascii_isdigit);
    if (digits && name.front() != '0' && name.size() <= kMostDigits) {
      versions.push_back(std::stoll(name));
    }
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

bool IsOfRepository(const ModelVersion& version) { return !version.row().source.content.empty(); }

// Reports whether the version has no plan and none to come.
bool HasFailed(const ModelVersion& version) {
  const PlanSlot::View view = version.plans().full().view();
  return view.plan == nullptr && view.settled();
}

std::string Shown(const std::string& name) {
  return IsValidUtf8(name) ? name : absl::CHexEscape(name);
}

}  // namespace

void RepositoryModels::LookAtAll(Look look) {
  const Clock::time_point begin = Clock::now();
  const absl::StatusOr<std::vector<std::string>> names = folder_.Folders("");
  if (!names.ok()) {
    // Keeps what is loaded: a folder that cannot be read may be one that is not mounted.
    LogError("the model repository cannot be read", {{"error", names.status().message()}});
    return;
  }
  if (!ByCalls(options_)) {
    // An empty folder may be one that is not mounted.
    if (!names->empty()) ForgetMissing(*names, look);
    for (const std::string& name : *names) {
      if (stopping_) return;
      LookAt(name, look).IgnoreError();  // Tell has it
    }
  }
  if (look != Look::kFirst) return;
  const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
  LogInfo("model repository read", {{"folder", folder_.path()},
                                    {"models", names->size()},
                                    {"unavailable", unavailable().size()},
                                    {"ms", took.count()}});
}

void RepositoryModels::ForgetMissing(const std::vector<std::string>& names, Look look) {
  const std::set<std::string> there(names.begin(), names.end());
  std::set<std::string> gone;
  for (const auto& [name, known] : known_) gone.insert(name);
  for (const auto& version : parts_.registry.versions().List("")) {
    if (IsOfRepository(*version)) gone.insert(version->name());
  }
  for (const std::string& name : gone) {
    if (there.contains(name)) continue;
    // It may be being renamed.
    if (look == Look::kPoll && !std::exchange(known_[name].gone, true)) continue;
    std::vector<int64_t> versions;
    for (const auto& [number, version] : Loaded(name)) versions.push_back(number);
    if (!Delete(name, versions).ok()) continue;
    known_.erase(name);
    Tell(name);
  }
}

absl::StatusOr<RepositoryModels::Seen> RepositoryModels::See(const std::string& name) const {
  if (!IsValidUtf8(name)) return Invalid("the name of the folder is not UTF-8");
  Seen seen;
  absl::StatusOr<std::string> text = folder_.ReadText(name + "/config.pbtxt", kMostConfigBytes);
  if (text.ok()) {
    seen.settings.text = *std::move(text);
  } else if (!absl::IsNotFound(text.status())) {
    return text.status();
  }
  absl::StatusOr<RepositoryConfig> config = ParseConfig(seen.settings.text, name);
  if (!config.ok()) return Prefixed("config.pbtxt: ", config.status());
  seen.settings.config = *std::move(config);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, folder_.Folders(name));
  seen.wanted = seen.settings.config.WantedVersions(VersionsOf(names));
  Sha256 all;
  all.Update(seen.settings.text);
  for (int64_t version : seen.wanted) {
    auto stamp = StampOfVersion(folder_, name, version, seen.settings, options_.max_onnx_files);
    all.Update(Cat(" ", version, " ", stamp.ok() ? *stamp : stamp.status().ToString()));
    seen.stamps.emplace(version, std::move(stamp));
  }
  seen.all = all.Finish();
  return seen;
}

absl::Status RepositoryModels::LookAt(const std::string& name, Look look) {
  const absl::StatusOr<Seen> seen = See(name);
  Known& known = known_[name];
  known.gone = false;
  if (!seen.ok()) {
    if (known.broken != seen.status()) {
      LogWarn("a model of the repository cannot be loaded",
              {{"model", absl::CHexEscape(name)}, {"error", seen.status().message()}});
    }
    known.broken = seen.status();
    Tell(name);
    return WhyNot(name, known);
  }
  // Waits for a second look at what changes: it may still be being copied.
  const bool changed = std::exchange(known.seen, seen->all) != seen->all;
  if (look == Look::kPoll && changed) return absl::OkStatus();
  known.broken = seen->wanted.empty() ? absl::NotFoundError(
                                            "there is no folder of a version that is wanted; they "
                                            "are named 1, 2, ...")
                                      : absl::OkStatus();
  known.wanted = seen->wanted;
  LoadWanted(name, *seen, look, &known);
  Tidy(name);
  Tell(name);
  return WhyNot(name, known);
}

absl::Status RepositoryModels::WhyNot(const std::string& name, const Known& known) {
  if (!known.broken.ok()) return Prefixed(Cat("model ", Quoted(name), ": "), known.broken);
  if (known.failures.empty()) return absl::OkStatus();
  const auto& [version, failure] = *known.failures.begin();
  return Prefixed(Cat("model ", Quoted(name), ", version ", version, ": "), failure.status);
}

std::map<int64_t, std::shared_ptr<ModelVersion>> RepositoryModels::Loaded(
    const std::string& name) const {
  std::map<int64_t, std::shared_ptr<ModelVersion>> loaded;
  if (name.empty()) return loaded;  // which would list all models
  for (const auto& version : parts_.registry.versions().List(name)) {
    if (IsOfRepository(*version)) loaded.emplace(version->version(), version);
  }
  return loaded;
}

std::map<int64_t, std::shared_ptr<ModelVersion>> RepositoryModels::Wanted(
    const std::string& name) const {
  const auto known = known_.find(name);
  if (known == known_.end() || !known->second.wanted.has_value()) return {};
  auto wanted = Loaded(name);
  std::erase_if(wanted, [&](const auto& version) {
    return !absl::c_linear_search(*known->second.wanted, version.first);
  });
  return wanted;
}

bool RepositoryModels::Usable(const ModelVersion& version) const {
  return version.unusable().ok() &&
         absl::c_none_of(version.row().tensors, [&](const TensorRow& tensor) {
           return parts_.registry.tensors().Damage(tensor.hash).has_value();
         });
}

void RepositoryModels::LoadWanted(const std::string& name, const Seen& seen, Look look,
                                  Known* known) {
  const auto loaded = Loaded(name);
  for (const auto& [number, version] : loaded) {
    known->stamps.try_emplace(number, version->row().source.stamp);
  }
  std::erase_if(known->failures, [&](const auto& failure) {
    return !absl::c_linear_search(seen.wanted, failure.first);
  });
  for (int64_t version : seen.wanted) {
    if (stopping_) return;
    const absl::StatusOr<std::string>& stamp = seen.stamps.at(version);
    if (!stamp.ok()) {
      Fail(name, version, {"", stamp.status(), Clock::now()}, known);
      continue;
    }
    const auto had = loaded.find(version);
    if (had != loaded.end() && Usable(*had->second) && known->stamps[version] == *stamp) {
      known->failures.erase(version);
      Keep(had->second, look, /*again=*/look == Look::kLoad);
      continue;
    }
    const Clock::time_point begin = Clock::now();
    const auto failed = known->failures.find(version);
    if (failed != known->failures.end() && failed->second.stamp == *stamp && look != Look::kLoad &&
        begin < failed->second.again) {
      continue;
    }
    const absl::Status status = LoadOne(name, version, seen, look, known);
    if (status.ok()) {
      known->failures.erase(version);
      continue;
    }
    const Clock::time_point end = Clock::now();
    const Clock::time_point again =
        MayPass(status) ? end + std::max<Clock::duration>(kLeastRest, kRest * (end - begin))
                        : Clock::time_point::max();
    Fail(name, version, {*stamp, status, again}, known);
  }
}

void RepositoryModels::Fail(const std::string& name, int64_t version, Failure failure,
                            Known* known) {
  Failure& had = known->failures[version];
  if (had.status != failure.status && !stopping_) {
    LogWarn("a version of the repository cannot be loaded",
            {{"model", name}, {"version", version}, {"error", failure.status.message()}});
  }
  had = std::move(failure);
}

absl::Status RepositoryModels::LoadOne(const std::string& name, int64_t version, const Seen& seen,
                                       Look look, Known* known) {
  const std::string& stamp = *seen.stamps.at(version);
  const StopLoading stop = [this] { return stopping_.load(); };
  ASSIGN_OR_RETURN(const VersionFiles files,
                   FindVersion(folder_, name, version, seen.settings, options_.max_onnx_files));
  if (files.stamp != stamp) return absl::FailedPreconditionError("its files are being changed");
  // Before the files are read, which may take long.
  RETURN_IF_ERROR(
      parts_.registry.CheckRoom({.name = name, .version = version, .source = {stamp, stamp}}));
  ASSIGN_OR_RETURN(const std::string content, HashContent(folder_, files, stop));
  const auto loaded = Loaded(name);
  const auto had = loaded.find(version);
  if (had != loaded.end() && had->second->row().source.content == content && Usable(*had->second)) {
    RETURN_IF_ERROR(parts_.registry.db().SetStamp(name, version, stamp));
    known->stamps[version] = stamp;
    Keep(had->second, look, /*again=*/true);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      const auto stored,
      LoadVersion(folder_, files, content, {&parts_.registry, &parts_.ledger, options_}, stop));
  known->stamps[version] = stamp;
  if (had != loaded.end()) parts_.workers.CancelFor(*had->second);
  LogInfo("model loaded from the repository",
          {{"model", name},
           {"version", version},
           {"without_effect", absl::StrJoin(seen.settings.config.inert, ", ")}});
  LogBatching(*stored);
  Compile(stored, look);
  return absl::OkStatus();
}

void RepositoryModels::Compile(const std::shared_ptr<ModelVersion>& version, Look look) {
  const auto job = parts_.workers.Start(version);
  if (!job.ok()) version->serving().Fail(job.status());
  await_(version, look);
}

void RepositoryModels::Keep(const std::shared_ptr<ModelVersion>& version, Look look, bool again) {
  if (again && HasFailed(*version)) {
    Compile(version, look);
  } else if (look == Look::kFirst) {
    await_(version, look);
  }
}

void RepositoryModels::Tidy(const std::string& name) {
  const auto known = known_.find(name);
  if (known == known_.end() || !known->second.wanted.has_value()) return;
  const std::vector<int64_t>& wanted = *known->second.wanted;
  const auto loaded = Loaded(name);
  std::vector<int64_t> others;
  for (const auto& [number, version] : loaded) {
    if (!absl::c_linear_search(wanted, number)) others.push_back(number);
  }
  for (int64_t version : wanted) {
    const auto at = loaded.find(version);
    if (at == loaded.end() || at->second->plan() == nullptr) return;
  }
  // Keeps what serves where nothing is wanted: the folder is being changed or its config is wrong.
  if (wanted.empty() || others.empty() || !Delete(name, others).ok()) return;
  for (int64_t version : others) known->second.stamps.erase(version);
  Tell(name);
}

absl::Status RepositoryModels::Delete(const std::string& name,
                                      const std::vector<int64_t>& versions) {
  for (int64_t number : versions) {
    const auto deleted = parts_.registry.Delete(name, absl::StrCat(number));
    if (!deleted.ok()) {
      LogError("a version that the repository has no more cannot be unloaded",
               {{"model", name}, {"version", number}, {"error", deleted.status().message()}});
      return deleted.status();
    }
    for (const auto& version : *deleted) {
      parts_.workers.CancelFor(*version);
      parts_.requests.Forget(version->Describe());
    }
    LogInfo("model unloaded", {{"model", name}, {"version", number}});
  }
  return absl::OkStatus();
}

absl::Status RepositoryModels::CheckThere(const std::string& name) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, folder_.Folders(""));
  if (absl::c_linear_search(names, name)) return absl::OkStatus();
  return absl::NotFoundError(Cat("the model repository has no folder ", Quoted(name),
                                 "; RepositoryIndex shows what it has"));
}

absl::Status RepositoryModels::Unload(const std::string& name) {
  const auto loaded = Loaded(name);
  if (loaded.empty()) RETURN_IF_ERROR(CheckThere(name));
  std::vector<int64_t> versions;
  for (const auto& [number, version] : loaded) versions.push_back(number);
  RETURN_IF_ERROR(Delete(name, versions));
  known_.erase(name);
  Tell(name);
  return absl::OkStatus();
}

void RepositoryModels::Tell(const std::string& name) {
  std::vector<UnavailableModel> entries;
  const auto add = [&](const std::string& version, const std::string& reason) {
    entries.push_back({Shown(name), version, reason});
  };
  const auto loaded = Loaded(name);
  const auto known = known_.find(name);
  if (known != known_.end()) {
    if (!known->second.broken.ok()) add("", std::string(known->second.broken.message()));
    for (const auto& [version, failure] : known->second.failures) {
      const std::string why(failure.status.message());
      if (loaded.contains(version)) {
        add("", Cat("version ", version, " serves as it was before its last change: ", why));
      } else {
        add(Cat(version), why);
      }
    }
  }
  MutexLock lock(mu_);
  if (entries.empty()) {
    unavailable_.erase(name);
  } else {
    unavailable_[name] = std::move(entries);
  }
}

RepositoryModels::Unavailable RepositoryModels::LookForUnloaded(Unavailable known) const {
  const absl::StatusOr<std::vector<std::string>> names = folder_.Folders("");
  if (!names.ok()) return known;
  std::set<std::string> loaded;
  for (const auto& version : parts_.registry.versions().List("")) {
    if (IsOfRepository(*version)) loaded.insert(version->name());
  }
  Unavailable now;
  for (const std::string& name : *names) {
    if (const auto entries = known.find(name); entries != known.end()) {
      now.insert(known.extract(entries));
    } else if (!loaded.contains(name)) {
      now[name] = {{Shown(name), "", "it is not loaded; RepositoryModelLoad loads it"}};
    }
  }
  return now;
}

std::vector<UnavailableModel> RepositoryModels::unavailable() const {
  Unavailable known;
  {
    MutexLock lock(mu_);
    known = unavailable_;
  }
  if (ByCalls(options_)) known = LookForUnloaded(std::move(known));
  std::vector<UnavailableModel> all;
  for (const auto& [name, entries] : known) all.insert(all.end(), entries.begin(), entries.end());
  return all;
}

}  // namespace athanor
