#include "server/openai/error.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "server/base/public_status.h"
#include "server/base/retry_after.h"
#include "server/openai/fields.h"

namespace athanor {
namespace {

struct Kind {
  int status;
  const char* type;
  const char* code;  // null: none
  bool later;        // it may work later
};

Kind KindOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kNotFound:
      return {404, "invalid_request_error", "model_not_found", false};
    case absl::StatusCode::kUnauthenticated:
      return {401, "invalid_request_error", "invalid_api_key", false};
    case absl::StatusCode::kPermissionDenied:
      return {403, "invalid_request_error", nullptr, false};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_error", "rate_limit_exceeded", true};
    case absl::StatusCode::kUnavailable:
      return {503, "server_error", "service_unavailable", true};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, "server_error", "timeout", false};
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kCancelled:
      return {500, "server_error", nullptr, false};
    default:
      return {400, "invalid_request_error", nullptr, false};
  }
}

// Beginnings of messages about v1::GenerateRequest, and what the client calls these fields. The
// first that fits counts.
struct Renamed {
  absl::string_view from, to;
};
constexpr Renamed kRenamed[] = {
    {"sampling.bias", "logit_bias"},
    {"sampling.", ""},
    {"stop_tokens", "stop_token_ids"},
    {"tokens.ids", "prompt"},
    {"text is", "prompt is"},
    {"text has", "prompt has"},
    {"text: ", "prompt: "},
    {"chat.messages", "messages"},
    {"chat.variables_json", "chat_template_kwargs"},
    {"chat has", "messages has"},
    {"chat: ", "messages: "},
};

std::string MessageOf(absl::string_view text) {
  std::string message(text);
  for (const Renamed& renamed : kRenamed) {
    if (!absl::StartsWith(message, renamed.from)) continue;
    message.replace(0, renamed.from.size(), renamed.to.data(), renamed.to.size());
    break;
  }
  return absl::StrReplaceAll(message, {{"chat.continue_last", "continue_final_message"},
                                       {"leave that message and continue_last out",
                                        "leave that message and continue_final_message out"}});
}

// Returns the path that the message begins with, if it is one of a field; else "".
std::string ParamOf(const std::string& message) {
  const size_t name = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
  if (name == std::string::npos || FindField(message.substr(0, name)) == nullptr) return "";
  const size_t end = message.find_first_of(" :,;", name);
  return message.substr(0, end);
}

Json ErrorOf(const std::string& message, const Kind& kind, const std::string& param) {
  Json error = {{"message", message}, {"type", kind.type}, {"param", nullptr}, {"code", nullptr}};
  if (!param.empty()) error["param"] = param;
  if (kind.code != nullptr) error["code"] = kind.code;
  return {{"error", std::move(error)}};
}

std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json ErrorOf(const absl::Status& status, Kind kind) {
  const std::string message = MessageOf(status.message());
  std::string param = kind.status == 400 ? ParamOf(message) : "";
  if (kind.status == 404) param = "model";
  // Clients that shorten their prompts look for it.
  if (kind.status == 400 && (absl::StrContains(message, "--max_model_len") ||
                             absl::StrContains(message, "the model takes at most"))) {
    kind.code = "context_length_exceeded";
  }
  return ErrorOf(message, kind, param);
}

}  // namespace

ErrorAnswer ErrorAnswerOf(const absl::Status& status) {
  const absl::Status told = PublicStatus(status);
  const Kind kind = KindOf(told.code());
  ErrorAnswer answer{.status = kind.status, .body = TextOf(ErrorOf(told, kind))};
  if (kind.later) answer.headers.emplace_back("Retry-After", RetryAfterSeconds(status));
  // OpenAI's clients look for it first.
  if (const auto after = RetryAfter(status); kind.later && after.count() > 0) {
    answer.headers.emplace_back("retry-after-ms", absl::StrCat(after.count()));
  }
  if (kind.status >= 500 && !kind.later) answer.headers.emplace_back("x-should-retry", "false");
  return answer;
}

void AnswerError(HttpExchange& exchange, const absl::Status& status) {
  LogFailedRequest(exchange, PublicStatus(status));
  ErrorAnswer error = ErrorAnswerOf(status);
  exchange.Answer(error.status, "application/json", std::move(error.body),
                  std::move(error.headers));
}

std::string ErrorEvent(const absl::Status& status) {
  const absl::Status told = PublicStatus(status);
  return absl::StrCat("data: ", TextOf(ErrorOf(told, KindOf(told.code()))), "\n\n");
}

std::pair<std::string, std::string> OpenAiErrorBody(int status, const std::string& message) {
  Kind kind{status, status < 500 ? "invalid_request_error" : "server_error", nullptr, false};
  if (status == 401) kind.code = "invalid_api_key";
  if (status == 429) kind = KindOf(absl::StatusCode::kResourceExhausted);
  if (status == 503) kind = KindOf(absl::StatusCode::kUnavailable);
  return {"application/json", TextOf(ErrorOf(message, kind, ""))};
}

}  // namespace athanor
