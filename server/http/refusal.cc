#include "server/http/refusal.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

struct Row {
  absl::StatusCode code;
  int status;
};
constexpr Row kRows[] = {
    {absl::StatusCode::kUnauthenticated, 401},   {absl::StatusCode::kPermissionDenied, 403},
    {absl::StatusCode::kNotFound, 404},          {absl::StatusCode::kDeadlineExceeded, 408},
    {absl::StatusCode::kResourceExhausted, 429}, {absl::StatusCode::kInternal, 500},
    {absl::StatusCode::kUnavailable, 503},
};

HttpHeaders HeadersOf(int number, const absl::Status& status, bool browser) {
  if (number == 401) {
    return {
        {"WWW-Authenticate", browser ? "Basic realm=\"athanor\", charset=\"UTF-8\"" : "Bearer"}};
  }
  if (number == 429 || number == 503) return {{"Retry-After", RetryAfterSeconds(status)}};
  return {};
}

// Reports whether a page of another site sends this from a browser, which sends some forms unasked
// (Fetch Metadata's Sec-Fetch-Site, or Origin). A token shows that the page may: browsers send none
// by themselves.
bool IsOfAnotherSite(const HttpRequest& request) {
  if (request.method == "GET" || request.method == "HEAD") return false;
  const std::string* token = request.Header("Authorization");
  if (token != nullptr && absl::StartsWithIgnoreCase(*token, "Bearer ")) return false;
  if (const std::string* site = request.Header("Sec-Fetch-Site"); site != nullptr) {
    return *site != "same-origin" && *site != "none";
  }
  const std::string* origin = request.Header("Origin");
  const std::string* host = request.Header("Host");
  return origin != nullptr && (host == nullptr || (*origin != absl::StrCat("http://", *host) &&
                                                   *origin != absl::StrCat("https://", *host)));
}

}  // namespace

HttpRefusal RefusalOf(const absl::Status& status, bool browser) {
  int number = 500;
  for (const Row& row : kRows) {
    if (row.code == status.code()) number = row.status;
  }
  return {number, std::string(status.message()), HeadersOf(number, status, browser)};
}

std::pair<std::string, std::string> BodyOf(const HttpRefusal& refusal, const ErrorBody& error_body,
                                           absl::string_view path) {
  if (error_body != nullptr) return error_body(refusal.status, refusal.message, path);
  return {"text/plain; charset=utf-8", absl::StrCat(refusal.status, ": ", refusal.message, "\n")};
}

absl::Status StatusOf(const HttpRefusal& refusal) {
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  for (const Row& row : kRows) {
    if (row.status == refusal.status) code = row.code;
  }
  return absl::Status(code, absl::StrCat(refusal.status, ": ", refusal.message));
}

HttpRefusal TooLong(const Route& route) {
  return {413, absl::StrCat("the body is longer than ", route.most_body, " bytes")};
}

std::variant<const Route*, HttpRefusal> JudgeHead(HttpExchange* exchange, bool http_1_0,
                                                  std::optional<uint64_t> body_bytes,
                                                  const HostNames& hosts, const Routes& routes,
                                                  const Admit& admit) {
  auto routed = RouteOf(exchange->request(), http_1_0, hosts, routes);
  if (std::holds_alternative<HttpRefusal>(routed)) return routed;
  const Route& route = *std::get<const Route*>(routed);
  if (admit == nullptr) {
    exchange->set_caller(Caller::Anybody());
  } else if (const absl::Status admitted = admit(route, exchange); !admitted.ok()) {
    return RefusalOf(admitted, /*browser=*/route.role == Role::kMonitor);
  }
  if (body_bytes.has_value() && std::cmp_greater(*body_bytes, route.most_body)) {
    return TooLong(route);
  }
  return routed;
}

std::variant<const Route*, HttpRefusal> RouteOf(const HttpRequest& request, bool http_1_0,
                                                const HostNames& hosts, const Routes& routes) {
  std::vector<std::string> given;
  for (const auto& [name, value] : request.headers) {
    if (absl::EqualsIgnoreCase(name, "Host")) given.push_back(value);
  }
  if (const auto refused = hosts.Check(given, !http_1_0)) {
    return HttpRefusal{refused->status, refused->text};
  }
  const Routes::Found found = routes.Find(request.method, request.path);
  if (found.status == 404) {
    return HttpRefusal{404, absl::StrCat("no such page; available:", routes.Paths())};
  }
  if (found.status == 405) {
    return HttpRefusal{405, absl::StrCat("only ", found.allow), {{"Allow", found.allow}}};
  }
  if (IsOfAnotherSite(request)) {
    return HttpRefusal{403, "a page of another site may send nothing here without a token"};
  }
  return found.route;
}

}  // namespace athanor
