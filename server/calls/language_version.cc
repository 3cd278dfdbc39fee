#include "server/calls/language_version.h"

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::StatusOr<std::shared_ptr<ModelVersion>> FindLanguageModel(ServerCore& core,
                                                                const std::string& name,
                                                                const std::string& version) {
  ASSIGN_OR_RETURN(auto found, core.registry().versions().Find(name, version));
  RETURN_IF_ERROR(found->unusable());
  if (found->encoder() != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        found->Describe(),
        " is an encoder: it makes embeddings and generates no tokens. Call /v1/embeddings, or "
        "ModelInfer with its inputs"));
  }
  if (found->language_model() == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        found->Describe(),
        " is no language model: it generates no tokens. Call ModelInfer with its inputs"));
  }
  return found;
}

}  // namespace athanor
