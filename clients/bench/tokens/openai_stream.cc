#include "clients/bench/tokens/openai_stream.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr size_t kShownBytes = 200;

absl::string_view Shown(absl::string_view text) { return text.substr(0, kShownBytes); }

const json& Member(const json& object, const char* key) {
  static const json& none = *new json();
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

int64_t Count(const json& object, const char* key) {
  const json& value = Member(object, key);
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

bool HasText(const json& text) {
  return text.is_string() && !text.get_ref<const std::string&>().empty();
}

// Returns the message of {"error": {"message": "..."}} or {"error": "..."}; "" if there is none.
std::string MessageOf(const json& answer) {
  const json& error = Member(answer, "error");
  const json& message = error.is_object() ? Member(error, "message") : error;
  if (HasText(message)) return message.get<std::string>();
  return error.is_null() ? "" : error.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Names by which servers tell what kind of error it is, in "type" or "code", with HTTP's status for
// it: OpenAI's and Anthropic's, llama-server's (tools/server/utils.hpp), vLLM's
// (entrypoints/openai/protocol.py).
struct NamedError {
  absl::string_view name;
  int http_status;
};
constexpr NamedError kNamedErrors[] = {
    {"invalid_request_error", 400},
    {"BadRequestError", 400},
    {"exceed_context_size_error", 400},
    {"context_length_exceeded", 400},
    {"authentication_error", 401},
    {"invalid_api_key", 401},
    {"permission_error", 403},
    {"not_found_error", 404},
    {"NotFoundError", 404},
    {"model_not_found", 404},
    {"rate_limit_error", 429},
    {"rate_limit_exceeded", 429},
    {"insufficient_quota", 429},
    {"server_error", 500},
    {"InternalServerError", 500},
    {"not_supported_error", 501},
    {"unavailable_error", 503},
    {"overloaded_error", 503},
    {"service_unavailable", 503},
    {"server_shutting_down", 503},
    {"timeout", 504},
    {"timeout_error", 504},
};

bool IsErrorStatus(int64_t status) { return status >= 400 && status < 600; }

// Returns HTTP's status for a member of an error, a number or a name; 0 if it tells none.
int StatusOf(const json& member) {
  if (member.is_number_integer()) {
    const int64_t status = member.get<int64_t>();
    return IsErrorStatus(status) ? static_cast<int>(status) : 0;
  }
  if (!member.is_string()) return 0;
  const auto& name = member.get_ref<const std::string&>();
  int status = 0;
  if (absl::SimpleAtoi(name, &status)) return IsErrorStatus(status) ? status : 0;
  for (const NamedError& named : kNamedErrors) {
    if (named.name == name) return named.http_status;
  }
  return 0;
}

// Returns HTTP's status for an error that came without one: by its code, else by its type.
int StatusOfError(const json& error) {
  for (const char* key : {"code", "type"}) {
    if (const int status = StatusOf(Member(error, key)); status != 0) return status;
  }
  return 500;
}

absl::StatusCode CodeOf(int http_status) {
  switch (http_status) {
    case 400:
    case 413:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
    case 405:
      return absl::StatusCode::kNotFound;
    case 408:
    case 504:
      return absl::StatusCode::kDeadlineExceeded;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 501:
      return absl::StatusCode::kUnimplemented;
    case 502:
    case 503:
      return absl::StatusCode::kUnavailable;
    default:
      return http_status >= 500 ? absl::StatusCode::kInternal : absl::StatusCode::kUnknown;
  }
}

}  // namespace

absl::Status HttpError(int http_status, absl::string_view body) {
  const json answer = json::parse(body, nullptr, /*allow_exceptions=*/false);
  std::string message = MessageOf(answer);
  if (message.empty()) message = std::string(Shown(body));
  return absl::Status(CodeOf(http_status),
                      absl::StrCat("HTTP ", http_status, message.empty() ? "" : ": ", message));
}

bool OpenAiStream::Feed(absl::string_view bytes, Clock::time_point at) {
  const auto event = [&](const std::string& data) { Event(data, at); };
  if (status_.ok()) status_.Update(reader_.Feed(bytes, event));
  return status_.ok();
}

void OpenAiStream::Event(const std::string& data, Clock::time_point at) {
  if (done_ || !status_.ok()) return;
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const json chunk = json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!chunk.is_object()) {
    status_ = absl::DataLossError(
        absl::StrCat("an event of the stream is no JSON object: ", Shown(data)));
    return;
  }
  if (!Member(chunk, "error").is_null()) {
    status_ =
        absl::Status(CodeOf(StatusOfError(Member(chunk, "error"))),
                     absl::StrCat("the stream held an error after ", collector_.output_tokens(),
                                  " of ", collector_.asked(), " tokens: ", MessageOf(chunk)));
    return;
  }
  const json& choices = Member(chunk, "choices");
  if (choices.is_array() && !choices.empty()) Choice(choices[0], at);
  if (const json& usage = Member(chunk, "usage"); usage.is_object()) {
    const int64_t output = Count(usage, "completion_tokens");
    // An answer of nothing but the token that ends it.
    if (!collector_.exact() && collector_.output_tokens() == 0 && output >= 1 && closed_) {
      collector_.Chunk(*closed_, StreamCollector::kNotTold);
    }
    collector_.Usage({Count(usage, "prompt_tokens"),
                      Count(Member(usage, "prompt_tokens_details"), "cached_tokens"), output,
                      length_});
  }
}

void OpenAiStream::Choice(const json& choice, Clock::time_point at) {
  const json& delta = Member(choice, "delta");
  bool has_text = HasText(Member(delta, "reasoning_content"));
  for (const json* text : {&Member(choice, "text"), &Member(delta, "content")}) {
    if (!HasText(*text)) continue;
    has_text = true;
    collector_.Piece(text->get_ref<const std::string&>());
  }
  const bool opens = Member(delta, "role").is_string();
  const json& reason = Member(choice, "finish_reason");
  const bool closes = !reason.is_null();
  if (has_text || (!opens && !closes)) {
    collector_.Chunk(at, StreamCollector::kNotTold);
  } else if (closes) {
    closed_ = at;
  }
  length_ = length_ || reason == "length";
}

absl::Status OpenAiStream::End() const {
  if (!status_.ok()) return status_;
  if (!done_) {
    return absl::DataLossError(absl::StrCat("the stream was cut after ", collector_.output_tokens(),
                                            " of ", collector_.asked(),
                                            " tokens: it ended without [DONE]"));
  }
  return collector_.End();
}

}  // namespace athanor::bench
