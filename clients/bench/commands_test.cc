#include "clients/bench/commands.h"

#include <unistd.h>

#include "clients/bench/figures/store.h"
#include "clients/cpp/inputs/text_input.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string Path(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name + std::to_string(getpid());
  unlink(path.c_str());
  return path;
}

TEST(ReadResultsTest, AResultsFileHasItsRunsAndTheirComparison) {
  const std::string path = Path("results.db");
  const json one = {{"label", "one"}}, two = {{"label", "two"}};
  {
    auto store = Store::Open(path);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->AddAll({{&one, nullptr}, {&two, nullptr}}, {{"ratios", {}}}).ok());
  }
  const auto all = ReadResults(path);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->runs.size(), 2u);
  ASSERT_EQ(all->comparisons.size(), 1u);
  EXPECT_EQ(all->comparisons[0]["first"], 1);
  EXPECT_EQ(all->comparisons[0]["second"], 2);
  const auto second = ReadResults(path + ":2");
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->runs.size(), 1u);
  EXPECT_EQ(second->runs[0]["label"], "two");
  EXPECT_TRUE(second->comparisons.empty());
  EXPECT_THAT(std::string(ReadResults(path + ":7").status().message()), HasSubstr("no run 7"));
}

TEST(ReadResultsTest, JsonHasOneRunOrTwoAndTheirComparison) {
  const std::string path = Path("run.json");
  ASSERT_TRUE(client::WriteFile(path, R"({"model_id": "m"})").ok());
  EXPECT_EQ(ReadResults(path)->runs.size(), 1u);
  EXPECT_TRUE(ReadResults(path)->comparisons.empty());
  ASSERT_TRUE(client::WriteFile(path, R"({"runs": [{}, {}], "comparison": {"ratios": {}}})").ok());
  EXPECT_EQ(ReadResults(path)->runs.size(), 2u);
  EXPECT_EQ(ReadResults(path)->comparisons.size(), 1u);
  ASSERT_TRUE(client::WriteFile(path, "[1, 2]").ok());
  EXPECT_THAT(std::string(ReadResults(path).status().message()), HasSubstr(path));
  EXPECT_THAT(std::string(ReadResults("/no/such.db:3").status().message()),
              HasSubstr("/no/such.db"));
}

}  // namespace
}  // namespace athanor::bench
