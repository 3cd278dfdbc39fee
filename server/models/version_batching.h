// Applies the server's flags to the batching of a version (batch/batching.h), and logs it.
#ifndef ATHANOR_SERVER_MODELS_VERSION_BATCHING_H_
#define ATHANOR_SERVER_MODELS_VERSION_BATCHING_H_

#include "server/base/options.h"
#include "server/batch/batching.h"
#include "server/models/model_version.h"

namespace athanor {

BatchLimits BatchLimitsOf(const ServerOptions& options);

// Logs, for a version that named a dim, that its requests share calls, or why not.
void LogBatching(const ModelVersion& version);

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_VERSION_BATCHING_H_
