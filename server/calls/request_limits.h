// Limits of a request's fields, for all who read requests.
#ifndef ATHANOR_SERVER_CALLS_REQUEST_LIMITS_H_
#define ATHANOR_SERVER_CALLS_REQUEST_LIMITS_H_

#include <cstdint>

namespace athanor {

// Most tokens of `stop_tokens`.
inline constexpr int64_t kMostStopTokens = 1024;
// Most bytes of `cache_salt`, which is hashed with each prompt.
inline constexpr int64_t kMostSaltBytes = 1024;

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_REQUEST_LIMITS_H_
