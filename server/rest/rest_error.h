// Errors as clients of KServe's v2 REST protocol read them: {"error": "..."} with Triton's codes.
#ifndef ATHANOR_SERVER_REST_REST_ERROR_H_
#define ATHANOR_SERVER_REST_REST_ERROR_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/http/exchange.h"

namespace athanor {

// Returns the HTTP status of an error.
int RestStatusOf(absl::StatusCode code);

// Answers with the error, and logs it. REQUIRES: it is not OK.
void AnswerRestError(HttpExchange& exchange, const absl::Status& status);

// Makes the HTTP side's own errors of --http_listen: JSON below /v2, text for the pages.
std::pair<std::string, std::string> RestErrorBody(int status, const std::string& message,
                                                  absl::string_view path);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_REST_ERROR_H_
