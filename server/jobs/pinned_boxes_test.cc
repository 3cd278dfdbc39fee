// Tests boxes of a version that are pinned to plans of their own.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/box_testing.h"

namespace athanor {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Each part has a found plan: found-1 for the full range, found-2 for b=1..1, found-3 for b=2..64.
class PinnedBoxesTest : public BoxTest {
 protected:
  void SetUp() override {
    BoxTest::SetUp();
    control_->Search({.first = 1, .plans = 1});
    version_ = StoreBoxes();
    control_->HoldSearches();
    const auto job = Start(version_);
    control_->AwaitSearch();
    own_ = ServedAt(*version_, 1);
    control_->ReleaseSearches();
    AwaitEnd(*job);
    ASSERT_EQ(ServedAt(*version_, 1), "found-2");
  }
  absl::Status Pin(const std::string& plan_id) {
    return core_->workers().pins().Pin("m", "", plan_id).status();
  }
  bool HasFile(const std::string& plan_id) {
    std::error_code none;
    for (const auto& entry :
         std::filesystem::directory_iterator(options_.state_dir + "/plans", none)) {
      if (absl::EndsWith(entry.path().string(), "-" + plan_id)) return true;
    }
    return false;
  }
  void RestartAndAwait() {
    Restart();
    version_ = Find();
    AwaitEnd(*JobOf(*version_));
  }

