// Facts about the contents of one tensor, each found once by reading them: the seal, by which
// clients prove that they have it, and its magnitude as elements of a dtype.
//
//   facts.FindMagnitude(DType::kF32, [&] { return tensors.Map(hash); });   // reads if not known
//
// Thread-safe. Reads without its lock: two threads may find the same fact at once.
#ifndef ATHANOR_SERVER_MODELS_TENSOR_FACTS_H_
#define ATHANOR_SERVER_MODELS_TENSOR_FACTS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/magnitude.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/storage/tensor_store.h"

namespace athanor {

class TensorFacts {
 public:
  // Maps the tensor, whose bytes are known to be right.
  using Read = absl::FunctionRef<absl::StatusOr<std::shared_ptr<const MappedTensor>>()>;

  // Returns the seal (deploy/bazel/libs/possession.h); empty: not known.
  std::string seal() const;
  void SetSeal(std::string seal);
  // Each returns the known fact, else finds it in the contents. Fails only as `read` does.
  absl::StatusOr<std::string> FindSeal(Read read);
  absl::StatusOr<std::optional<int>> FindMagnitude(DType dtype, Read read);
  void SetMagnitude(DType dtype, std::optional<int> magnitude);

 private:
  mutable Mutex mu_;
  std::string seal_ ABSL_GUARDED_BY(mu_);
  std::map<DType, std::optional<int>> magnitudes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_TENSOR_FACTS_H_
