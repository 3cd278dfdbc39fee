#include "clients/cpp/text/generate_text.h"

#include <cstdint>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace athanor::client {
namespace {

using nlohmann::json;

// Returns the bytes of the control character at the begin of `text`; 0 if there is none.
size_t ControlBytes(absl::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  if (byte(0) == '\n' || byte(0) == '\t') return 0;
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  // U+0080 to U+009F: some terminals take them for escape sequences.
  return byte(0) == 0xc2 && text.size() > 1 && byte(1) < 0xa0 ? 2 : 0;
}

// Rate after the first token; 0 with fewer than two.
double TokensPerSecond(const v1::GenerateResponse& last) {
  const double us = last.times().last_token_us() - last.times().first_token_us();
  return us > 0 ? (last.usage().generated_tokens() - 1) / us * 1e6 : 0;
}

std::string EndText(const v1::GenerateResponse& last) {
  if (last.finish() == v1::FINISH_LENGTH) return "ended at max_tokens or the model's context";
  if (last.usage().stop_text().empty()) {
    return absl::StrCat("ended by token ", last.usage().stop_token());
  }
  return absl::StrCat("ended by \"", absl::Utf8SafeCEscape(last.usage().stop_text()), "\"");
}

const char* FinishName(v1::FinishReason finish) {
  return finish == v1::FINISH_STOP ? "stop" : "length";
}

json LogprobJson(const v1::TokenLogprob& one) {
  // The bytes may be a part of a code point, which no JSON text can hold.
  const std::string& text = one.text();
  return {{"token", one.token()},
          {"logprob", one.logprob()},
          {"bytes", std::vector<uint8_t>(text.begin(), text.end())}};
}

json LogprobsJson(const v1::Logprobs& logprobs) {
  json likeliest = json::array();
  for (const v1::TokenLogprob& one : logprobs.likeliest()) likeliest.push_back(LogprobJson(one));
  return {{"chosen", LogprobJson(logprobs.chosen())}, {"likeliest", std::move(likeliest)}};
}

json UsageJson(const v1::Usage& usage) {
  json object = {{"prompt_tokens", usage.prompt_tokens()},
                 {"cached_tokens", usage.cached_tokens()},
                 {"generated_tokens", usage.generated_tokens()},
                 {"seed", usage.seed()},
                 {"model_version", usage.model_version()},
                 {"plan_id", usage.plan_id()},
                 {"preemptions", usage.preemptions()}};
  if (usage.has_stop_token()) object["stop_token"] = usage.stop_token();
  if (!usage.stop_text().empty()) object["stop_text"] = usage.stop_text();
  return object;
}

}  // namespace

std::string TerminalText(absl::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const size_t control = ControlBytes(text);
    if (control > 0) {
      absl::StrAppendFormat(&safe, "\\x%02x", static_cast<uint8_t>(text[control - 1]));
    } else {
      safe.push_back(text[0]);
    }
    text.remove_prefix(control > 0 ? control : 1);
  }
  return safe;
}

std::string SummaryText(const v1::GenerateResponse& last) {
  const v1::Usage& usage = last.usage();
  std::string text = absl::StrCat(usage.generated_tokens(), " tokens behind ",
                                  usage.prompt_tokens(), " of the prompt");
  if (usage.cached_tokens() > 0) absl::StrAppend(&text, " (", usage.cached_tokens(), " cached)");
  if (usage.generated_tokens() > 0) {
    absl::StrAppendFormat(&text, ", the first after %.3f s", last.times().first_token_us() / 1e6);
  }
  if (const double rate = TokensPerSecond(last); rate > 0) {
    absl::StrAppendFormat(&text, ", then %.1f tokens a second", rate);
  }
  absl::StrAppend(&text, "; ", EndText(last), "; seed ", usage.seed());
  return text;
}

json GenerateJson(const v1::GenerateResponse& message) {
  json object = {
      {"text", message.text()},
      {"tokens", std::vector<int32_t>(message.tokens().begin(), message.tokens().end())}};
  if (message.logprobs_size() > 0) {
    json& list = object["logprobs"] = json::array();
    for (const v1::Logprobs& one : message.logprobs()) list.push_back(LogprobsJson(one));
  }
  if (message.finish() == v1::FINISH_UNSPECIFIED) return object;
  object["finish"] = FinishName(message.finish());
  object["usage"] = UsageJson(message.usage());
  object["times"] = {{"started_us", message.times().started_us()},
                     {"first_token_us", message.times().first_token_us()},
                     {"last_token_us", message.times().last_token_us()}};
  object["tokens_per_second"] = TokensPerSecond(message);
  return object;
}

}  // namespace athanor::client
