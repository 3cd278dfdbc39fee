// Tests that plans of a version that serve have one signature, whichever way they come to serve.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/box_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class PlanSignaturesTest : public BoxTest {
 protected:
  void SetUp() override {
    BoxTest::SetUp();
    version_ = StoreBoxes();
    AwaitEnd(*Start(version_));
  }
  Publisher& publisher() { return core_->registry().publisher(); }

  // The plan that serves everything, as if it were another.
  std::shared_ptr<const ServedPlan> Plan(const std::string& id, const std::string& signature,
                                         const std::string& device = "cpu") {
    auto plan = std::make_shared<ServedPlan>(*version_->plan());
    auto compiled = std::make_shared<CompiledPlan>(*plan->compiled);
    compiled->plan.set_plan_id(id);
    compiled->plan.set_signature(signature);
    compiled->plan.mutable_target()->set_device(device);
    plan->compiled = std::move(compiled);
    return plan;
  }
  static void ExpectRefused(const absl::Status& status, const std::string& id) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("plan \"" + id + "\" has signature \"b\""));
  }

  std::shared_ptr<ModelVersion> version_;
};

TEST_F(PlanSignaturesTest, TheFirstPlanFixesThatOfAll) {
  ASSERT_TRUE(publisher().Publish(version_, Plan("first", "a")).ok());
  ExpectRefused(publisher().Publish(version_, Plan("other", "b")), "other");
  EXPECT_EQ(ServedBy(*version_), "first");
  ASSERT_TRUE(publisher().Publish(version_, Plan("second", "a")).ok());
  EXPECT_EQ(ServedBy(*version_), "second");
  ExpectRefused(publisher().Restore(version_, Plan("restored", "b"), {}), "restored");
  ExpectRefused(publisher().PinPlan(version_, "pinned", Plan("pinned", "b")), "pinned");
  EXPECT_EQ(ServedBy(*version_), "second");
  EXPECT_EQ(version_->pinned_plan(), "");
}

TEST_F(PlanSignaturesTest, BoxesHaveItToo) {
  ASSERT_TRUE(publisher().Publish(version_, Plan("first", "a")).ok());
  const Plans::Grid grid = version_->plans().grid();
  ExpectRefused(publisher().PublishBox(*version_, grid, 1, Plan("other", "b")), "other");
  ExpectRefused(publisher().PinBox(*version_, grid, 1, Plan("pinned", "b")), "pinned");
  ASSERT_TRUE(publisher().PublishBox(*version_, grid, 1, Plan("box", "a")).ok());
  EXPECT_EQ(version_->plans().view().box(1).serving->id(), "box");
  // Other boxes at once: those whose plans do not fit are served by the full range's.
  std::vector<PlanBook> boxes(grid->size());
  boxes[1].serving = Plan("fits", "a");
  boxes[2].serving = Plan("not", "b");
  ASSERT_TRUE(publisher().PublishBoxes(*version_, grid, std::move(boxes)).ok());
  const Plans::View view = version_->plans().view();
  EXPECT_EQ(view.box(1).serving->id(), "fits");
  EXPECT_EQ(view.box(2).serving, nullptr);
  EXPECT_THAT(view.box(2).reason, HasSubstr("plan \"not\" has signature \"b\""));
}

TEST_F(PlanSignaturesTest, AnotherTargetFixesAnother) {
  ASSERT_TRUE(publisher().Publish(version_, Plan("first", "a")).ok());
  EXPECT_TRUE(publisher().Publish(version_, Plan("gpu", "b", "cuda")).ok());
  EXPECT_EQ(ServedBy(*version_), "gpu");
}

// Plans without states have none, and take turns as they like.
TEST_F(PlanSignaturesTest, PlansWithoutOneAreFree) {
  ASSERT_TRUE(publisher().Publish(version_, Plan("first", "")).ok());
  EXPECT_TRUE(publisher().Publish(version_, Plan("second", "")).ok());
  EXPECT_EQ(ServedBy(*version_), "second");
}

TEST_F(PlanSignaturesTest, PlansWithStatesNeedOne) {
  ASSERT_TRUE(publisher().Publish(version_, Plan("first", "")).ok());
  const std::shared_ptr<const ServedPlan> plan = Plan("states", "");
  auto compiled = std::make_shared<CompiledPlan>(*plan->compiled);
  compiled->plan.add_buffers()->set_kind(v1::Buffer::STATE);
  auto with_states = std::make_shared<ServedPlan>(*plan);
  with_states->compiled = std::move(compiled);
  const absl::Status status = publisher().Publish(version_, std::move(with_states));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("plan \"states\" has states and no signature"));
  EXPECT_EQ(ServedBy(*version_), "first");
}

}  // namespace
}  // namespace athanor
