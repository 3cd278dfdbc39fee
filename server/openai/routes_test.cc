#include "server/openai/routes.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/openai_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RoutesTest : public OpenAiTest {
 protected:
  void SetUp() override {
    options_.openai_aliases = "gpt-4o=m, a/b=m,lost=absent";
    OpenAiTest::SetUp();
  }
};

TEST_F(RoutesTest, ModelsAreThoseThatGenerate) {
  Begin({.scheduler = {.max_model_len = 77}});
  ASSERT_TRUE(core_->workers().Start(Store("scale", ScaleModel({1}))).ok());
  const auto answer = Get("/v1/models");
  EXPECT_EQ(answer.status, 200);
  const Json list = Json::parse(answer.body());
  EXPECT_EQ(list["object"], "list");
  std::vector<std::string> ids;
  for (const Json& model : list["data"]) ids.push_back(model["id"]);
  EXPECT_THAT(ids, ElementsAre("m", "a/b", "gpt-4o")) << "nor aliases of what is not there";
  Json alias = list["data"][1];
  EXPECT_GT(alias["created"], 1'700'000'000);
  alias["created"] = 0;
  EXPECT_EQ(alias.dump(), R"({"id":"a/b","object":"model","created":0,"owned_by":"athanor",)"
                          R"("root":"m","max_model_len":77,"meta":{"n_vocab":100}})");
}

TEST_F(RoutesTest, AModel) {
  Begin();
  for (const std::string name : {"m", "gpt-4o", "a/b"}) {
    const auto answer = Get("/v1/models/" + name);
    EXPECT_EQ(answer.status, 200) << name;
    EXPECT_EQ(Json::parse(answer.body())["id"], name);
  }
  for (const std::string name : {"absent", "lost", ""}) {
    const auto answer = Get("/v1/models/" + name + (name.empty() ? "/" : ""));
    EXPECT_EQ(answer.status, 404) << name;
    EXPECT_EQ(ErrorOf(answer)["code"], "model_not_found");
  }
}

TEST_F(RoutesTest, AnswersNameTheAlias) {
  Begin();
  engine_->AtStart([](const Sequence& sequence) { End(sequence, "x"); });
  const auto answer =
      Ask("POST", "/v1/completions", R"({"model":"gpt-4o","prompt":"a"})")->AwaitEnd();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Json::parse(answer.body())["model"], "gpt-4o");
}

TEST_F(RoutesTest, HealthFollowsTheServer) {
  Begin();
  EXPECT_EQ(Get("/health").status, 200);
  core_->StartDraining();
  EXPECT_EQ(Get("/health").status, 503);
}

TEST_F(RoutesTest, RolesAndLimits) {
  const auto routes = OpenAiRoutes(core_.get(), writer_).value();
  for (const Route& route : routes) {
    EXPECT_EQ(route.role, route.path == "/health" ? Role::kNone : Role::kInfer) << route.path;
    EXPECT_EQ(route.most_body, route.method == "POST" ? options_.max_message_bytes : 0);
  }
  EXPECT_EQ(routes.size(), 6u);
}

TEST(AliasTest, WrongOnesAreToldAtTheStart) {
  // As CoreTest, which would make the routes' options ahead.
  ServerOptions options;
  options.state_dir = FreshDirectory();
  options.openai_aliases = "a=b,b=c";
  const auto control = std::make_shared<TestControl>();
  const auto core = ServerCore::Create(options, EvaluatorFactory(control)).value();
  const auto routes = OpenAiRoutes(core.get(), nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(routes.status()));
  EXPECT_THAT(std::string(routes.status().message()), HasSubstr("which is an alias"));
}

}  // namespace
}  // namespace athanor
