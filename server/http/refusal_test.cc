#include "server/http/refusal.h"

#include <chrono>
#include <string>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

TEST(RefusalTest, StatusesOfThoseWhoAdmit) {
  EXPECT_EQ(RefusalOf(absl::UnauthenticatedError("key")).status, 401);
  EXPECT_EQ(RefusalOf(absl::UnauthenticatedError("key")).more[0].first, "WWW-Authenticate");
  EXPECT_EQ(RefusalOf(absl::UnauthenticatedError("key")).more[0].second, "Bearer");
  EXPECT_THAT(RefusalOf(absl::UnauthenticatedError("key"), /*browser=*/true).more[0].second,
              HasSubstr("Basic realm="));
  const auto later = [](int ms) {
    return RefusalOf(
               WithRetryAfter(absl::ResourceExhaustedError("quota"), std::chrono::milliseconds(ms)))
        .more[0]
        .second;
  };
  EXPECT_EQ(later(1), "1");
  EXPECT_EQ(later(1'000), "1");
  EXPECT_EQ(later(1'001), "2");
  EXPECT_EQ(RefusalOf(absl::PermissionDeniedError("not yours")).status, 403);
  EXPECT_EQ(RefusalOf(absl::ResourceExhaustedError("full")).more[0].first, "Retry-After");
  EXPECT_EQ(RefusalOf(absl::UnavailableError("draining")).status, 503);
  EXPECT_EQ(RefusalOf(absl::InternalError("defect")).status, 500);
  EXPECT_EQ(RefusalOf(absl::DataLossError("defect")).status, 500);
}

TEST(RefusalTest, CodesForTheLog) {
  EXPECT_EQ(StatusOf({404, "none"}), absl::NotFoundError("404: none"));
  EXPECT_EQ(StatusOf({401, "key"}).code(), absl::StatusCode::kUnauthenticated);
  for (const int status : {400, 405, 413, 414, 421, 431}) {
    EXPECT_EQ(StatusOf({status, "wrong"}).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(RefusalTest, PagesOfOtherSitesSendNothing) {
  const HostNames hosts("127.0.0.1:80", {"a"});
  const Routes routes({{.method = "POST", .path = "/here"}, {.method = "GET", .path = "/here"}});
  const auto status = [&](std::string method, HttpHeaders headers) {
    headers.emplace_back("Host", "a");
    const auto found =
        RouteOf({.method = std::move(method), .path = "/here", .headers = std::move(headers)},
                /*http_1_0=*/false, hosts, routes);
    const auto* refusal = std::get_if<HttpRefusal>(&found);
    return refusal == nullptr ? 200 : refusal->status;
  };
  EXPECT_EQ(status("POST", {}), 200);  // no browser
  EXPECT_EQ(status("POST", {{"Sec-Fetch-Site", "same-origin"}, {"Origin", "null"}}), 200);
  EXPECT_EQ(status("POST", {{"Sec-Fetch-Site", "none"}}), 200);
  EXPECT_EQ(status("POST", {{"Sec-Fetch-Site", "cross-site"}}), 403);
  EXPECT_EQ(status("POST", {{"sec-fetch-site", "same-site"}, {"Origin", "http://a"}}), 403);
  EXPECT_EQ(status("POST", {{"Origin", "http://a"}}), 200);
  EXPECT_EQ(status("POST", {{"Origin", "https://a"}}), 200);
  for (const char* origin : {"null", "http://b", "http://a:81", "a", ""}) {
    EXPECT_EQ(status("POST", {{"Origin", origin}}), 403) << origin;
    EXPECT_EQ(status("POST", {{"Origin", origin}, {"Authorization", "Bearer t"}}), 200);
    EXPECT_EQ(status("POST", {{"Origin", origin}, {"Authorization", "Basic t"}}), 403);
    EXPECT_EQ(status("GET", {{"Origin", origin}}), 200);
  }
}

TEST(RefusalTest, HostsComeBeforeRoutes) {
  const HostNames hosts("127.0.0.1:80", {"a"});
  const Routes routes({{.method = "GET", .path = "/here"}});
  const auto status = [&](HttpRequest request, bool http_1_0 = false) {
    const auto found = RouteOf(request, http_1_0, hosts, routes);
    const auto* refusal = std::get_if<HttpRefusal>(&found);
    return refusal == nullptr ? 200 : refusal->status;
  };
  const HttpHeaders host = {{"hOST", "a"}}, other = {{"Host", "evil.example"}};
  EXPECT_EQ(status({.method = "GET", .path = "/here", .headers = host}), 200);
  EXPECT_EQ(status({.method = "GET", .path = "/here"}), 400);
  EXPECT_EQ(status({.method = "GET", .path = "/here"}, /*http_1_0=*/true), 200);
  EXPECT_EQ(status({.method = "GET", .path = "/here", .headers = other}), 421);
  EXPECT_EQ(status({.method = "GET", .path = "/none", .headers = other}), 421);
  EXPECT_EQ(status({.method = "GET", .path = "/none", .headers = host}), 404);
  EXPECT_EQ(status({.method = "PUT", .path = "/here", .headers = host}), 405);
}

}  // namespace
}  // namespace athanor
