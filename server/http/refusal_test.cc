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
