// Gives calls of all protocols their ids, and a line in the log to each that fails or that changes
// the server.
//
//   const std::string id = RequestIdFor(header);   // the caller's, if it is fit
//   LogFailedCall({id, "chat/completions", peer, client, trace}, status);
//   LogAuditedCall({id, "DeleteModel", peer, client, trace}, "digits", /*always=*/false);
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
// Logs what the caller was told, or that it left (CANCELLED), at most 20 lines a second of an
// identity and a code, so that refusals in an overload hide neither other failures nor those of
// others; at most 200 together.
void LogFailedCall(const CallLabels& call, const absl::Status& told);
// Logs that the caller has done what the table of RPCs marks (server/access/rpcs.h). `always`: of
// an administrator, whose lines are all written; of any other at most 20 a second, 200 together.
void LogAuditedCall(const CallLabels& call, absl::string_view model, bool always);
// Logs how many lines of the two kinds above were held back in seconds that are over: by identity,
// for those with the most, and one line without names for all others. Called once a second.
void LogHeldBack();

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_CALL_LOG_H_
