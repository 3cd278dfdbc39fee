#include "server/models/version_table.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VersionTableTest : public testing::Test {
 protected:
  static std::shared_ptr<ModelVersion> Make(const std::string& name, int64_t version,
                                            const std::string& tensor = "") {
    VersionRow row{.name = name, .version = version};
    if (!tensor.empty()) row.tensors.push_back({tensor, 4});
    return ModelVersion::Create(row, ImportedGraph{}).value();
  }
  std::shared_ptr<ModelVersion> Add(const std::string& name, int64_t version,
                                    const std::string& tensor = "") {
    auto made = Make(name, version, tensor);
    table_.Add(made);
    return made;
  }
  // Adds a version with a plan, which serves its name unless that is said otherwise.
  std::shared_ptr<ModelVersion> AddReady(const std::string& name, int64_t version) {
    auto made = Add(name, version);
    EXPECT_TRUE(made->serving().Set(std::make_shared<ServedPlan>()));
    if (const auto row = table_.TakenOverBy(*made)) table_.SetServing(*row);
    return made;
  }
  std::string Found(const std::string& name, const std::string& version) const {
    const auto found = table_.Find(name, version);
    return found.ok() ? (*found)->Describe() : std::string(found.status().message());
  }

  VersionTable table_;
};

TEST_F(VersionTableTest, FindsWhatServesElseTheNewest) {
  EXPECT_THAT(Found("m", ""), HasSubstr("model \"m\" does not exist"));
  AddReady("m", 1);
  Add("m", 2);
  EXPECT_EQ(Found("m", ""), "model \"m\", version 1");
  EXPECT_EQ(Found("m", "2"), "model \"m\", version 2");
  EXPECT_THAT(Found("m", "3"), HasSubstr("has no version 3; the newest is 2"));
  Add("n", 1);
  Add("n", 2);
  EXPECT_EQ(Found("n", ""), "model \"n\", version 2");
  for (const char* bad : {"01", " 1", "0", "-1", "x"}) {
    EXPECT_EQ(table_.Find("m", bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(VersionTableTest, ListsByNameAndNewestFirst) {
  const auto n1 = Add("n", 1, "t");
  const auto m1 = Add("m", 1, "u");
  const auto m2 = Add("m", 2, "t");
  EXPECT_THAT(table_.List(""), ElementsAre(m2, m1, n1));
  EXPECT_THAT(table_.List("m"), ElementsAre(m2, m1));
  EXPECT_THAT(table_.List("x"), IsEmpty());
  EXPECT_THAT(table_.With([](const std::string& hash) { return hash == "t"; }),
              ElementsAre(m2, n1));
  EXPECT_EQ(table_.count(), 3);
}

TEST_F(VersionTableTest, ANewerVersionTakesOverUnlessRolledBack) {
  const auto first = AddReady("m", 1);
  const auto second = AddReady("m", 2);
  EXPECT_TRUE(table_.Serves(*second));
  EXPECT_EQ(table_.TakenOverBy(*first), std::nullopt);
  table_.SetServing(table_.RolledBack("m", "").value());
  EXPECT_TRUE(table_.Serves(*first));
  EXPECT_EQ(table_.TakenOverBy(*second), std::nullopt);
  EXPECT_THAT(std::string(table_.RolledBack("m", "").status().message()),
              HasSubstr("has no earlier version that is ready; version 1 serves"));
  EXPECT_TRUE(table_.Serves(*first));
  const auto third = AddReady("m", 3);
  EXPECT_TRUE(table_.Serves(*third));
  EXPECT_EQ(table_.TakenOverBy(*Make("x", 1)), std::nullopt);
}

TEST_F(VersionTableTest, RollsBackToAVersionThatIsReadyOnly) {
  AddReady("m", 1);
  Add("m", 2);
  EXPECT_EQ(table_.RolledBack("m", "2").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(table_.RolledBack("m", "3").status().code(), absl::StatusCode::kNotFound);
  const auto row = table_.RolledBack("m", "1");
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->serving, 1);
  EXPECT_EQ(row->rolled_back, 2);
}

TEST_F(VersionTableTest, TheNewestThatIsReadyTakesOverFromADeletedOne) {
  AddReady("m", 1);
  const auto second = AddReady("m", 2);
  const auto third = AddReady("m", 3);
  const auto fourth = Add("m", 4);
  EXPECT_EQ(table_.Remove("m", {fourth}), std::nullopt);
  const auto row = table_.Remove("m", {third});
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->serving, 2);
  EXPECT_TRUE(table_.Serves(*second));
  EXPECT_EQ(table_.Remove("m", table_.List("m")), std::nullopt);
  EXPECT_EQ(table_.count(), 0);
  EXPECT_FALSE(table_.Find("m", "").ok());
}

// A version may be added between the two steps of a takeover.
TEST_F(VersionTableTest, SettingWhatServesKeepsTheNextNumber) {
  EXPECT_EQ(table_.NextNumber("m"), 0);
  const auto first = Add("m", 1);
  const auto row = table_.TakenOverBy(*first);
  ASSERT_TRUE(row.has_value());
  Add("m", 2);
  table_.SetServing(*row);
  EXPECT_EQ(table_.NextNumber("m"), 3);
  EXPECT_TRUE(table_.Serves(*first));
}

TEST_F(VersionTableTest, AVersionTakesThePlaceOfOneOfItsNumber) {
  const auto first = AddReady("m", 3);
  EXPECT_EQ(table_.NextNumber("m"), 4);
  AddReady("m", 1);
  EXPECT_EQ(table_.NextNumber("m"), 4);
  const auto second = Make("m", 3);
  EXPECT_EQ(table_.Add(second), first);
  EXPECT_EQ(table_.count(), 2);
  EXPECT_FALSE(table_.Holds(*first));
  EXPECT_TRUE(table_.Holds(*second));
  EXPECT_EQ(table_.Find("m", "").value(), second);
  EXPECT_FALSE(table_.TakenOverBy(*first).has_value());
  EXPECT_EQ(table_.Add(Make("m", 4)), nullptr);
}

TEST_F(VersionTableTest, ARollbackIsOverForWhatTakesItsPlace) {
  AddReady("m", 1);
  AddReady("m", 2);
  AddReady("m", 3);
  table_.SetServing(table_.RolledBack("m", "1").value());
  EXPECT_EQ(table_.TakenOverBy(*Add("m", 2)), std::nullopt);  // 3 is rolled back, and 2 with it
  const auto row = table_.TakenOverBy(*Add("m", 3));
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->serving, 3);
  EXPECT_EQ(row->rolled_back, 2);
}

TEST_F(VersionTableTest, LoadsNamesThatHaveVersions) {
  const auto version = Make("m", 2);
  table_.Load({{.name = "gone", .next_version = 4}, {.name = "m", .next_version = 7, .serving = 2}},
              {version});
  EXPECT_EQ(table_.NextNumber("gone"), 0);
  EXPECT_EQ(table_.NextNumber("m"), 7);
  EXPECT_TRUE(table_.Serves(*version));
  EXPECT_EQ(table_.count(), 1);
}

}  // namespace
}  // namespace athanor
