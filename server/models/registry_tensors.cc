// The registry's tensors: publishes them, checks them before use, and handles damaged and replaced
// ones.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/models/registry.h"

namespace athanor {
namespace {

// Returns the error for a version with a damaged tensor.
absl::Status DamageOf(const ModelVersion& version, const std::string& hash, absl::string_view why) {
  std::string name;
  const std::vector<NodeId> ids = version.graph().ParameterIds();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (version.parameter_hashes()[i] == hash) name = version.graph().node(ids[i]).name;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(version.Describe(), ", is damaged and not served: parameter ", Quoted(name),
                   ": ", why, "; upload the model again, which brings these weights back"));
}

bool IsUnchanged(const TensorStore::Location& location, const std::optional<FileStamp>& verified) {
  if (!verified.has_value()) return false;
  const absl::StatusOr<FileStamp> now = StampOf(location.path);
  return now.ok() && *now == *verified;
}

}  // namespace

absl::StatusOr<Registry::Found> Registry::FindTensor(const std::string& hash) const {
  MutexLock lock(mu_);
  const auto it = tensor_entries_.find(hash);
  if (it == tensor_entries_.end() || !it->second.held) {
    const bool damaged = it != tensor_entries_.end() && !it->second.damage.empty();
    return absl::FailedPreconditionError(
        damaged ? it->second.damage
                : absl::StrCat("tensor ", absl::BytesToHexString(hash), " is not held"));
  }
  const TensorEntry& entry = it->second;
  return Found{tensors_->Locate(hash, entry.bytes, entry.range), entry.verified};
}

absl::StatusOr<std::shared_ptr<const MappedTensor>> Registry::Map(const std::string& hash) {
  absl::Status whole = CheckTensor(hash);
  if (!whole.ok()) return whole;
  int64_t bytes = 0;
  std::optional<TensorStore::Range> range;
  {
    MutexLock lock(mu_);
    const auto it = tensor_entries_.find(hash);
    if (it == tensor_entries_.end() || !it->second.held) {
      return absl::FailedPreconditionError(
          absl::StrCat("tensor ", absl::BytesToHexString(hash), " is not held"));
    }
    bytes = it->second.bytes;
    range = it->second.range;
  }
  return tensors_->Map(hash, bytes, range);
}

absl::Status Registry::Verify(const ModelVersion& version, Stop stop) {
  RETURN_IF_ERROR(version.unusable());
  absl::Status first;
  for (const std::string& hash : version.parameter_hashes()) {
    const absl::Status status = CheckTensor(hash, stop);
    if (absl::IsCancelled(status)) return status;
    if (status.ok() || !first.ok()) continue;
    first = absl::IsFailedPrecondition(status) ? DamageOf(version, hash, status.message()) : status;
  }
  SaveVerified();
  return first;
}

int64_t Registry::UnverifiedBytes(const ModelVersion& version) const {
  int64_t bytes = 0;
  for (const TensorRow& tensor : version.row().tensors) {
    const absl::StatusOr<Found> found = FindTensor(tensor.hash);
    if (found.ok() && !IsUnchanged(found->location, found->verified)) bytes += tensor.bytes;
  }
  return bytes;
}

absl::Status Registry::CheckTensor(const std::string& hash, Stop stop) {
  ASSIGN_OR_RETURN(const Found found, FindTensor(hash));
  if (IsUnchanged(found.location, found.verified)) return absl::OkStatus();
  {
    MutexLock lock(mu_);
    while (checking_.contains(hash)) checked_.Wait(lock);
    checking_.insert(hash);
  }
  absl::Cleanup done = [&] {
    MutexLock lock(mu_);
    checking_.erase(hash);
    checked_.NotifyAll();
  };
  return HashTensor(hash, stop);
}

absl::Status Registry::HashTensor(const std::string& hash, Stop stop) {
  while (true) {
    ASSIGN_OR_RETURN(const Found found, FindTensor(hash));
    const TensorStore::Location& location = found.location;
    if (IsUnchanged(location, found.verified)) return absl::OkStatus();
    const absl::StatusOr<HashedFile> read = HashFile(location.path, location.range, stop);
    if (absl::IsCancelled(read.status()) || absl::IsResourceExhausted(read.status())) {
      return read.status();
    }
    if (read.ok() && read->hash == hash) {
      MutexLock lock(mu_);
      const auto it = tensor_entries_.find(hash);
      if (it == tensor_entries_.end()) return absl::OkStatus();
      it->second.verified = read->stamp;
      it->second.seal = read->seal;
      unsaved_.push_back({hash, read->stamp});
      return absl::OkStatus();
    }
    std::optional<FileStamp> stamp;
    std::string why(read.status().message());
    if (read.ok()) {
      stamp = read->stamp;
      const int64_t offset = location.range.offset;
      why = absl::StrCat("file ", location.path,
                         offset > 0 ? absl::StrCat(", from byte ", offset, " on,") : "",
                         " has SHA-256 ", absl::BytesToHexString(read->hash), ", expected ",
                         absl::BytesToHexString(hash));
    }
    SetDamaged(hash, found, stamp, why);
  }
}

