#include "server/shared_memory/shared_regions.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shared_memory/shared_object_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

const SharedUser kAnna{.owner = "anna", .local = true}, kBen{.owner = "ben", .local = true};

std::string NamesOf(const SharedRegions& regions, const SharedUser& user) {
  std::string names;
  const auto places = regions.List(user, "");
  EXPECT_TRUE(places.ok());
  for (const SharedPlace& place : *places) absl::StrAppend(&names, place.name, " ");
  return names;
}

TEST(SharedRegionsTest, BelongToWhoRegistered) {
  SharedObject object("own", 16), other("other", 16);
  SharedRegions regions("*", 9);
  ASSERT_TRUE(regions.Register(kAnna, {"b", object.key(), 0, 8}).ok());
  ASSERT_TRUE(regions.Register(kAnna, {"a", object.key(), 8, 8}).ok());
  ASSERT_TRUE(regions.Register(kBen, {"a", other.key(), 0, 16}).ok()) << "a name of another's";
  EXPECT_EQ(NamesOf(regions, kAnna), "a b ");
  EXPECT_EQ(NamesOf(regions, kBen), "a ");
  EXPECT_EQ(regions.Find(kAnna, "a").value()->place().offset, 8);
  EXPECT_EQ(regions.Find(kBen, "b").status().code(), Code::kNotFound);
  EXPECT_EQ(regions.List(kBen, "b").status().code(), Code::kNotFound);
  const absl::Status theirs = regions.Register(kBen, {"c", object.key(), 0, 1});
  EXPECT_EQ(theirs.code(), Code::kPermissionDenied);
  EXPECT_THAT(theirs.message(), HasSubstr("another identity"));
  EXPECT_EQ(regions.Register(kAnna, {"a", object.key(), 0, 1}).code(), Code::kAlreadyExists);

  const auto held = regions.Find(kAnna, "a").value();
  EXPECT_TRUE(regions.Unregister(kBen, "b").ok()) << "which is not Ben's";
  EXPECT_EQ(NamesOf(regions, kAnna), "a b ");
  EXPECT_TRUE(regions.Unregister(kAnna, "a").ok());
  EXPECT_TRUE(regions.Unregister(kAnna, "a").ok()) << "again";
  EXPECT_EQ(NamesOf(regions, kAnna), "b ");
  EXPECT_TRUE(held->Write(0, "x").ok()) << "in use while it was unregistered";
  EXPECT_TRUE(regions.Unregister(kAnna, "").ok());
  EXPECT_EQ(NamesOf(regions, kAnna), "");
  EXPECT_EQ(NamesOf(regions, kBen), "a ");
  EXPECT_TRUE(regions.Register(kBen, {"c", object.key(), 0, 1}).ok()) << "it is free now";
}

TEST(SharedRegionsTest, OffAndFromElsewhere) {
  SharedObject object("off", 16);
  SharedRegions off("", 9);
  EXPECT_FALSE(off.on());
  for (const absl::Status& status :
       {off.Register(kAnna, {"a", object.key(), 0, 1}), off.Unregister(kAnna, ""),
        off.List(kAnna, "").status(), off.List(kAnna, "a").status(),
        off.Find(kAnna, "a").status()}) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("--shared_memory"));
  }
  SharedRegions on("*", 9);
  const SharedUser far{.owner = "anna"};
  for (const absl::Status& status :
       {on.Register(far, {"a", object.key(), 0, 1}), on.Unregister(far, ""),
        on.List(far, "").status(), on.Find(far, "a").status()}) {
    EXPECT_EQ(status.code(), Code::kPermissionDenied);
    EXPECT_THAT(status.message(), HasSubstr("loopback"));
  }
}

TEST(SharedRegionsTest, KeysAndNumbersAreLimited) {
  SharedObject object("limits", 16);
  SharedRegions regions("/athanor-test-*", 2);
  const SharedUser all{.local = true};  // of a server that asks nobody
  const absl::Status other = regions.Register(all, {"a", "/psm_1234", 0, 1});
  EXPECT_EQ(other.code(), Code::kPermissionDenied);
  EXPECT_THAT(other.message(), HasSubstr("--shared_memory allows \"/athanor-test-*\""));
  EXPECT_TRUE(regions.Register(all, {"a", object.key(), 0, 1}).ok());
  EXPECT_TRUE(regions.Register(all, {"b", object.key().substr(1), 0, 1}).ok())
      << "the same key without its slash";
  const absl::Status more = regions.Register(all, {"c", object.key(), 0, 1});
  EXPECT_EQ(more.code(), Code::kResourceExhausted);
  EXPECT_THAT(more.message(), HasSubstr("--max_shared_regions"));
}

TEST(SharedRegionsTest, NamesAreShortTexts) {
  SharedObject object("names", 16);
  SharedRegions regions("*", 9);
  for (const std::string& name : {std::string(), std::string(257, 'n'), std::string("n\xff")}) {
    const absl::Status wrong = regions.Register(kAnna, {name, object.key(), 0, 1});
    EXPECT_EQ(wrong.code(), Code::kInvalidArgument) << name;
    EXPECT_THAT(wrong.message(), HasSubstr("name")) << name;
  }
  EXPECT_EQ(NamesOf(regions, kAnna), "");
  EXPECT_TRUE(regions.Register(kAnna, {std::string(256, 'n'), object.key(), 0, 1}).ok());
  EXPECT_TRUE(regions.Register(kAnna, {"\u00e9", object.key(), 0, 1}).ok());
}

// Registers as many as it may, and returns their number.
int64_t Fill(SharedRegions& regions, const SharedUser& user, const SharedObject& object) {
  for (int64_t i = 0;; ++i) {
    const absl::Status status = regions.Register(user, {absl::StrCat("r", i), object.key(), 0, 1});
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("--max_shared_regions"));
    return i;
  }
}

TEST(SharedRegionsTest, NoIdentityTakesAll) {
  SharedObject annas("annas", 16), bens("bens", 16), carls("carls", 16);
  const SharedUser carl{.owner = "carl", .local = true};
  SharedRegions regions("*", 9);
  EXPECT_EQ(Fill(regions, kAnna, annas), 5);
  EXPECT_EQ(Fill(regions, kBen, bens), 2);
  EXPECT_EQ(Fill(regions, carl, carls), 1);
  EXPECT_TRUE(regions.Unregister(kAnna, "").ok());
  EXPECT_TRUE(regions.Register(kBen, {"more", bens.key(), 0, 1}).ok()) << "there is room again";
}

TEST(SharedRegionsTest, ManyThreads) {
  SharedObject object("threads", 16);
  SharedRegions regions("*", 64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, name = absl::StrCat(t)] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(regions.Register(kAnna, {name, object.key(), 0, 16}).ok());
        const auto region = regions.Find(kAnna, name);
        EXPECT_TRUE(region.ok());
        EXPECT_TRUE(regions.List(kAnna, "").ok());
        EXPECT_TRUE(regions.Unregister(kAnna, name).ok());
        char to[16];
        EXPECT_TRUE((*region)->Read(0, 16, to).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(NamesOf(regions, kAnna), "");
}

}  // namespace
}  // namespace athanor
