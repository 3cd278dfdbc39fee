#include "server/http/answer_text.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

struct Reason {
  int status;
  absl::string_view text;
};
constexpr Reason kReasons[] = {
    {200, "OK"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {421, "Misdirected Request"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

}  // namespace

absl::string_view ReasonOf(int status) {
  for (const Reason& reason : kReasons) {
    if (reason.status == status) return reason.text;
  }
  return "Unknown";
}

std::string HeadText(const HttpHead& head, const Framing& framing) {
  std::string text = absl::StrCat("HTTP/1.1 ", head.status, " ", ReasonOf(head.status), "\r\n");
  if (!head.type.empty()) absl::StrAppend(&text, "Content-Type: ", head.type, "\r\n");
  bool cached = false;
  for (const auto& [name, value] : head.more) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
    cached = cached || absl::EqualsIgnoreCase(name, "Cache-Control");
  }
  absl::StrAppend(&text, "X-Content-Type-Options: nosniff\r\n");
  if (!cached) absl::StrAppend(&text, "Cache-Control: no-store\r\n");
  if (framing.length.has_value()) {
    absl::StrAppend(&text, "Content-Length: ", *framing.length, "\r\n");
  } else if (!framing.http_1_0) {
    absl::StrAppend(&text, "Transfer-Encoding: chunked\r\n");
  }
  if (framing.closes) {
    absl::StrAppend(&text, "Connection: close\r\n");
  } else if (framing.http_1_0) {
    absl::StrAppend(&text, "Connection: keep-alive\r\n");
  }
  return absl::StrCat(text, "\r\n");
}

std::string ChunkText(absl::string_view bytes) {
  if (bytes.empty()) return "";
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
}

}  // namespace athanor
