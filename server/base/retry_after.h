// Notes in a refusal when to come again. gRPC's status has it as google.rpc.RetryInfo, HTTP's
// answers as Retry-After.
//
//   return WithRetryAfter(absl::ResourceExhaustedError("..."), std::chrono::milliseconds(250));
//   RetryAfter(status)          // 250 ms
//   RetryAfterSeconds(status)   // "1"
#ifndef ATHANOR_SERVER_BASE_RETRY_AFTER_H_
#define ATHANOR_SERVER_BASE_RETRY_AFTER_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"

namespace athanor {

// Noted where nothing is measured yet.
inline constexpr std::chrono::milliseconds kUnmeasuredRetry{100};

// Takes a measured or derived time of any length: what is noted is from 1 ms to a minute, so that
// who waits for it looks again. Zero or less says that nothing is measured.
absl::Status WithRetryAfter(absl::Status status, std::chrono::nanoseconds after);
// Returns zero if none is noted.
std::chrono::milliseconds RetryAfter(const absl::Status& status);
// Returns whole seconds for HTTP, at least 1; "1" too if none is noted.
std::string RetryAfterSeconds(const absl::Status& status);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_RETRY_AFTER_H_
