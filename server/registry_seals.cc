// Seals of tensors, by which clients prove that they have them: found once per tensor.
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/possession.h"
#include "server/log.h"
#include "server/registry.h"

namespace athanor {
namespace {

// Without telling by its time how much of them is equal.
bool Equal(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace

absl::Status Registry::NeitherSentNorProved(const std::string& hash) {
  return absl::FailedPreconditionError(absl::StrCat(
      "tensor ", absl::BytesToHexString(hash),
      ": the upload has neither its bytes nor a proof that the sender has them (or the server does "
      "not hold it); send its bytes, or prove it with a new nonce of MissingTensors"));
}

bool Registry::Proves(const std::string& nonce, const std::string& hash, const std::string& proof) {
  std::string seal;
  {
    MutexLock lock(mu_);
    const auto entry = tensor_entries_.find(hash);
    if (entry != tensor_entries_.end() && entry->second.held) seal = entry->second.seal;
  }
  const bool known = !seal.empty();
  seal.resize(kSha256Bytes);
  return Equal(PossessionProof(nonce, hash, seal), proof) && known && CheckTensor(hash).ok();
}

void Registry::FindSeals(std::vector<TensorRow>* rows) {
  for (TensorRow& row : *rows) {
    {
      MutexLock lock(mu_);
      row.seal = tensor_entries_[row.hash].seal;
    }
    if (!row.seal.empty()) continue;
    const auto tensor = Map(row.hash);
    if (!tensor.ok()) {
      LogError(
          "whether clients have a tensor cannot be proved",
          {{"tensor", absl::BytesToHexString(row.hash)}, {"error", tensor.status().message()}});
      continue;
    }
    row.seal = SealOf(
        {static_cast<const char*>((*tensor)->data()), static_cast<size_t>((*tensor)->bytes())});
    MutexLock lock(mu_);
    tensor_entries_[row.hash].seal = row.seal;
  }
}

absl::Status Registry::LoadSeals() {
  // A file written before seals were kept has none: the tensors are read once.
  std::vector<TensorRow> rows;
  {
    MutexLock lock(mu_);
    for (const auto& [hash, entry] : tensor_entries_) {
      if (entry.seal.empty()) rows.push_back({hash, entry.bytes});
    }
  }
  FindSeals(&rows);
  if (rows.empty()) return absl::OkStatus();
  if (absl::Status s = db_->AddSeals(rows); !s.ok()) {
    LogError("seals of tensors could not be stored", {{"error", s.message()}});
  }
  return absl::OkStatus();
}

}  // namespace athanor
