#include "server/models/registry.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/models/version_batching.h"

namespace athanor {
namespace {

int64_t NowMicroseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

absl::StatusOr<int64_t> ParseVersion(absl::string_view text) {
  int64_t version = 0;
  // Accepts one spelling only: SimpleAtoi also parses " 1" and "01".
  if (!absl::SimpleAtoi(text, &version) || version < 1 || absl::StrCat(version) != text) {
    return absl::InvalidArgumentError(absl::StrCat("version ", Quoted(std::string(text)),
                                                   ": versions are \"1\", \"2\", ..., or empty"));
  }
  return version;
}

absl::StatusOr<std::shared_ptr<ModelVersion>> ModelFromRow(const VersionRow& row,
                                                           const ServerOptions& options) {
  GraphLimits limits;  // stored graphs stay valid whatever the flags say now
  limits.max_nodes = limits.max_tensor_bytes = std::numeric_limits<int64_t>::max();
  ASSIGN_OR_RETURN(ImportedGraph graph, ImportGraph(row.graph, limits));
  return ModelVersion::Create(row, std::move(graph), BatchLimitsOf(options));
}

}  // namespace

Registry::Pins::~Pins() {
  if (registry_ != nullptr) registry_->Unpin(hashes_);
}

absl::StatusOr<std::unique_ptr<Registry>> Registry::Open(const ServerOptions& options,
                                                         ServerLedger* ledger, Metrics* metrics,
                                                         Disk* disk) {
  std::unique_ptr<Registry> registry(new Registry(options, ledger, metrics));
  ASSIGN_OR_RETURN(registry->tensors_, TensorStore::Open(options.state_dir, disk));
  ASSIGN_OR_RETURN(registry->db_, RegistryDb::Open(options.state_dir + "/registry.db"));
  RETURN_IF_ERROR(registry->Load());
  return registry;
}

absl::Status Registry::Load() {
  ASSIGN_OR_RETURN(auto names, db_->ReadNames());
  ASSIGN_OR_RETURN(auto rows, db_->ReadVersions());
  ASSIGN_OR_RETURN(auto verified, db_->ReadVerified());
  LoadVersions(std::move(names), std::move(rows));
  if (!options_.verify_weights) {
    MutexLock lock(mu_);
    for (const VerifiedRow& row : verified) {
      const auto entry = tensor_entries_.find(row.hash);
      if (entry != tensor_entries_.end()) entry->second.verified = row.stamp;
    }
  }
  RETURN_IF_ERROR(LoadSeals());
  return LoadMagnitudes();
}

void Registry::LoadVersions(std::vector<NameRow> names, std::vector<VersionRow> rows) {
  MutexLock lock(mu_);
  const bool fresh = names.empty();  // a name stays when its versions are deleted
  for (NameRow& name : names) {
    const std::string key = name.name;
    names_[key].row = std::move(name);
  }
  for (VersionRow& row : rows) LoadVersion(std::move(row));
  std::erase_if(names_, [](const auto& entry) { return entry.second.versions.empty(); });
  SortFiles(fresh);
  LogInfo("registry opened", {{"state_dir", options_.state_dir},
                              {"versions", versions_},
                              {"tensors", tensor_entries_.size()}});
}

void Registry::SortFiles(bool fresh) {
  TensorStore::Named named;
  for (const auto& [hash, entry] : tensor_entries_) {
    if (!entry.range.has_value()) named.tensors.insert(hash);
  }
  for (const auto& [blob, tensors] : blobs_) named.blobs.insert(blob);
  if (const int64_t taken = tensors_->TakeBack(named); taken > 0) {
    LogInfo("weights that had been put aside were taken back", {{"files", taken}});
  }
  const TensorStore::Aside aside = tensors_->PutAside(named);
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

void Registry::LoadVersion(VersionRow row) {
  absl::Status status;
  for (const TensorRow& tensor : row.tensors) {
    TensorEntry& entry = tensor_entries_[tensor.hash];
    // A damaged row keeps its files in place, but does not change the entries of tensors that
    // others have.
    if (row.damage.empty() || entry.references == 0) entry.bytes = tensor.bytes;
    entry.held = true;
    if (entry.references++ > 0) continue;
    entry.seal = tensor.seal;
    if (!tensor.blob.empty()) {
      entry.range = TensorStore::Range{tensor.blob, tensor.blob_offset};
      ++blobs_[tensor.blob];
    }
    auto reservation =
        ledger_->Reserve(HeldKind::kParameters, std::max<int64_t>(0, tensor.bytes),
                         absl::StrCat("tensor ", absl::BytesToHexString(tensor.hash)));
    if (reservation.ok()) {
      entry.reservation = *std::move(reservation);
    } else {
      status = reservation.status();
    }
  }
  row.deterministic |= options_.deterministic;
  const std::string name = row.name;
  const int64_t number = row.version;
  absl::StatusOr<std::shared_ptr<ModelVersion>> version =
      row.damage.empty() ? ModelFromRow(row, options_)
                         : absl::FailedPreconditionError(
                               absl::StrCat("model ", Quoted(name), ", version ", number,
                                            ", is damaged and not served: ", row.damage,
                                            "; upload the model again, and delete this version"));
  if (!version.ok()) {
    // The version is still listed, so that it can be inspected and deleted.
    status = version.status();
    version = ModelVersion::Create(std::move(row), ImportedGraph{});
    if (version.ok()) (*version)->SetUnusable(status);
  }
  if (!status.ok()) {
    LogError("stored model cannot be used",
             {{"model", name}, {"version", number}, {"error", status.message()}});
    if (version.ok()) (*version)->serving().Fail(status);
  }
  if (!version.ok()) return;
  (*version)->SetMetrics(metrics_.ForVersion(name, number));
  LogBatching(**version);
  names_[name].versions[number] = *std::move(version);
  ++versions_;
}

absl::StatusOr<std::shared_ptr<ModelVersion>> Registry::FindLocked(
    absl::string_view name, absl::string_view version) const {
  auto it = names_.find(std::string_view(name.data(), name.size()));
  if (it == names_.end() || it->second.versions.empty()) {
    return absl::NotFoundError(absl::StrCat("model ", Quoted(std::string(name)),
                                            " does not exist; ListModels shows those that do"));
  }
  const Name& found = it->second;
  if (version.empty()) {
    auto serving = found.versions.find(found.row.serving);
    return serving != found.versions.end() ? serving->second : found.versions.rbegin()->second;
  }
  ASSIGN_OR_RETURN(int64_t number, ParseVersion(version));
  auto chosen = found.versions.find(number);
  if (chosen != found.versions.end()) return chosen->second;
  return absl::NotFoundError(absl::StrCat("model ", Quoted(std::string(name)), " has no version ",
                                          number, "; the newest is ",
                                          found.versions.rbegin()->first));
}

absl::StatusOr<std::shared_ptr<ModelVersion>> Registry::Find(absl::string_view name,
                                                             absl::string_view version) const {
  MutexLock lock(mu_);
  return FindLocked(name, version);
}

std::vector<std::shared_ptr<ModelVersion>> Registry::List(absl::string_view name) const {
  std::vector<std::shared_ptr<ModelVersion>> found;
  MutexLock lock(mu_);
  for (const auto& [key, entry] : names_) {
    if (!name.empty() && name != absl::string_view(key)) continue;
    for (auto it = entry.versions.rbegin(); it != entry.versions.rend(); ++it) {
      found.push_back(it->second);
    }
  }
  return found;
}

bool Registry::Serves(const ModelVersion& version) const {
  MutexLock lock(mu_);
  auto it = names_.find(version.name());
  return it != names_.end() && it->second.row.serving == version.version();
}

bool Registry::Holds(const std::string& hash) const {
  auto it = tensor_entries_.find(hash);
  return it != tensor_entries_.end() && it->second.held;
}

int64_t Registry::TensorBytes(const std::string& hash) const {
  MutexLock lock(mu_);
  return Holds(hash) ? tensor_entries_.find(hash)->second.bytes : -1;
}

absl::StatusOr<Registry::Pins> Registry::Pin(absl::Span<const std::string> hashes) {
  // A tensor found damaged counts as missing, so a client can send it again.
  for (const std::string& hash : hashes) CheckTensor(hash).IgnoreError();
  SaveVerified();
  Pins pins;
  MutexLock lock(mu_);
  for (const std::string& hash : hashes) {
    if (!Holds(hash)) return NeitherSentNorProved(hash);
  }
  for (const std::string& hash : hashes) ++tensor_entries_[hash].references;
  pins.registry_ = this;
  pins.hashes_.assign(hashes.begin(), hashes.end());
  return pins;
}

void Registry::Unreference(const std::string& hash) {
  auto it = tensor_entries_.find(hash);
  if (it == tensor_entries_.end() || --it->second.references > 0) return;
  const std::optional<TensorStore::Range> range = std::move(it->second.range);
  tensor_entries_.erase(it);
  tensors_->Remove(hash);
  if (range.has_value()) UnreferenceBlob(range->blob);
}

void Registry::UnreferenceBlob(const std::string& blob) {
  if (--blobs_[blob] > 0) return;
  blobs_.erase(blob);
  tensors_->RemoveBlob(blob);
}

void Registry::Unpin(absl::Span<const std::string> hashes) {
  MutexLock lock(mu_);
  for (const std::string& hash : hashes) Unreference(hash);
}

absl::Status Registry::CheckRoom(const std::string& name) {
  MutexLock lock(mu_);
  if (versions_ < options_.max_models) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("model ", Quoted(name), ": ", versions_,
                   " model versions are kept already, the most allowed (--max_models); delete "
                   "some"));
}

absl::Status Registry::Store(VersionRow* row) {
  {
    MutexLock lock(mu_);
    auto it = names_.find(row->name);
    row->version = it == names_.end() ? 0 : it->second.row.next_version;
  }
  if (row->version == 0) {
    ASSIGN_OR_RETURN(row->version, db_->NextVersion(row->name));
  }
  row->created_us = NowMicroseconds();
  return db_->AddVersion(*row);
}

absl::Status Registry::Add(VersionRow row, const std::shared_ptr<ModelVersion>& version,
                           std::vector<NewTensor> tensors) {
  RETURN_IF_ERROR(CheckRoom(row.name));
  Reference(row, tensors);
  Versions healed;
  absl::Status s = Place(tensors, &healed);
  absl::Cleanup tell = [&] { TellHealed(healed); };
  // Referenced tensors cannot be removed, so other changes need not wait while contents are read.
  if (s.ok()) row.magnitudes = FindMagnitudes(version.get());
  if (s.ok()) FindSeals(&row.tensors);
  {
    MutexLock change(change_mu_);
    if (s.ok()) s = CheckRoom(row.name);
    FillPlaces(&row);
    if (s.ok()) s = Store(&row);
    if (!s.ok()) {
      std::vector<std::string> hashes;
      for (const TensorRow& tensor : row.tensors) hashes.push_back(tensor.hash);
      Unpin(hashes);
      return s;
    }
    version->SetStored(row);
    version->SetMetrics(metrics_.ForVersion(version->name(), version->version()));
    MutexLock lock(mu_);
    Name& name = names_[version->name()];
    name.row.name = version->name();
    name.row.next_version = version->version() + 1;
    name.versions[version->version()] = version;
    ++versions_;
  }
  TellServing(version->name());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::shared_ptr<ModelVersion>>> Registry::Delete(
    const std::string& name, const std::string& version) {
  std::vector<std::shared_ptr<ModelVersion>> deleted;
  {
    MutexLock change(change_mu_);
    std::vector<int64_t> numbers;
    {
      MutexLock lock(mu_);
      ASSIGN_OR_RETURN(auto found, FindLocked(name, version));
      for (const auto& [number, entry] : names_[name].versions) {
        if (!version.empty() && entry != found) continue;
        numbers.push_back(number);
        deleted.push_back(entry);
      }
    }
    RETURN_IF_ERROR(db_->DeleteVersions(name, numbers));
    Forget(name, deleted);
  }
  for (const auto& gone : deleted) gone->SetDeleted();
  TellServing(name);
  return deleted;
}

void Registry::Forget(const std::string& name,
                      absl::Span<const std::shared_ptr<ModelVersion>> gone) {
  std::optional<NameRow> successor;
  {
    MutexLock lock(mu_);
    Name& entry = names_[name];
    for (const auto& version : gone) {
      entry.versions.erase(version->version());
      --versions_;
      for (const TensorRow& tensor : version->row().tensors) Unreference(tensor.hash);
    }
    if (entry.versions.empty()) {
      names_.erase(name);  // the next version's number is in the database
      return;
    }
    if (entry.row.serving == 0 || entry.versions.contains(entry.row.serving)) return;
    entry.row.serving = 0;
    for (const auto& [number, version] : entry.versions) {
      if (version->plan() != nullptr) entry.row.serving = number;
    }
    if (entry.row.serving != 0) successor = entry.row;
  }
  if (!successor.has_value()) return;
  if (absl::Status s = db_->SetServing(*successor); !s.ok()) {
    LogError("which version serves could not be stored", {{"model", name}, {"error", s.message()}});
  }
}

void Registry::SetServingHook(ServingHook hook) {
  MutexLock lock(hook_mu_);
  hook_ = std::move(hook);
}

void Registry::TellServing(const std::string& name) {
  MutexLock told(hook_mu_);
  if (hook_) hook_(name);
}

absl::Status Registry::SetBuckets(const ModelVersion& version, const BucketGrid::Ranges& buckets) {
  v1::UploadHeader stored;
  *stored.mutable_buckets() = buckets;
  MutexLock change(change_mu_);
  return db_->SetBuckets(version.name(), version.version(), stored.SerializeAsString());
}

absl::StatusOr<NameRow> Registry::ChooseRollback(const std::string& name,
                                                 const std::string& version) {
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(auto found, FindLocked(name, version));
  const Name& entry = names_[name];
  NameRow row = entry.row;
  row.rolled_back = entry.versions.rbegin()->first;
  if (!version.empty()) {
    if (found->plan() == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(found->Describe(), " has no plan that serves"));
    }
    row.serving = found->version();
    return row;
  }
  for (auto it = entry.versions.rbegin(); it != entry.versions.rend(); ++it) {
    if (it->first < entry.row.serving && it->second->plan() != nullptr) {
      row.serving = it->first;
      return row;
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "model ", Quoted(name), " has no earlier version that is ready",
      entry.row.serving == 0 ? "; none serves yet"
                             : absl::StrCat("; version ", entry.row.serving, " serves")));
}

absl::StatusOr<std::shared_ptr<ModelVersion>> Registry::Rollback(const std::string& name,
                                                                 const std::string& version) {
  MutexLock change(change_mu_);
  ASSIGN_OR_RETURN(NameRow row, ChooseRollback(name, version));
  RETURN_IF_ERROR(db_->SetServing(row));
  MutexLock lock(mu_);
  names_[name].row = row;
  return names_[name].versions[row.serving];
}

}  // namespace athanor
