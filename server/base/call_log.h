// Gives calls of all protocols their ids, and a line in the log to each that fails.
//
//   const std::string id = RequestIdFor(header);   // the caller's, if it is fit
//   LogFailedCall({id, "chat/completions", peer, client, trace}, status);
#ifndef ATHANOR_SERVER_BASE_CALL_LOG_H_
#define ATHANOR_SERVER_BASE_CALL_LOG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace athanor {

// The header and the metadata of a request's id: of the caller's, and of every reply.
inline constexpr char kRequestIdKey[] = "x-request-id";

// Returns `given` if it has 1 to 128 visible ASCII characters; otherwise a new id.
std::string RequestIdFor(absl::string_view given);

struct CallLabels {
  absl::string_view request;  // its id
  absl::string_view method;
  absl::string_view peer;        // as gRPC writes it
  absl::string_view client;      // the identity; empty: none is known
  absl::string_view trace = "";  // its number; empty: the call is not recorded
};
// Logs what the caller was told, at most some lines a second. Each code has a limit of its own, so
// that refusals in an overload hide no other failures.
void LogFailedCall(const CallLabels& call, const absl::Status& told);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_CALL_LOG_H_
