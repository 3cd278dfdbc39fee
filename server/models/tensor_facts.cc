#include "server/models/tensor_facts.h"

#include <string_view>
#include <utility>

#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

std::string_view BytesOf(const MappedTensor& tensor) {
  return {static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes())};
}

}  // namespace

std::string TensorFacts::seal() const {
  MutexLock lock(mu_);
  return seal_;
}

void TensorFacts::SetSeal(std::string seal) {
  MutexLock lock(mu_);
  seal_ = std::move(seal);
}

absl::StatusOr<std::string> TensorFacts::FindSeal(Read read) {
  if (std::string known = seal(); !known.empty()) return known;
  ASSIGN_OR_RETURN(const auto tensor, read());
  // Reading hashes a file that was not verified before, and that sets the seal.
  if (std::string known = seal(); !known.empty()) return known;
  const std::string_view bytes = BytesOf(*tensor);
  std::string found = SealOf({bytes.data(), bytes.size()});
  SetSeal(found);
  return found;
}

absl::StatusOr<std::optional<int>> TensorFacts::FindMagnitude(DType dtype, Read read) {
  {
    MutexLock lock(mu_);
    const auto known = magnitudes_.find(dtype);
    if (known != magnitudes_.end()) return known->second;
  }
  ASSIGN_OR_RETURN(const auto tensor, read());
  const std::optional<int> found = MagnitudeOf(dtype, BytesOf(*tensor));
  SetMagnitude(dtype, found);
  return found;
}

void TensorFacts::SetMagnitude(DType dtype, std::optional<int> magnitude) {
  MutexLock lock(mu_);
  magnitudes_[dtype] = magnitude;
}

}  // namespace athanor
