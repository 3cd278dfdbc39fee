#include "server/models/version_batching.h"

#include <chrono>

#include "server/base/log.h"

namespace athanor {

BatchLimits BatchLimitsOf(const ServerOptions& options) {
  return {options.max_batch_rows, std::chrono::microseconds(options.batch_delay_us)};
}

void LogBatching(const ModelVersion& version) {
  const VersionBatching& batching = version.batching();
  if (batching.dim.empty()) return;
  if (batching.shared != nullptr) {
    LogInfo("requests share calls", {{"model", version.name()},
                                     {"version", version.version()},
                                     {"dim", batching.dim},
                                     {"max_rows", batching.shared->most_rows},
                                     {"max_delay_us", batching.delay.count()}});
  } else {
    LogInfo("requests share no calls", {{"model", version.name()},
                                        {"version", version.version()},
                                        {"dim", batching.dim},
                                        {"reason", batching.reason}});
  }
}

}  // namespace athanor