absl::Status Registry::CheckHeld(const ModelVersion& version, const ServedPlan& plan) const {
  MutexLock lock(mu_);
  for (const std::string& hash : version.parameter_hashes()) {
    const auto it = tensor_entries_.find(hash);
    // A version that was deleted meanwhile may have no tensors.
    if (it == tensor_entries_.end() || it->second.held) continue;
    return DamageOf(version, hash, it->second.damage);
  }
  if (plan.withdrawals == version.withdrawals()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      version.Describe(), ": its weights were found damaged while the plan was loaded"));
}

void Registry::SetDamaged(const std::string& hash, const Found& found,
                          const std::optional<FileStamp>& stamp, const std::string& why) {
  std::set<std::string> names;
  for (const auto& version : Withdraw(hash, found, stamp, why)) names.insert(version->name());
  for (const std::string& name : names) TellServing(name);
}

Registry::Versions Registry::Withdraw(const std::string& hash, const Found& found,
                                      const std::optional<FileStamp>& stamp,
                                      const std::string& why) {
  // Holds the lock so that no file is put in its place meanwhile.
  MutexLock change(change_mu_);
  const TensorStore::Location& location = found.location;
  const absl::StatusOr<Found> now = FindTensor(hash);
  if (!now.ok() || now->location.path != location.path || now->verified != found.verified) {
    return {};
  }
  if (stamp.has_value() && !IsUnchanged(location, stamp)) return {};
  std::string damage = why;
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(location.path, error))) {
    const absl::StatusOr<std::string> aside = tensors_->Quarantine(location);
    absl::StrAppend(&damage, aside.ok() ? absl::StrCat("; what it held is ", *aside)
                                        : absl::StrCat("; ", aside.status().message()));
  }
  tensors_->Forget(hash);
  Versions versions;
  {
    MutexLock lock(mu_);
    const auto it = tensor_entries_.find(hash);
    if (it == tensor_entries_.end()) return {};
    it->second.held = false;
    it->second.damage = damage;
    it->second.verified.reset();
    versions = VersionsWith(hash);
  }
  LogError(
      "stored weights are damaged",
      {{"tensor", absl::BytesToHexString(hash)}, {"why", damage}, {"versions", versions.size()}});
  for (const auto& version : versions) version->Withdraw(DamageOf(*version, hash, damage));
  return versions;
}

Registry::Versions Registry::VersionsWith(const std::string& hash) const {
  Versions versions;
  for (const auto& [name, entry] : names_) {
    for (const auto& [number, version] : entry.versions) {
      const std::vector<TensorRow>& tensors = version->row().tensors;
      const bool has = std::any_of(tensors.begin(), tensors.end(),
                                   [&](const TensorRow& tensor) { return tensor.hash == hash; });
      if (has) versions.push_back(version);
    }
  }
  return versions;
}

void Registry::SaveVerified() {
  std::vector<VerifiedRow> rows;
  std::vector<TensorRow> seals;  // found by the same passes
  {
    MutexLock lock(mu_);
    rows.swap(unsaved_);
    for (const VerifiedRow& row : rows) {
      const auto entry = tensor_entries_.find(row.hash);
      if (entry == tensor_entries_.end()) continue;
      seals.push_back({.hash = row.hash, .seal = entry->second.seal});
    }
  }
  if (rows.empty()) return;
  absl::Status s = db_->SetVerified(rows);
  s.Update(db_->SetSeals(seals));
  if (!s.ok()) {
    LogWarn("weights that were verified will be verified again at the next start",
            {{"error", s.message()}});
  }
}

void Registry::Reference(const VersionRow& row, std::vector<NewTensor>& tensors) {
  MutexLock lock(mu_);
  for (const TensorRow& tensor : row.tensors) {
    TensorEntry& entry = tensor_entries_[tensor.hash];
    entry.bytes = tensor.bytes;
    ++entry.references;
  }
  for (NewTensor& tensor : tensors) {
    TensorEntry& entry = tensor_entries_[tensor.hash];
    // Another upload of the same tensor may have brought a reservation already.
    if (entry.reservation.bytes() == 0) entry.reservation = std::move(tensor.reservation);
    if (tensor.blob != nullptr) ++blobs_[tensor.blob->name()];
    if (!tensor.seal.empty()) entry.seal = std::move(tensor.seal);
    if (tensor.magnitude.has_value()) {
      entry.magnitudes[tensor.magnitude->first] = tensor.magnitude->second;
    }
  }
}

