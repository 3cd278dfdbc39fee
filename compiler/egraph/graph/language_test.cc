#include "compiler/egraph/graph/language.h"

#include "compiler/egraph/math_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::HasSubstr;

std::string MakeError(std::vector<OpSpec> ops) {
  const absl::StatusOr<Language> language = Language::Make(std::move(ops));
  return language.ok() ? "" : std::string(language.status().message());
}

PayloadText Text() {
  return {[](PayloadId) { return "p"; }, [](std::string_view) { return PayloadId{0}; }};
}

TEST(Language, IdsAreRows) {
  const Math math;
  const Language& language = math.language();
  EXPECT_EQ(language.Find("+"), OpId{kAdd});
  EXPECT_EQ(language.Find("sym"), OpId{kSym});
  EXPECT_FALSE(language.Find("tan").valid());
  EXPECT_EQ(language.name(OpId{kIntegral}), "i");
}

TEST(Language, WrongRowsAreNamed) {
  EXPECT_THAT(MakeError({{"a b", 1}}), HasSubstr("\"a b\""));
  EXPECT_THAT(MakeError({{"?x", 1}}), HasSubstr("leading '?'"));
  EXPECT_THAT(MakeError({{"", 1}}), HasSubstr("not empty"));
  EXPECT_THAT(MakeError({{"f", 1}, {"f", 2}}), HasSubstr("declared twice"));
  EXPECT_THAT(MakeError({{"f", -2}}), HasSubstr("arity -2"));
  EXPECT_THAT(MakeError({{"f", 1, Text(), true}}), HasSubstr("no children"));
  EXPECT_THAT(MakeError({{"f", 0, std::nullopt, true}}), HasSubstr("literal"));
  EXPECT_THAT(MakeError({{"f", 0, PayloadText{}}}), HasSubstr("print and parse"));
  EXPECT_EQ(MakeError({{"f", OpSpec::kVariadic}, {"n", 0, Text(), true}}), "");
}

TEST(Language, NodesAreChecked) {
  const Math math;
  const Language& language = math.language();
  EXPECT_TRUE(language.CheckNode(OpId{kAdd}, {}, 2).ok());
  EXPECT_TRUE(language.CheckNode(OpId{kList}, {}, 0).ok());
  EXPECT_TRUE(language.CheckNode(OpId{kList}, {}, 7).ok());
  EXPECT_THAT(language.CheckNode(OpId{kAdd}, {}, 3).ToString(),
              HasSubstr("+ takes 2 children, not 3"));
  EXPECT_THAT(language.CheckNode(OpId{kAdd}, math.Number(1), 2).ToString(),
              HasSubstr("+ takes no payload"));
  EXPECT_THAT(language.CheckNode(OpId{kNum}, {}, 0).ToString(), HasSubstr("num needs a payload"));
  EXPECT_THAT(language.CheckNode(OpId{99}, {}, 0).ToString(), HasSubstr("operator 99"));
}

}  // namespace
}  // namespace athanor::egraph
