// Tells clients the part of Triton's model configuration that there is.
#ifndef ATHANOR_SERVER_DESCRIBE_MODEL_CONFIG_H_
#define ATHANOR_SERVER_DESCRIBE_MODEL_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "proto/inference/model_config.pb.h"
#include "server/core/core.h"

namespace athanor {

// Returns NOT_FOUND if there is no such version; an empty `version` is the one that serves.
// `max_batch_size` is as the folder's README says.
absl::Status FillModelConfig(ServerCore& core, const std::string& name, const std::string& version,
                             inference::ModelConfig* config);

}  // namespace athanor

#endif  // ATHANOR_SERVER_DESCRIBE_MODEL_CONFIG_H_
