#include "server/openai/names.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

TEST(NamesTest, AliasesGoAheadOfModels) {
  const ModelNames names = ModelNames::Parse(" gpt-4o = digits,small=a=b,").value();
  EXPECT_EQ(names.aliases().size(), 2u);
  EXPECT_EQ(names.Resolve("gpt-4o"), "digits");
  EXPECT_EQ(names.Resolve("small"), "a=b");
  EXPECT_EQ(names.Resolve("digits"), "digits");
  EXPECT_EQ(names.Resolve(""), "");
  EXPECT_TRUE(ModelNames::Parse("").value().aliases().empty());
}

TEST(NamesTest, WrongAliases) {
  const auto wrong = [](const std::string& aliases, const std::string& text) {
    const absl::Status status = ModelNames::Parse(aliases).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << aliases;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  wrong("a", "--openai_aliases has \"a\"; each part has to be ALIAS=MODEL");
  wrong("=m", "\"=m\"");
  wrong("a=", "\"a=\"");
  wrong("a=m,b=n,a=k", "the alias \"a\" twice");
  wrong("a=b,b=c", "the model of \"a\" is \"b\", which is an alias");
  wrong("a=a", "which is an alias");
}

}  // namespace
}  // namespace athanor
