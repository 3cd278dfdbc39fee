// If a plan was being loaded when a tensor of its model was found damaged, the plan was published
// all the same and served the damaged weights; and watchers of the model's health were not told
// that it had stopped serving.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/storage_testing.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sets up a version that serves in two boxes, and its plan as a loader holds it.
class DamagedWhilePublishedTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    messages_ = UploadMessages("m", model_);
    v1::DimBuckets* buckets = messages_[0].mutable_header()->add_buckets();
    buckets->set_dim("b");
    for (const auto& [min, max] : {std::pair{1, 1}, {2, 8}}) {
      auto* range = buckets->add_ranges();
      range->set_min(min);
      range->set_max(max);
    }
    version_ = Served();
    plan_ = version_->plan();
    grid_ = version_->plans().grid();
    ASSERT_NE(plan_, nullptr);
    ASSERT_EQ(grid_->size(), 3);
  }

  std::shared_ptr<ModelVersion> Served() {
    const std::shared_ptr<ModelVersion> version = Store(messages_);
    const auto job = core_->workers().Start(version);
    EXPECT_TRUE(job.ok()) << job.status();
    while (job.ok() && !(*job)->finished()) std::this_thread::yield();
    return version;
  }
  // Finds the damage as an upload that names the tensor does.
  void FindDamage() {
    DamageFile(TensorPath(options_.state_dir, hash_));
    EXPECT_FALSE(core_->registry().Pin({hash_}).ok());
    EXPECT_EQ(version_->plan(), nullptr);
  }
  void ExpectRefused(const absl::Status& status) {
    const auto named = AllOf(HasSubstr("model \"m\", version 1, is damaged and not served"),
                             HasSubstr("parameter \"table\""), HasSubstr("has SHA-256"));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), named);
    EXPECT_EQ(version_->plan(), nullptr);
    for (const PlanBook& box : version_->plans().view().books) {
      EXPECT_EQ(box.serving, nullptr);
    }
    EXPECT_EQ(version_->state(), v1::Model::FAILED);
    EXPECT_EQ(version_->pinned_plan(), "");
    EXPECT_THAT(version_->ToProto(true).error(), named);
  }

  const TestModel model_ = GatherModel({2, 3, 5});
  const std::string hash_ = model_.tensors.begin()->first;
  std::vector<v1::UploadModelRequest> messages_;
  std::shared_ptr<ModelVersion> version_;
  std::shared_ptr<const ServedPlan> plan_;
  std::shared_ptr<const BucketGrid> grid_;
};

TEST_F(DamagedWhilePublishedTest, APlanOfTheFullRangeIsRefused) {
  FindDamage();
  ExpectRefused(core_->registry().Publish(version_, plan_));
  ExpectRefused(core_->registry().Restore(version_, plan_, version_->plans().view().full().kept));
  ExpectRefused(core_->registry().PinPlan(version_, plan_->id(), plan_));
}

TEST_F(DamagedWhilePublishedTest, APlanOfABoxIsRefused) {
  FindDamage();
  ExpectRefused(core_->registry().PublishBox(*version_, grid_, 1, plan_));
  ExpectRefused(core_->registry().PublishBoxes(
      *version_, grid_, std::vector<PlanBook>(3, PlanBook{.serving = plan_})));
  ExpectRefused(core_->registry().PinBox(*version_, grid_, 1, plan_));
}

TEST_F(DamagedWhilePublishedTest, APlanThatABoxIsUnpinnedToIsRefused) {
  ASSERT_TRUE(core_->registry().PinBox(*version_, grid_, 1, plan_).ok());
  FindDamage();
  ExpectRefused(core_->registry().UnpinBoxes(*version_, {nullptr, plan_, plan_}));
}

// A plan loaded before still maps the damaged file.
TEST_F(DamagedWhilePublishedTest, OfAHealedVersionOnlyWhatWasLoadedSinceServes) {
  FindDamage();
  Store(messages_);
  const absl::Status ready = Await(*version_);
  ASSERT_TRUE(ready.ok()) << ready;
  const std::shared_ptr<const ServedPlan> healed = version_->plan();
  const absl::Status refused = core_->registry().Publish(version_, plan_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAborted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("damaged while the plan was loaded"));
  EXPECT_EQ(version_->plan(), healed);
  const absl::Status published = core_->registry().Publish(version_, healed);
  EXPECT_TRUE(published.ok()) << published;
}

TEST_F(DamagedWhilePublishedTest, ADeletedVersionIsNotCalledDamaged) {
  FindDamage();
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  const absl::Status published = core_->registry().Publish(version_, plan_);
  EXPECT_EQ(published.code(), absl::StatusCode::kAborted) << published;
}

TEST_F(DamagedWhilePublishedTest, WatchersAreToldOnceNothingServes) {
  messages_[0].mutable_header()->set_name("shares_it");
  const auto sharing = Served();
  Store("other", ScaleModel({5}));
  std::vector<std::string> told;
  core_->registry().SetServingHook([&](const std::string& name) {
    const bool serves = core_->registry().Find(name, "").value()->plan() != nullptr;
    told.push_back(absl::StrCat(name, serves ? " serves" : " does not serve"));
  });
  FindDamage();
  core_->registry().SetServingHook(nullptr);
  EXPECT_THAT(told, ElementsAre("m does not serve", "shares_it does not serve"));
}

}  // namespace
}  // namespace athanor
