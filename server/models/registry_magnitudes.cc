// The registry's magnitudes of tensors: computed once per tensor and dtype.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/graph/magnitude.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/models/registry.h"

namespace athanor {

absl::Status Registry::LoadMagnitudes() {
  ASSIGN_OR_RETURN(const auto stored, db_->ReadMagnitudes());
  absl::flat_hash_set<std::pair<std::string, std::string>> known;
  {
    MutexLock lock(mu_);
    for (const MagnitudeRow& row : stored) {
      const auto entry = tensor_entries_.find(row.hash);
      const std::optional<DType> dtype = ParseDType(row.dtype);
      if (entry == tensor_entries_.end() || !dtype) continue;
      entry->second.magnitudes[*dtype] = row.magnitude;
      known.emplace(row.hash, row.dtype);
    }
  }
  // A database from before magnitudes were stored has none: reads the tensors once.
  std::vector<MagnitudeRow> found;
  for (const auto& version : List("")) {
    for (MagnitudeRow& row : FindMagnitudes(version.get())) {
      if (known.emplace(row.hash, row.dtype).second) found.push_back(std::move(row));
    }
  }
  if (found.empty()) return absl::OkStatus();
  if (absl::Status s = db_->AddMagnitudes(found); !s.ok()) {
    LogError("what is known of tensors could not be stored", {{"error", s.message()}});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int>> Registry::FindMagnitude(const std::string& hash, DType dtype) {
  {
    MutexLock lock(mu_);
    const auto entry = tensor_entries_.find(hash);
    if (entry != tensor_entries_.end()) {
      const auto known = entry->second.magnitudes.find(dtype);
      if (known != entry->second.magnitudes.end()) return known->second;
    }
  }
  ASSIGN_OR_RETURN(const auto tensor, Map(hash));
  const std::optional<int> found = MagnitudeOf(
      dtype, {static_cast<const char*>(tensor->data()), static_cast<size_t>(tensor->bytes())});
  MutexLock lock(mu_);
  const auto entry = tensor_entries_.find(hash);
  if (entry != tensor_entries_.end()) entry->second.magnitudes[dtype] = found;
  return found;
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
    const absl::StatusOr<std::optional<int>> found = FindMagnitude(hash, dtype);
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

}  // namespace athanor
