#include "server/search/search_record.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(SearchRecordTest, AStepKeepsWhatOnlyTheServerKnows) {
  SearchRecord record;
  EXPECT_EQ(record.progress().best(), 1);
  record.CountFromCache();
  record.CountPlanMeasured();
  record.CountPlanFailed();
  record.TakePlan(0.5);
  record.TakePlan(0.5);
  record.AddTime("compile", 2, 3);
  record.Fail({}, absl::DataLossError("y is wrong"));
  v1::SearchProgress step;
  step.set_candidates(7);
  record.TakeStep(step);
  const v1::SearchProgress& progress = record.progress();
  EXPECT_EQ(progress.candidates(), 7);
  EXPECT_EQ(progress.candidates_from_cache(), 1);
  EXPECT_EQ(progress.plans_measured(), 1);
  EXPECT_EQ(progress.plans_failed(), 1);
  EXPECT_EQ(progress.plans_taken(), 2);
  EXPECT_EQ(progress.best(), 0.25);
  ASSERT_EQ(progress.times_size(), 1);
  EXPECT_EQ(progress.failures_size(), 1);
}

TEST(SearchRecordTest, TimesAddUpByWhatTheyAreFor) {
  SearchRecord record;
  record.AddTime("compile", 1, 1);
  record.AddTime("measure", 5, 2);
  record.AddTime("compile", 2, 1);
  EXPECT_EQ(record.Timed("check", [] { return 42; }), 42);
  const v1::SearchProgress& progress = record.progress();
  ASSERT_EQ(progress.times_size(), 3);
  EXPECT_EQ(progress.times(0).on(), "compile");
  EXPECT_EQ(progress.times(0).seconds(), 3);
  EXPECT_EQ(progress.times(0).calls(), 2);
  EXPECT_EQ(progress.times(1).calls(), 2);
  EXPECT_EQ(progress.times(2).on(), "check");
}

TEST(SearchRecordTest, TheLatestFailuresAreShown) {
  SearchRecord record;
  for (int i = 0; i < 20; ++i) {
    v1::SearchFailure failure;
    failure.set_plan_id(std::string(1, static_cast<char>('a' + i)));
    failure.set_from_cache(i % 2 == 0);
    record.Fail(failure, absl::InternalError("crashed"));
  }
  const v1::SearchProgress& progress = record.progress();
  ASSERT_EQ(progress.failures_size(), 8);
  EXPECT_EQ(progress.failures(0).plan_id(), "t");
  EXPECT_EQ(progress.failures(0).code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_EQ(progress.failures_from_cache(), 10);
}

}  // namespace
}  // namespace athanor
