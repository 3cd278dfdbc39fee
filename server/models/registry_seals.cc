// Seals of tensors, by which clients prove that they have them: computed once per tensor.
#include <openssl/crypto.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/possession.h"
#include "server/base/log.h"
#include "server/models/registry.h"

namespace athanor {

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
  const std::string right = PossessionProof(nonce, hash, seal);
  // Compares in constant time, so that timing does not reveal how many bytes are equal.
  return proof.size() == right.size() &&
         CRYPTO_memcmp(proof.data(), right.data(), right.size()) == 0 && known &&
         CheckTensor(hash).ok();
}

void Registry::FindSeals(std::vector<TensorRow>* rows) {
  const auto take_known = [this](TensorRow& row) {
    MutexLock lock(mu_);
    row.seal = tensor_entries_[row.hash].seal;
    return !row.seal.empty();
  };
  for (TensorRow& row : *rows) {
    if (take_known(row)) continue;
    const auto tensor = Map(row.hash);
    if (!tensor.ok()) {
      LogError(
          "whether clients have a tensor cannot be proved",
          {{"tensor", absl::BytesToHexString(row.hash)}, {"error", tensor.status().message()}});
      continue;
    }
    if (take_known(row)) continue;  // Map has hashed it
    row.seal = SealOf(
        {static_cast<const char*>((*tensor)->data()), static_cast<size_t>((*tensor)->bytes())});
    MutexLock lock(mu_);
    tensor_entries_[row.hash].seal = row.seal;
  }
}

absl::Status Registry::LoadSeals() {
  // A database from before seals were stored has none: reads the tensors once.
  std::vector<TensorRow> rows;
  {
    MutexLock lock(mu_);
    for (const auto& [hash, entry] : tensor_entries_) {
      if (entry.seal.empty()) rows.push_back({hash, entry.bytes});
    }
  }
  FindSeals(&rows);
  if (rows.empty()) return absl::OkStatus();
  if (absl::Status s = db_->SetSeals(rows); !s.ok()) {
    LogError("seals of tensors could not be stored", {{"error", s.message()}});
  }
  return absl::OkStatus();
}

}  // namespace athanor
