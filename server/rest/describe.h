// What the server and its models are, as KServe's v2 REST protocol and Triton's extensions have it.
#ifndef ATHANOR_SERVER_REST_DESCRIBE_H_
#define ATHANOR_SERVER_REST_DESCRIBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/access/access.h"
#include "server/core/core.h"
#include "server/http/json_body.h"

namespace athanor {

Json DescribeServer();

// Return NOT_FOUND if there is no such version; an empty `version` is the one that serves.
absl::StatusOr<Json> DescribeModel(ServerCore& core, const std::string& name,
                                   const std::string& version);
// Returns the part of Triton's model configuration that there is: `max_batch_size` is 0, so that
// `dims` are whole shapes, -1 for a size that is not fixed.
absl::StatusOr<Json> ConfigOf(ServerCore& core, const std::string& name,
                              const std::string& version);

// Returns Triton's statistics of a version, or of all versions that the caller may use if `name` is
// empty. Those that are not counted are 0; the time of requests that failed is with the others'.
absl::StatusOr<Json> StatisticsOf(ServerCore& core, const std::string& name,
                                  const std::string& version, const Caller& caller);

// Lists the versions that the caller may use, with their states; `ready`: only those that serve.
Json IndexOf(ServerCore& core, bool ready, const Caller& caller);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_DESCRIBE_H_
