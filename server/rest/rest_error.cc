#include "server/rest/rest_error.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/public_status.h"
#include "server/base/retry_after.h"
#include "server/http/json_body.h"

namespace athanor {
namespace {

constexpr char kJson[] = "application/json";

std::string ErrorText(absl::string_view message) {
  return Json{{"error", std::string(message)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

int RestStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kInternal:
      return 500;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 400;
  }
}

void AnswerRestError(HttpExchange& exchange, const absl::Status& status) {
  const absl::Status told = PublicStatus(status);
  LogFailedRequest(exchange, told);
  const int number = RestStatusOf(told.code());
  HttpHeaders headers;
  if (number == 429 || number == 503) {
    headers.emplace_back("Retry-After", RetryAfterSeconds(status));
  }
  exchange.Answer(number, kJson, ErrorText({told.message().data(), told.message().size()}),
                  std::move(headers));
}

std::pair<std::string, std::string> RestErrorBody(int status, const std::string& message,
                                                  absl::string_view path) {
  if (path == "/v2" || absl::StartsWith(path, "/v2/")) return {kJson, ErrorText(message)};
  return {"text/plain; charset=utf-8", absl::StrCat(status, ": ", message, "\n")};
}

}  // namespace athanor