void Registry::Hold(const NewTensor& published) {
  TensorEntry& entry = tensor_entries_[published.hash];
  // If another upload has published it meanwhile, its location stays.
  if (!entry.held) {
    const std::optional<TensorStore::Range> before = std::exchange(entry.range, std::nullopt);
    if (published.blob != nullptr) {
      entry.range = TensorStore::Range{published.blob->name(), published.offset};
      ++blobs_[entry.range->blob];
    }
    if (before.has_value()) UnreferenceBlob(before->blob);
    entry.held = true;
    entry.damage.clear();
    tensors_->Forget(published.hash);  // a plan may still map the damaged file
  }
  const absl::StatusOr<FileStamp> stamp =
      StampOf(tensors_->Locate(published.hash, entry.bytes, entry.range).path);
  const bool here = entry.range.has_value() == (published.blob != nullptr);
  if (stamp.ok() && here) entry.verified = *stamp;
}

absl::Status Registry::PublishTensors(absl::Span<const NewTensor> tensors, Versions* healed) {
  std::vector<TensorWriter*> writers;
  std::vector<SpooledFile*> blobs;
  for (const NewTensor& tensor : tensors) {
    if (tensor.writer != nullptr) {
      writers.push_back(tensor.writer);
    } else if (std::find(blobs.begin(), blobs.end(), tensor.blob) == blobs.end()) {
      blobs.push_back(tensor.blob);
    }
  }
  // Handles one upload at a time, so that a directory made by another upload is durable before this
  // one relies on it.
  MutexLock change(change_mu_);
  RETURN_IF_ERROR(tensors_->Publish(writers));
  RETURN_IF_ERROR(tensors_->PublishBlobs(blobs));
  // Stores the places before Hold removes the old files: a start then finds the tensors however
  // this process ends.
  RETURN_IF_ERROR(StorePlaces(tensors));
  MutexLock lock(mu_);
  absl::flat_hash_set<std::string> again;  // tensors that were damaged
  for (const NewTensor& tensor : tensors) {
    if (!tensor_entries_[tensor.hash].damage.empty()) again.insert(tensor.hash);
    Hold(tensor);
  }
  if (again.empty()) return absl::OkStatus();
  for (const auto& [name, entry] : names_) {
    for (const auto& [number, version] : entry.versions) {
      bool all = true, any = false;
      for (const TensorRow& tensor : version->row().tensors) {
        any |= again.contains(tensor.hash);
        all &= Holds(tensor.hash);
      }
      if (any && all) healed->push_back(version);
    }
  }
  return absl::OkStatus();
}

absl::Status Registry::StorePlaces(absl::Span<const NewTensor> tensors) {
  std::vector<TensorRow> rows;
  {
    MutexLock lock(mu_);
    for (const NewTensor& tensor : tensors) {
      const TensorEntry& entry = tensor_entries_[tensor.hash];
      if (entry.held || entry.damage.empty()) continue;
      TensorRow& row = rows.emplace_back(TensorRow{tensor.hash, entry.bytes});
      if (tensor.blob == nullptr) continue;
      row.blob = tensor.blob->name();
      row.blob_offset = tensor.offset;
    }
  }
  return rows.empty() ? absl::OkStatus() : db_->SetPlaces(rows);
}

absl::Status Registry::Place(absl::Span<const NewTensor> tensors, Versions* healed) {
  const absl::Status status = PublishTensors(tensors, healed);
  MutexLock lock(mu_);
  for (const NewTensor& tensor : tensors) {
    if (tensor.blob != nullptr) UnreferenceBlob(tensor.blob->name());
  }
  return status;
}

void Registry::FillPlaces(VersionRow* row) {
  MutexLock lock(mu_);
  for (TensorRow& tensor : row->tensors) {
    const TensorEntry& entry = tensor_entries_[tensor.hash];
    if (entry.verified.has_value()) row->verified.push_back({tensor.hash, *entry.verified});
    if (!entry.range.has_value()) continue;
    tensor.blob = entry.range->blob;
    tensor.blob_offset = entry.range->offset;
  }
}

void Registry::SetHealedHook(HealedHook hook) {
  MutexLock lock(hook_mu_);
  healed_hook_ = std::move(hook);
}

void Registry::TellHealed(const Versions& healed) {
  HealedHook hook;
  {
    MutexLock lock(hook_mu_);
    hook = healed_hook_;
  }
  for (const auto& version : healed) {
    LogInfo("a damaged model has all its weights again",
            {{"model", version->name()}, {"version", version->version()}});
    if (hook) hook(version);
  }
}

}  // namespace athanor
