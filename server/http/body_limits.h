// Bounds a request's body: what memory it takes while it comes, and by when more of it must come.
//
//   RETURN_IF_ERROR(HoldBody(*ledger, body.size() + more, length, &body, &exchange->memory()));
//   Until(BodyDeadline(limits, began, body.size()));
#ifndef ATHANOR_SERVER_HTTP_BODY_LIMITS_H_
#define ATHANOR_SERVER_HTTP_BODY_LIMITS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/http/request_reader.h"
#include "server/memory/server_ledger.h"

namespace athanor {

struct HttpLimits {
  HeaderLimits head;
  std::chrono::milliseconds header{10'000};  // for a request's header; at first, with the handshake
  std::chrono::milliseconds idle{75'000};    // from an answer to the next request
  // For a body, besides its bytes at `least_rate`; if that is 0, from one piece to the next.
  std::chrono::milliseconds body{10'000};
  int64_t least_rate = 8 << 10;             // bytes per second
  std::chrono::milliseconds write{30'000};  // for a whole answer, or a piece of a stream
  std::chrono::milliseconds linger{1'000};  // for the client to read the answer and close
};

// Returns when a body must have more than its `bytes`.
std::chrono::steady_clock::time_point BodyDeadline(const HttpLimits& limits,
                                                   std::chrono::steady_clock::time_point began,
                                                   size_t bytes);

// Holds memory for the `need` bytes of a body, in steps that double. The last one takes all that
// the client has announced, if that is twice the step at most. RESOURCE_EXHAUSTED: there is none.
absl::Status HoldBody(ServerLedger& ledger, size_t need, std::optional<uint64_t> announced,
                      std::string* body, ServerLedger::Reservation* memory);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_BODY_LIMITS_H_