  std::shared_ptr<ModelVersion> version_;
  std::string own_;  // id of the baseline of b=1..1
};

TEST_F(PinnedBoxesTest, APlanOfABoxServesThatBoxAlone) {
  ASSERT_TRUE(Pin(own_).ok());
  EXPECT_EQ(ServedAt(*version_, 1), own_);
  EXPECT_EQ(ServedAt(*version_, 2), "found-3");
  EXPECT_EQ(ServedBy(*version_), "found-1");
  v1::Model model = version_->ToProto(true);
  EXPECT_FALSE(model.pinned());
  EXPECT_TRUE(model.buckets(0).pinned());
  EXPECT_EQ(model.buckets(0).plan_id(), own_);
  EXPECT_EQ(model.buckets(0).reason(), "");
  EXPECT_FALSE(model.buckets(1).pinned());
  EXPECT_TRUE(HasFile(own_));
  // Pins another plan instead.
  ASSERT_TRUE(Pin("found-2").ok());
  EXPECT_EQ(ServedAt(*version_, 1), "found-2");
  EXPECT_FALSE(HasFile(own_));
  ASSERT_TRUE(Pin(own_).ok());
  ASSERT_TRUE(Pin("").ok());
  EXPECT_EQ(ServedAt(*version_, 1), "found-2") << "the latest that served by itself";
  EXPECT_FALSE(version_->ToProto(true).buckets(0).pinned());
  EXPECT_FALSE(HasFile(own_));
}

TEST_F(PinnedBoxesTest, AVersionAndItsBoxesArePinnedBesideEachOther) {
  ASSERT_TRUE(Pin(own_).ok());
  ASSERT_TRUE(Pin("found-1").ok());
  EXPECT_EQ(ServedAt(*version_, 1), own_);
  EXPECT_EQ(ServedAt(*version_, 2), "found-1");
  EXPECT_EQ(version_->ToProto(true).buckets(0).reason(), "");
  EXPECT_THAT(version_->ToProto(true).buckets(1).reason(), HasSubstr("is pinned to a plan of"));
  RestartAndAwait();
  EXPECT_EQ(ServedAt(*version_, 1), own_);
  EXPECT_EQ(ServedAt(*version_, 2), "found-1");
  EXPECT_THAT(EventsSinceRestart(), IsEmpty());
  ASSERT_TRUE(Pin("").ok());
  EXPECT_EQ(version_->pinned_plan(), "");
  EXPECT_EQ(ServedAt(*version_, 1), "found-2") << "the best that is kept";
}

TEST_F(PinnedBoxesTest, APinIsThereAfterARestart) {
  ASSERT_TRUE(Pin(own_).ok());
  RestartAndAwait();
  EXPECT_EQ(ServedAt(*version_, 1), own_);
  EXPECT_EQ(ServedAt(*version_, 2), "found-3");
  EXPECT_TRUE(version_->ToProto(true).buckets(0).pinned());
  EXPECT_THAT(EventsSinceRestart(), IsEmpty());
  ASSERT_TRUE(Pin("").ok());
  EXPECT_EQ(ServedAt(*version_, 1), "found-2");
  RestartAndAwait();
  EXPECT_EQ(ServedAt(*version_, 1), "found-2");
  EXPECT_THAT(version_->plans().pinned_boxes(), IsEmpty());
}

// The cache may be deleted, a pin must last: its kernels are compiled again.
TEST_F(PinnedBoxesTest, APinOutlivesTheCache) {
  ASSERT_TRUE(Pin("found-2").ok());
  core_.reset();
  control_->RememberIn(FreshDirectory() + "/cache.db");
  RestartAndAwait();
  EXPECT_EQ(ServedAt(*version_, 1), "found-2");
  EXPECT_THAT(EventsSinceRestart(), Contains("verify found-2"));
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  core_->workers().CancelFor(*version_);
  EXPECT_FALSE(HasFile("found-2"));
}

TEST_F(PinnedBoxesTest, NothingIsSearchedForIt) {
  ASSERT_TRUE(Pin(own_).ok());
  const size_t before = Searches().size();
  const Job end = AwaitEnd(*StartWith(version_, "1h"));
  EXPECT_EQ(end.buckets_searched(), 1);
  EXPECT_EQ(Searches().size(), before + 2);
  EXPECT_EQ(ServedAt(*version_, 1), own_);
  EXPECT_EQ(ServedAt(*version_, 2), "found-5");
}

// The box is pinned while its search runs.
TEST_F(PinnedBoxesTest, WhatIsFoundMeanwhileDoesNotServeIt) {
  control_->HoldSearches();
  const auto job = StartWith(version_, "1h");
  control_->AwaitSearch();
  Steps(3);  // steps of the full range: found-4
  Steps(1);
  EXPECT_EQ(job->state().search_bucket(), "b=1..1");
  ASSERT_TRUE(Pin(own_).ok());
  control_->ReleaseSearches();
  AwaitEnd(*job);
  EXPECT_EQ(ServedAt(*version_, 1), own_);
  EXPECT_THAT(control_->events(), Contains("refused found-5"));
}

TEST_F(PinnedBoxesTest, OtherBucketsMustHaveItToo) {
  ASSERT_TRUE(Pin(own_).ok());
  const auto with = [&](const std::vector<std::pair<int, int>>& spans) {
    BucketGrid::Ranges buckets;
    v1::DimBuckets* of_b = buckets.Add();
    of_b->set_dim("b");
    for (const auto& [min, max] : spans) {
      auto* range = of_b->add_ranges();
      range->set_min(min);
      range->set_max(max);
    }
    return AwaitEnd(*core_->workers().Start(version_, WithBudget("0"), buckets).value());
  };
  const Job lost = with({{1, 8}, {9, 64}});
  EXPECT_EQ(lost.phase(), Job::FAILED);
  EXPECT_THAT(lost.error(), HasSubstr("bucket b=1..1 is pinned to plan " + own_));
  EXPECT_EQ(ServedAt(*version_, 1), own_);
  EXPECT_EQ(with({{1, 1}, {2, 8}, {9, 64}}).phase(), Job::DONE);
  EXPECT_EQ(ServedAt(*version_, 1), own_);
  EXPECT_EQ(version_->ToProto(true).buckets_size(), 3);
  RestartAndAwait();
  EXPECT_EQ(ServedAt(*version_, 1), own_);
}

TEST_F(PinnedBoxesTest, AnUnknownPlanIsNotFoundAndThereAreTheseOthers) {
  const absl::Status status = Pin("none");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  for (const char* found : {"found-1", "found-2", "found-3"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(found));
  }
}

}  // namespace
}  // namespace athanor
