// Times that a device worker tells are held against what was asked.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuner/measure/measure.h"
#include "server/tuner/run/device_worker_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class MeasureInWorkerTest : public ::testing::Test {
 protected:
  MeasureInWorkerTest() {
    for (const int steps : {2, 3}) {
      internal::MeasuredPlan* plan = request_.add_plans();
      plan->mutable_plan()->add_dims()->set_name("n");
      for (int s = 0; s < steps; ++s) plan->mutable_plan()->add_run();
      internal::PlanTimes* times = reply_.add_plans();
      for (int size = 0; size < 2; ++size) {
        internal::SizeTimes* time = times->add_sizes();
        time->set_seconds(1e-3);
        time->set_low(1e-3);
        time->set_high(1e-3);
        time->set_rounds(5);
        time->set_calls(1);
        time->set_ratio(1);
        time->set_ratio_low(1);
        time->set_ratio_high(1);
        time->set_layers(1);
        time->set_turns(1);
        for (int s = 0; s < steps; ++s) time->add_step_seconds(1e-4);
      }
    }
    for (int size = 0; size < 2; ++size) request_.add_sizes()->add_values(7);
    request_.set_steps(true);
  }
  void ExpectRefused() {
    const absl::Status status = Measure();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the device worker's times do not fit"));
  }
  absl::Status Measure() {
    FakeWorker worker([&](const internal::WorkerJob&, internal::WorkerReply* reply) {
      *reply->mutable_measure() = reply_;
    });
    InputMemory memory;
    return MeasurePlans(request_, worker.limits(), TrafficReader(), &memory).status();
  }

  internal::MeasureRequest request_;
  internal::MeasureReply reply_;
};

TEST_F(MeasureInWorkerTest, TimesOfEachPlanSizeAndStep) {
  EXPECT_TRUE(Measure().ok()) << Measure();
  request_.set_steps(false);
  ExpectRefused();
  for (internal::PlanTimes& plan : *reply_.mutable_plans()) {
    for (internal::SizeTimes& size : *plan.mutable_sizes()) size.clear_step_seconds();
  }
  EXPECT_TRUE(Measure().ok()) << Measure();
  request_.set_steps(true);
  ExpectRefused();
}

TEST_F(MeasureInWorkerTest, AStepMoreOrLess) {
  internal::SizeTimes* last = reply_.mutable_plans(1)->mutable_sizes(1);
  last->add_step_seconds(1e-4);
  ExpectRefused();
  last->mutable_step_seconds()->RemoveLast();
  EXPECT_TRUE(Measure().ok());
  last->mutable_step_seconds()->RemoveLast();
  ExpectRefused();
}

TEST_F(MeasureInWorkerTest, APlanOrASizeLess) {
  reply_.mutable_plans(1)->mutable_sizes()->RemoveLast();
  ExpectRefused();
  reply_.mutable_plans()->RemoveLast();
  ExpectRefused();
}

}  // namespace
}  // namespace athanor
