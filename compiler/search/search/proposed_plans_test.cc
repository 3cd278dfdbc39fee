#include "compiler/search/search/proposed_plans.h"

#include <utility>

#include "gtest/gtest.h"

namespace athanor {
namespace {

PlanCandidate Plan(int form, double predicted) {
  PlanCandidate plan;
  plan.form = form;
  plan.predicted = predicted;
  return plan;
}

TEST(ProposedPlansTest, AnEqualPlanIsProposedOnce) {
  ProposedPlans plans(0.02);
  plans.AddServing(0, {});
  EXPECT_EQ(plans.Add(Plan(0, 0.9)), std::nullopt);
  EXPECT_EQ(plans.Add(Plan(1, 0.9)), 0);
  EXPECT_EQ(plans.Add(Plan(1, 0.8)), std::nullopt);
  EXPECT_EQ(plans.Add(Plan(2, 0.8)), 1);
  EXPECT_EQ(plans.size(), 2);
}

TEST(ProposedPlansTest, APlanThatServesHasToBeBeaten) {
  ProposedPlans plans(0.02);
  EXPECT_TRUE(plans.Promises(0.98, 0.02));
  EXPECT_FALSE(plans.Promises(0.99, 0.02));
  EXPECT_EQ(plans.taken(), nullptr);
  const int id = *plans.Add(Plan(1, 0.5));
  plans.Tell(id, true, 0.5);
  EXPECT_EQ(plans.taken(), &plans.plan(id));
  EXPECT_EQ(plans.unheld(), 1);
  EXPECT_FALSE(plans.Promises(0.5, 0.02));
  EXPECT_TRUE(plans.Promises(0.49, 0.02));
}

TEST(ProposedPlansTest, APlanThatFellShortCorrectsThePromise) {
  ProposedPlans plans(0.02);
  // Half of the time was promised; it takes 0.8 of it.
  plans.Tell(*plans.Add(Plan(1, 0.5)), false, 0.8);
  EXPECT_DOUBLE_EQ(plans.unheld(), 1.6);
  EXPECT_FALSE(plans.Promises(0.63, 0));
  EXPECT_TRUE(plans.Promises(0.62, 0));
}

TEST(ProposedPlansTest, APlanThatWasNotMeasuredRaisesTheBarByTheLeastGain) {
  ProposedPlans plans(0.1);
  plans.Tell(*plans.Add(Plan(1, 0.5)), false, std::nullopt);
  EXPECT_EQ(plans.unheld(), 1);
  EXPECT_TRUE(plans.Promises(0.54, 0));
  EXPECT_FALSE(plans.Promises(0.56, 0));
}

}  // namespace
}  // namespace athanor
