// Finds the version of a language model that a request names.
//
//   ASSIGN_OR_RETURN(auto version, FindLanguageModel(core, request.model(), request.version()));
//   const LanguageModel& model = *version->language_model();
#ifndef ATHANOR_SERVER_CALLS_LANGUAGE_VERSION_H_
#define ATHANOR_SERVER_CALLS_LANGUAGE_VERSION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/core/core.h"
#include "server/generate/language_model.h"
#include "server/models/model_version.h"

namespace athanor {

// Returns NOT_FOUND if there is none, FAILED_PRECONDITION if it is no language model or cannot be
// served.
absl::StatusOr<std::shared_ptr<ModelVersion>> FindLanguageModel(ServerCore& core,
                                                                const std::string& name,
                                                                const std::string& version);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_LANGUAGE_VERSION_H_
