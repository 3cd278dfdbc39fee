#include "server/http/routes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

Routes Some() {
  return Routes({{.method = "GET", .path = "/"},
                 {.method = "GET", .path = "/models"},
                 {.method = "POST", .path = "/models"},
                 {.method = "GET", .path = "/models/*"},
                 {.method = "DELETE", .path = "/models/*"}});
}

TEST(RoutesTest, Finds) {
  const Routes routes = Some();
  const auto found = [&](const char* method, const char* path) -> std::string {
    const Routes::Found at = routes.Find(method, path);
    EXPECT_EQ(at.status, 200);
    return at.route == nullptr ? "" : at.route->method + " " + at.route->path;
  };
  EXPECT_EQ(found("GET", "/"), "GET /");
  EXPECT_EQ(found("HEAD", "/models"), "GET /models");
  EXPECT_EQ(found("POST", "/models"), "POST /models");
  EXPECT_EQ(found("GET", "/models/a"), "GET /models/*");
  EXPECT_EQ(found("DELETE", "/models/a/b"), "DELETE /models/*");
}

TEST(RoutesTest, Refuses) {
  const Routes routes = Some();
  for (const char* path : {"", "/models2", "/models/", "//", "models", "/Models", "*"}) {
    EXPECT_EQ(routes.Find("GET", path).status, 404) << path;
    EXPECT_EQ(routes.Find("GET", path).route, nullptr) << path;
  }
  EXPECT_EQ(routes.Find("PUT", "/models").status, 405);
  EXPECT_EQ(routes.Find("PUT", "/models").allow, "GET, HEAD, POST");
  EXPECT_EQ(routes.Find("POST", "/models/a").allow, "DELETE, GET, HEAD");
  EXPECT_EQ(routes.Find("get", "/").status, 405);
  EXPECT_EQ(Routes({}).Find("GET", "/").status, 404);
  EXPECT_EQ(routes.Paths(), " / /models /models/*");
}

}  // namespace
}  // namespace athanor
