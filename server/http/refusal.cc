#include "server/http/refusal.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/access/use.h"

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

HttpHeaders HeadersOf(int status, std::chrono::milliseconds after, bool browser) {
  if (status == 401) {
    return {
        {"WWW-Authenticate", browser ? "Basic realm=\"athanor\", charset=\"UTF-8\"" : "Bearer"}};
  }
  if (status == 429 || status == 503) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(after);
    return {{"Retry-After", absl::StrCat(std::max<int64_t>(1, seconds.count()))}};
  }
  return {};
}

}  // namespace

HttpRefusal RefusalOf(const absl::Status& status, bool browser) {
  int number = 500;
  for (const Row& row : kRows) {
    if (row.code == status.code()) number = row.status;
  }
  return {number, std::string(status.message()), HeadersOf(number, RetryAfter(status), browser)};
}

absl::Status StatusOf(const HttpRefusal& refusal) {
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  for (const Row& row : kRows) {
    if (row.status == refusal.status) code = row.code;
  }
  return absl::Status(code, absl::StrCat(refusal.status, ": ", refusal.message));
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
  return found.route;
}

}  // namespace athanor
