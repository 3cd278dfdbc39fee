// Tells clients Triton's statistics of versions, from their metrics.
#ifndef ATHANOR_SERVER_DESCRIBE_MODEL_STATISTICS_H_
#define ATHANOR_SERVER_DESCRIBE_MODEL_STATISTICS_H_

#include <string>

#include "absl/status/status.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "server/access/access.h"
#include "server/core/core.h"

namespace athanor {

// Describes a version, or all versions that the caller may use if `name` is empty. What is not
// counted is 0; the time of requests that failed is with the others'. PERMISSION_DENIED: the caller
// may not use the model. NOT_FOUND: there is no such version.
absl::Status FillStatistics(ServerCore& core, const std::string& name, const std::string& version,
                            const Caller& caller, inference::ModelStatisticsResponse* statistics);

}  // namespace athanor

#endif  // ATHANOR_SERVER_DESCRIBE_MODEL_STATISTICS_H_
