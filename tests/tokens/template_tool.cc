// Renders chat templates for the tests of this folder.
//
//   template_tool < requests > answers
//
// A request is a line of JSON: {"template": text, "request": {...}, "model": {...}}. An answer is a
// line too: {"parts": [[text, trusted], ...]}, or {"code": name, "error": text, "at": "parse" |
// "render"}. The time is always 2026-02-03 04:05:06.
#include <cstdio>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "server/text/chat_template.h"

namespace athanor {
namespace {

using Json = nlohmann::ordered_json;

Json Refusal(const absl::Status& status, const char* at) {
  return {{"code", absl::StatusCodeToString(status.code())},
          {"error", std::string(status.message())},
          {"at", at}};
}

Json Answer(const Json& asked) {
  const auto parsed = ChatTemplate::Parse(asked.at("template").get<std::string>());
  if (!parsed.ok()) return Refusal(parsed.status(), "parse");
  const auto parts = parsed->Render({.request = asked.at("request"),
                                     .model = asked.at("model"),
                                     .now = absl::CivilSecond(2026, 2, 3, 4, 5, 6)});
  if (!parts.ok()) return Refusal(parts.status(), "render");
  Json answer = {{"parts", Json::array()}};
  for (const Part& part : *parts) answer["parts"].push_back({part.text, part.trusted});
  return answer;
}

}  // namespace
}  // namespace athanor

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << athanor::Answer(athanor::Json::parse(line))
                     .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
              << '\n';
  }
  return 0;
}
