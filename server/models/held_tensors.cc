#include "server/models/held_tensors.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"

namespace athanor {
namespace {

bool IsUnchanged(const TensorStore::Location& location, const std::optional<FileStamp>& verified) {
  if (!verified.has_value()) return false;
  const absl::StatusOr<FileStamp> now = StampOf(location.path);
  return now.ok() && *now == *verified;
}

}  // namespace

absl::Status HeldTensors::TakeStored(const VersionRow& row) {
  absl::Status status;
  MutexLock lock(mu_);
  for (const TensorRow& tensor : row.tensors) {
    Entry& entry = entries_[tensor.hash];
    // A damaged row keeps its files in place, but does not change the entries of tensors that
    // others have.
    if (row.damage.empty() || entry.references == 0) entry.bytes = tensor.bytes;
    entry.held = true;
    if (entry.references++ > 0) continue;
    entry.facts->SetSeal(tensor.seal);
    if (!tensor.blob.empty()) {
      entry.range = TensorStore::Range{tensor.blob, tensor.blob_offset};
      ++blobs_[tensor.blob];
    }
    auto reservation =
        ledger_.Reserve(HeldKind::kParameters, std::max<int64_t>(0, tensor.bytes),
                        absl::StrCat("tensor ", absl::BytesToHexString(tensor.hash)));
    if (reservation.ok()) {
      entry.reservation = *std::move(reservation);
    } else {
      status = reservation.status();
    }
  }
  return status;
}

void HeldTensors::SortFiles(bool fresh) {
  TensorStore::Named named;
  MutexLock lock(mu_);
  for (const auto& [hash, entry] : entries_) {
    if (!entry.range.has_value()) named.tensors.insert(hash);
  }
  for (const auto& [blob, tensors] : blobs_) named.blobs.insert(blob);
  if (const int64_t taken = store_->TakeBack(named); taken > 0) {
    LogInfo("weights that had been put aside were taken back", {{"files", taken}});
  }
  const TensorStore::Aside aside = store_->PutAside(named);
  if (!aside.status.ok()) {
    LogWarn("weights that no model names could not be put aside; they stay where they are",
            {{"error", aside.status.message()}});
  }
  if (aside.folder.empty()) return;
  const std::string how = absl::StrCat(
      "to have them back: stop the server, put the registry.db back that names them, without "
      "registry.db-wal and registry.db-shm, and start; or upload the models again; to be rid of "
      "them: rm -r ",
      aside.folder);
  LogWarn(fresh ? "registry.db is missing or empty, but there are weights: they were put aside"
                : "weights that no model in registry.db names were put aside",
          {{"state_dir", options_.state_dir},
           {"files", aside.files},
           {"bytes", aside.bytes},
           {"folder", aside.folder},
           {"how_to_go_on", how}});
}

void HeldTensors::TakeVerified(const std::vector<VerifiedRow>& rows) {
  MutexLock lock(mu_);
  for (const VerifiedRow& row : rows) {
    const auto entry = entries_.find(row.hash);
    if (entry != entries_.end()) entry->second.verified = row.stamp;
  }
}

int64_t HeldTensors::Bytes(const std::string& hash) const {
  MutexLock lock(mu_);
  return Holds(hash) ? entries_.find(hash)->second.bytes : -1;
}

std::optional<std::string> HeldTensors::Damage(const std::string& hash) const {
  MutexLock lock(mu_);
  const auto it = entries_.find(hash);
  // A version that was deleted meanwhile may have no tensors.
  if (it == entries_.end() || it->second.held) return std::nullopt;
  return it->second.damage;
}

std::shared_ptr<TensorFacts> HeldTensors::Facts(const std::string& hash) const {
  MutexLock lock(mu_);
  const auto it = entries_.find(hash);
  return it == entries_.end() ? std::make_shared<TensorFacts>() : it->second.facts;
}

absl::StatusOr<HeldTensors::Pins> HeldTensors::Pin(absl::Span<const std::string> hashes) {
  // A tensor found damaged counts as missing, so a client can send it again.
  for (const std::string& hash : hashes) Check(hash).IgnoreError();
  SaveVerified();
  MutexLock lock(mu_);
  for (const std::string& hash : hashes) {
    if (!Holds(hash)) return NeitherSentNorProved(hash);
  }
  for (const std::string& hash : hashes) ++entries_[hash].references;
  return Pins(this, hashes);
}

void HeldTensors::Unpin(absl::Span<const std::string> hashes) {
  MutexLock lock(mu_);
  for (const std::string& hash : hashes) Unreference(hash);
}

void HeldTensors::Unreference(const std::string& hash) {
  auto it = entries_.find(hash);
  if (it == entries_.end() || --it->second.references > 0) return;
  const std::optional<TensorStore::Range> range = std::move(it->second.range);
  entries_.erase(it);
  store_->Remove(hash);
  if (range.has_value()) UnreferenceBlob(range->blob);
}

void HeldTensors::UnreferenceBlob(const std::string& blob) {
  if (--blobs_[blob] > 0) return;
  blobs_.erase(blob);
  store_->RemoveBlob(blob);
}

absl::Status HeldTensors::NeitherSentNorProved(const std::string& hash) {
  return absl::FailedPreconditionError(absl::StrCat(
      "tensor ", absl::BytesToHexString(hash),
      ": the upload has neither its bytes nor a proof that the sender has them (or the server does "
      "not hold it); send its bytes, or prove it with a new nonce of MissingTensors"));
}

bool HeldTensors::Proves(const std::string& nonce, const std::string& hash,
                         const std::string& proof) {
  std::string seal = Bytes(hash) < 0 ? "" : Facts(hash)->seal();
  const bool known = !seal.empty();
  seal.resize(kSha256Bytes);
  const std::string right = PossessionProof(nonce, hash, seal);
  // Compares in constant time, so that timing does not reveal how many bytes are equal.
  return proof.size() == right.size() &&
         CRYPTO_memcmp(proof.data(), right.data(), right.size()) == 0 && known && Check(hash).ok();
}

absl::StatusOr<HeldTensors::Found> HeldTensors::Find(const std::string& hash) const {
  MutexLock lock(mu_);
  const auto it = entries_.find(hash);
  if (it == entries_.end() || !it->second.held) {
    const bool damaged = it != entries_.end() && !it->second.damage.empty();
    return absl::FailedPreconditionError(
        damaged ? it->second.damage
                : absl::StrCat("tensor ", absl::BytesToHexString(hash), " is not held"));
  }
  const Entry& entry = it->second;
  return Found{entry.bytes, entry.range, store_->Locate(hash, entry.bytes, entry.range),
               entry.verified};
}

absl::StatusOr<std::shared_ptr<const MappedTensor>> HeldTensors::Map(const std::string& hash) {
  RETURN_IF_ERROR(Check(hash));
  ASSIGN_OR_RETURN(const Found found, Find(hash));
  return store_->Map(hash, found.bytes, found.range);
}

int64_t HeldTensors::UnverifiedBytes(absl::Span<const TensorRow> tensors) const {
  int64_t bytes = 0;
  for (const TensorRow& tensor : tensors) {
    const absl::StatusOr<Found> found = Find(tensor.hash);
    if (found.ok() && !IsUnchanged(found->location, found->verified)) bytes += tensor.bytes;
  }
  return bytes;
}

absl::Status HeldTensors::Check(const std::string& hash, Stop stop) {
  ASSIGN_OR_RETURN(const Found found, Find(hash));
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
  return Hash(hash, stop);
}

absl::Status HeldTensors::Hash(const std::string& hash, Stop stop) {
  while (true) {
    ASSIGN_OR_RETURN(const Found found, Find(hash));
    const TensorStore::Location& location = found.location;
    if (IsUnchanged(location, found.verified)) return absl::OkStatus();
    const absl::StatusOr<HashedFile> read = HashFile(location.path, location.range, stop);
    if (absl::IsCancelled(read.status()) || absl::IsResourceExhausted(read.status())) {
      return read.status();
    }
    if (read.ok() && read->hash == hash) {
      MutexLock lock(mu_);
      const auto it = entries_.find(hash);
      if (it == entries_.end()) return absl::OkStatus();
      it->second.verified = read->stamp;
      it->second.facts->SetSeal(read->seal);
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

void HeldTensors::SetDamaged(const std::string& hash, const Found& found,
                             const std::optional<FileStamp>& stamp, const std::string& why) {
  // Holds the lock so that no file is put in its place meanwhile.
  MutexLock change(change_mu_);
  const TensorStore::Location& location = found.location;
  const absl::StatusOr<Found> now = Find(hash);
  if (!now.ok() || now->location.path != location.path || now->verified != found.verified) return;
  if (stamp.has_value() && !IsUnchanged(location, stamp)) return;
  std::string damage = why;
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(location.path, error))) {
    const absl::StatusOr<std::string> aside = store_->Quarantine(location);
    absl::StrAppend(&damage, aside.ok() ? absl::StrCat("; what it held is ", *aside)
                                        : absl::StrCat("; ", aside.status().message()));
  }
  store_->Forget(hash);
  {
    MutexLock lock(mu_);
    const auto it = entries_.find(hash);
    if (it == entries_.end()) return;
    it->second.held = false;
    it->second.damage = damage;
    it->second.verified.reset();
  }
  on_damage_(hash, damage);
}

void HeldTensors::SaveVerified() {
  std::vector<VerifiedRow> rows;
  std::vector<TensorRow> seals;  // found by the same passes
  {
    MutexLock lock(mu_);
    rows.swap(unsaved_);
    for (const VerifiedRow& row : rows) {
      const auto entry = entries_.find(row.hash);
      if (entry == entries_.end()) continue;
      seals.push_back({.hash = row.hash, .seal = entry->second.facts->seal()});
    }
  }
  if (rows.empty()) return;
  absl::Status s = rows_.SetVerified(rows);
  s.Update(rows_.SetSeals(seals));
  if (!s.ok()) {
    LogWarn("weights that were verified will be verified again at the next start",
            {{"error", s.message()}});
  }
}

void HeldTensors::Reference(const VersionRow& row, absl::Span<NewTensor> tensors) {
  MutexLock lock(mu_);
  for (const TensorRow& tensor : row.tensors) {
    Entry& entry = entries_[tensor.hash];
    entry.bytes = tensor.bytes;
    ++entry.references;
  }
  for (NewTensor& tensor : tensors) {
    Entry& entry = entries_[tensor.hash];
    // Another upload of the same tensor may have brought a reservation already.
    if (entry.reservation.bytes() == 0) entry.reservation = std::move(tensor.reservation);
    if (tensor.blob != nullptr) ++blobs_[tensor.blob->name()];
    if (!tensor.seal.empty()) entry.facts->SetSeal(tensor.seal);
    if (tensor.magnitude.has_value()) {
      entry.facts->SetMagnitude(tensor.magnitude->first, tensor.magnitude->second);
    }
  }
}

void HeldTensors::Hold(const NewTensor& published) {
  Entry& entry = entries_[published.hash];
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
    store_->Forget(published.hash);  // a plan may still map the damaged file
  }
  const absl::StatusOr<FileStamp> stamp =
      StampOf(store_->Locate(published.hash, entry.bytes, entry.range).path);
  const bool here = entry.range.has_value() == (published.blob != nullptr);
  if (stamp.ok() && here) entry.verified = *stamp;
}

absl::Status HeldTensors::Publish(absl::Span<const NewTensor> tensors,
                                  absl::FunctionRef<void(const Hashes& hashes)> healed) {
  absl::Cleanup done = [&] {
    MutexLock lock(mu_);
    for (const NewTensor& tensor : tensors) {
      if (tensor.blob != nullptr) UnreferenceBlob(tensor.blob->name());
    }
  };
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
  RETURN_IF_ERROR(store_->Publish(writers));
  RETURN_IF_ERROR(store_->PublishBlobs(blobs));
  // Stores the places before Hold removes the old files: a start then finds the tensors however
  // this process ends.
  RETURN_IF_ERROR(StorePlaces(tensors));
  Hashes again;
  {
    MutexLock lock(mu_);
    for (const NewTensor& tensor : tensors) {
      if (!entries_[tensor.hash].damage.empty()) again.insert(tensor.hash);
      Hold(tensor);
    }
  }
  if (!again.empty()) healed(again);
  return absl::OkStatus();
}

absl::Status HeldTensors::StorePlaces(absl::Span<const NewTensor> tensors) {
  std::vector<TensorRow> rows;
  {
    MutexLock lock(mu_);
    for (const NewTensor& tensor : tensors) {
      const Entry& entry = entries_[tensor.hash];
      if (entry.held || entry.damage.empty()) continue;
      TensorRow& row = rows.emplace_back(TensorRow{tensor.hash, entry.bytes});
      if (tensor.blob == nullptr) continue;
      row.blob = tensor.blob->name();
      row.blob_offset = tensor.offset;
    }
  }
  return rows.empty() ? absl::OkStatus() : rows_.SetPlaces(rows);
}

absl::Status HeldTensors::Store(VersionRow* row, absl::FunctionRef<absl::Status()> store) {
  MutexLock change(change_mu_);
  {
    MutexLock lock(mu_);
    for (TensorRow& tensor : row->tensors) {
      const Entry& entry = entries_[tensor.hash];
      if (entry.verified.has_value()) row->verified.push_back({tensor.hash, *entry.verified});
      if (!entry.range.has_value()) continue;
      tensor.blob = entry.range->blob;
      tensor.blob_offset = entry.range->offset;
    }
  }
  return store();
}

}  // namespace athanor
