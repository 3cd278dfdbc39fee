#include "server/models/registry.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/models/model_import.h"
#include "server/models/version_batching.h"

namespace athanor {
namespace {

int64_t NowMicroseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

absl::StatusOr<std::shared_ptr<ModelVersion>> ModelFromRow(const VersionRow& row,
                                                           const ServerOptions& options) {
  GraphLimits limits;  // stored graphs stay valid whatever the flags say now
  limits.max_nodes = limits.max_tensor_bytes = std::numeric_limits<int64_t>::max();
  ASSIGN_OR_RETURN(ImportedGraph graph,
                   ImportGraph(row.graph, limits, kMaxNesting, GraphMakerOf(row.format)));
  return ModelVersion::Create(row, std::move(graph), BatchLimitsOf(options));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Registry>> Registry::Open(const ServerOptions& options,
                                                         ServerLedger* ledger, Metrics* metrics,
                                                         Disk* disk) {
  ASSIGN_OR_RETURN(auto store, TensorStore::Open(options.state_dir, disk));
  ASSIGN_OR_RETURN(auto db, RegistryDb::Open(options.state_dir + "/registry.db"));
  std::unique_ptr<Registry> registry(
      new Registry(options, ledger, metrics, std::move(store), std::move(db)));
  RETURN_IF_ERROR(registry->Load());
  return registry;
}

Registry::Registry(const ServerOptions& options, ServerLedger* ledger, Metrics* metrics,
                   std::unique_ptr<TensorStore> store, std::unique_ptr<RegistryDb> db)
    : options_(options),
      ledger_(*ledger),
      metrics_(*metrics),
      db_(std::move(db)),
      language_models_(options, ledger, metrics),
      tensors_(options, ledger, &db_->tensors(), std::move(store),
               [this](const std::string& hash, const std::string& damage) {
                 publisher_.Withdraw(hash, damage);
               }),
      publisher_(db_.get(), &tensors_, &versions_) {}

absl::Status Registry::Load() {
  ASSIGN_OR_RETURN(auto names, db_->ReadNames());
  ASSIGN_OR_RETURN(auto rows, db_->ReadVersions());
  ASSIGN_OR_RETURN(auto verified, db_->tensors().ReadVerified());
  const bool fresh = names.empty();  // a name stays when its versions are deleted
  VersionList versions;
  for (VersionRow& row : rows) {
    if (auto version = LoadVersion(std::move(row))) versions.push_back(std::move(version));
  }
  versions_.Load(std::move(names), versions);
  tensors_.SortFiles(fresh);
  LogInfo("registry opened", {{"state_dir", options_.state_dir},
                              {"versions", versions.size()},
                              {"tensors", tensors_.count()}});
  if (!options_.verify_weights) tensors_.TakeVerified(verified);
  for (const auto& version : versions) {
    const bool hosted_here =
        LanguageModels::Generates(*version) || LanguageModels::Encodes(*version);
    if (!version->unusable().ok() || !hosted_here) continue;
    const absl::Status hosted = HostStored(version.get());
    if (hosted.ok()) continue;
    LogError(
        "stored language model cannot be used",
        {{"model", version->name()}, {"version", version->version()}, {"error", hosted.message()}});
    version->SetUnusable(hosted);
    version->serving().Fail(hosted);
  }
  LoadSeals(versions);
  return LoadMagnitudes();
}

absl::Status Registry::HostStored(ModelVersion* version) {
  std::vector<std::shared_ptr<const MappedTensor>> mapped;
  std::vector<TextFile> files;
  for (const FileRow& row : version->row().files) {
    absl::StatusOr<std::shared_ptr<const MappedTensor>> file = tensors_.Map(row.hash);
    if (!file.ok()) return version->Damaged(row.hash, file.status().message());
    files.push_back(
        {row.path,
         {static_cast<const char*>((*file)->data()), static_cast<size_t>((*file)->bytes())}});
    mapped.push_back(*std::move(file));
  }
  if (LanguageModels::Encodes(*version)) {
    auto encoder = LanguageModels::ReadEncoder(*version, files);
    if (!encoder.ok()) return Prefixed(Cat(version->Describe(), ": "), encoder.status());
    version->SetEncoder(*std::move(encoder));
    return absl::OkStatus();
  }
  absl::StatusOr<HostedModel> hosted = language_models_.Read(*version, files, 0);
  if (!hosted.ok()) return Prefixed(Cat(version->Describe(), ": "), hosted.status());
  language_models_.Open(*std::move(hosted), version);
  return absl::OkStatus();
}

std::shared_ptr<ModelVersion> Registry::LoadVersion(VersionRow row) {
  absl::Status status = tensors_.TakeStored(row);
  row.deterministic |= options_.deterministic;
  if (v1::Model notes; notes.ParseFromString(row.notes)) row.device = notes.device();
  if (row.device.empty()) row.device = DevicesOf(options_).front();
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
  if (!version.ok()) return nullptr;
  (*version)->SetMetrics(metrics_.ForVersion(name, number));
  LogBatching(**version);
  return *std::move(version);
}

void Registry::LoadSeals(const VersionList& versions) {
  // A database from before seals were stored has none: reads the tensors once.
  std::vector<TensorRow> rows;
  absl::flat_hash_set<std::string> seen;
  for (const auto& version : versions) {
    for (const TensorRow& tensor : version->row().tensors) {
      if (tensor.seal.empty() && seen.insert(tensor.hash).second) rows.push_back(tensor);
    }
  }
  if (rows.empty()) return;
  FindSeals(&rows);
  if (absl::Status s = db_->tensors().SetSeals(rows); !s.ok()) {
    LogError("seals of tensors could not be stored", {{"error", s.message()}});
  }
}

void Registry::FindSeals(std::vector<TensorRow>* rows) {
  for (TensorRow& row : *rows) {
    const auto seal = tensors_.Facts(row.hash)->FindSeal([&] { return tensors_.Map(row.hash); });
    if (seal.ok()) {
      row.seal = *seal;
    } else {
      LogError("whether clients have a tensor cannot be proved",
               {{"tensor", absl::BytesToHexString(row.hash)}, {"error", seal.status().message()}});
    }
  }
}

absl::Status Registry::LoadMagnitudes() {
  ASSIGN_OR_RETURN(const auto stored, db_->tensors().ReadMagnitudes());
  absl::flat_hash_set<std::pair<std::string, std::string>> known;
  for (const MagnitudeRow& row : stored) {
    const std::optional<DType> dtype = ParseDType(row.dtype);
    if (!dtype) continue;
    tensors_.Facts(row.hash)->SetMagnitude(*dtype, row.magnitude);
    known.emplace(row.hash, row.dtype);
  }
  // A database from before magnitudes were stored has none: reads the tensors once.
  std::vector<MagnitudeRow> found;
  for (const auto& version : versions_.List("")) {
    for (MagnitudeRow& row : FindMagnitudes(version.get())) {
      if (known.emplace(row.hash, row.dtype).second) found.push_back(std::move(row));
    }
  }
  if (found.empty()) return absl::OkStatus();
  if (absl::Status s = db_->tensors().AddMagnitudes(found); !s.ok()) {
    LogError("what is known of tensors could not be stored", {{"error", s.message()}});
  }
  return absl::OkStatus();
}

std::vector<MagnitudeRow> Registry::FindMagnitudes(ModelVersion* version) {
  const Graph& graph = version->graph();
  const std::vector<NodeId> ids = graph.ParameterIds();
  std::vector<std::optional<int>> magnitudes(ids.size());
  std::vector<MagnitudeRow> rows;
  for (size_t i = 0; i < ids.size(); ++i) {
    const DType dtype = graph.node(ids[i]).type.dtype;
    const std::string& hash = version->parameter_hashes()[i];
    if (!HasMagnitude(dtype)) continue;
    const absl::StatusOr<std::optional<int>> found =
        tensors_.Facts(hash)->FindMagnitude(dtype, [&] { return tensors_.Map(hash); });
    if (!found.ok()) {
      LogError("nothing is known of a tensor's contents",
               {{"model", version->name()}, {"error", found.status().message()}});
      continue;
    }
    magnitudes[i] = *found;
    rows.push_back({hash, std::string(DTypeName(dtype)), *found});
  }
  version->SetMagnitudes(magnitudes);
  return rows;
}

absl::Status Registry::Verify(const ModelVersion& version, HeldTensors::Stop stop) {
  RETURN_IF_ERROR(version.unusable());
  absl::Status first;
  for (const TensorRow& tensor : version.row().tensors) {
    const absl::Status status = tensors_.Check(tensor.hash, stop);
    if (absl::IsCancelled(status)) return status;
    if (status.ok() || !first.ok()) continue;
    first = absl::IsFailedPrecondition(status) ? version.Damaged(tensor.hash, status.message())
                                               : status;
  }
  tensors_.SaveVerified();
  return first;
}

absl::Status Registry::CheckUploaded(const std::string& name) const {
  // An empty name, which no model has, would list all.
  if (options_.model_repository.empty() || name.empty()) return absl::OkStatus();
  for (const auto& version : versions_.List(name)) {
    if (version->row().source.content.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("model ", Quoted(name),
                     " is one of --model_repository: change its folder there, which is how it is "
                     "loaded and unloaded"));
  }
  return absl::OkStatus();
}

absl::Status Registry::CheckRoom(const VersionRow& row) const {
  const bool uploaded = row.source.content.empty();
  if (uploaded) RETURN_IF_ERROR(CheckUploaded(row.name));
  for (const auto& other : versions_.List(row.name)) {
    if (uploaded) break;
    if (other->row().source.content.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("model ", Quoted(row.name),
                       " was uploaded, so that the repository's of this name is not loaded; delete "
                       "it, or rename the folder"));
    }
    if (other->version() == row.version) return absl::OkStatus();  // which makes room
  }
  const int64_t versions = versions_.count();
  if (versions < options_.max_models) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("model ", Quoted(row.name), ": ", versions,
                   " model versions are kept already, the most allowed (--max_models); delete "
                   "some"));
}

absl::StatusOr<std::shared_ptr<ModelVersion>> Registry::Store(
    VersionRow* row, const std::shared_ptr<ModelVersion>& version,
    std::optional<HostedModel> hosted) {
  if (row->source.content.empty()) row->version = versions_.NextNumber(row->name);
  if (row->version == 0) {
    ASSIGN_OR_RETURN(row->version, db_->NextVersion(row->name));
  }
  row->created_us = NowMicroseconds();
  std::shared_ptr<ModelVersion> replaced;
  const auto store = [&] {
    RETURN_IF_ERROR(db_->AddVersion(*row));
    version->SetStored(*row);
    version->SetMetrics(metrics_.ForVersion(version->name(), version->version()));
    if (hosted.has_value()) language_models_.Open(*std::move(hosted), version.get());
    replaced = versions_.Add(version);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(tensors_.Store(row, [&] { return publisher_.Change(store); }));
  return replaced;
}

void Registry::Unpin(const VersionRow& row) {
  std::vector<std::string> hashes;
  for (const TensorRow& tensor : row.tensors) hashes.push_back(tensor.hash);
  tensors_.Unpin(hashes);
}

absl::Status Registry::Add(VersionRow row, const std::shared_ptr<ModelVersion>& version,
                           std::vector<HeldTensors::NewTensor> tensors,
                           std::optional<HostedModel> hosted) {
  RETURN_IF_ERROR(CheckRoom(row));
  tensors_.Reference(row, absl::MakeSpan(tensors));
  VersionList healed;
  absl::Status s = tensors_.Publish(
      tensors, [&](const HeldTensors::Hashes& hashes) { healed = HealedBy(hashes); });
  absl::Cleanup tell = [&] { TellHealed(healed); };
  // Referenced tensors cannot be removed, so other changes need not wait while contents are read.
  if (s.ok()) row.magnitudes = FindMagnitudes(version.get());
  if (s.ok()) FindSeals(&row.tensors);
  std::shared_ptr<ModelVersion> replaced;
  {
    MutexLock change(change_mu_);
    if (s.ok()) s = CheckRoom(row);
    if (s.ok()) {
      absl::StatusOr<std::shared_ptr<ModelVersion>> stored =
          Store(&row, version, std::move(hosted));
      s = stored.status();
      if (s.ok()) replaced = *std::move(stored);
    }
    if (!s.ok()) {
      Unpin(row);
      return s;
    }
    if (replaced != nullptr) Unpin(replaced->row());
  }
  if (replaced != nullptr) replaced->SetDeleted();
  publisher_.Tell(version->name());
  return absl::OkStatus();
}

VersionList Registry::HealedBy(const HeldTensors::Hashes& hashes) const {
  VersionList healed =
      versions_.With([&](const std::string& hash) { return hashes.contains(hash); });
  std::erase_if(healed, [&](const std::shared_ptr<ModelVersion>& version) {
    const std::vector<TensorRow>& tensors = version->row().tensors;
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const TensorRow& tensor) { return tensors_.Bytes(tensor.hash) < 0; });
  });
  return healed;
}

absl::StatusOr<VersionList> Registry::Delete(const std::string& name, const std::string& version) {
  VersionList deleted;
  {
    MutexLock change(change_mu_);
    ASSIGN_OR_RETURN(auto found, versions_.Find(name, version));
    deleted = version.empty() ? versions_.List(name) : VersionList{found};
    std::reverse(deleted.begin(), deleted.end());  // oldest first
    RETURN_IF_ERROR(publisher_.Retire(name, deleted));
    for (const auto& gone : deleted) Unpin(gone->row());
  }
  for (const auto& gone : deleted) gone->SetDeleted();
  publisher_.Tell(name);
  return deleted;
}

void Registry::SetHealedHook(HealedHook hook) {
  MutexLock lock(hook_mu_);
  healed_hook_ = std::move(hook);
}

void Registry::TellHealed(const VersionList& healed) {
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
