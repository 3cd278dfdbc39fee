#include "server/plans/plan_book.h"

#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::shared_ptr<const CompiledPlan> Compiled(const std::string& id) {
  auto compiled = std::make_shared<CompiledPlan>();
  compiled->plan.set_plan_id(id);
  return compiled;
}

ServedPlan Served(const std::string& id) {
  ServedPlan plan;
  plan.compiled = Compiled(id);
  return plan;
}

std::vector<std::string> Ids(const std::vector<KeptPlan>& plans) {
  std::vector<std::string> ids;
  for (const KeptPlan& plan : plans) ids.push_back(plan.plan->id());
  return ids;
}

TEST(PlanBookTest, AnEmptyBookHasNoPlans) {
  const PlanBook book;
  EXPECT_EQ(book.Find("a"), nullptr);
  EXPECT_EQ(book.latest(), nullptr);
  EXPECT_EQ(book.first(), nullptr);
}

TEST(PlanBookTest, ABoxKeepsItsFirstTheLatestAndTheOneThatServes) {
  PlanBook book;
  ASSERT_EQ(book.most, 3u);
  for (const char* id : {"first", "second", "third"}) {
    EXPECT_THAT(book.AddServed(Served(id)), IsEmpty()) << id;
  }
  EXPECT_THAT(Ids(book.AddServed(Served("fourth"))), ElementsAre("second"));
  EXPECT_THAT(Ids(book.kept), ElementsAre("first", "third", "fourth"));
  // "third" serves again by a pin, and stays although it is older.
  EXPECT_THAT(Ids(book.AddFound(Compiled("found"), "third")), ElementsAre("found"));
  EXPECT_THAT(Ids(book.AddFound(Compiled("found"), "fourth")), ElementsAre("third"));
  EXPECT_THAT(Ids(book.kept), ElementsAre("first", "fourth", "found"));
  EXPECT_EQ(book.latest()->id(), "fourth") << "what was only found has not served";
  EXPECT_EQ(book.first()->id(), "first");
}

TEST(PlanBookTest, APlanIsKeptOnce) {
  PlanBook book;
  book.AddServed(Served("a"));
  book.AddServed(Served("b"));
  const std::shared_ptr<const CompiledPlan> before = book.Find("a")->plan;
  EXPECT_THAT(book.AddFound(Compiled("a"), "b"), IsEmpty());
  EXPECT_EQ(book.Find("a")->plan, before);
  EXPECT_THAT(Ids(book.AddServed(Served("a"))), ElementsAre("a")) << "the object of before";
  EXPECT_NE(book.Find("a")->plan, before);
  EXPECT_THAT(Ids(book.kept), ElementsAre("b", "a"));
  EXPECT_EQ(book.latest()->id(), "a");
  EXPECT_EQ(book.first()->id(), "a") << "it stays the first when it serves again";
}

// The first, the latest that served and the one to keep are always there.
TEST(PlanBookTest, AnyOrderKeepsWhatMustStay) {
  for (const size_t most : {PlanBook::kMostOfBox, PlanBook::kMost}) {
    std::mt19937 random(most);
    for (int round = 0; round < 200; ++round) {
      PlanBook book;
      book.most = most;
      std::string first, latest;
      for (int step = 0; step < 40; ++step) {
        const std::string id = absl::StrCat("p", random() % 12);
        const std::string keep =
            book.kept.empty() ? id : book.kept[random() % book.kept.size()].plan->id();
        const bool serves = random() % 2 == 0 || first.empty();
        const std::vector<KeptPlan> given_up =
            serves ? book.AddServed(Served(id)) : book.AddFound(Compiled(id), keep);
        if (first.empty()) first = id;
        if (serves) latest = id;
        const std::vector<std::string> ids = Ids(book.kept);
        ASSERT_LE(ids.size(), most);
        ASSERT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
        ASSERT_EQ(book.first()->id(), first);
        ASSERT_EQ(book.latest()->id(), latest);
        ASSERT_NE(book.Find(serves ? id : keep), nullptr);
        for (const KeptPlan& gone : given_up) {
          ASSERT_TRUE(gone.plan->id() == id || book.Find(gone.plan->id()) == nullptr);
        }
      }
    }
  }
}

}  // namespace
}  // namespace athanor
