// Measures kernels alone, as layers of a model (server/tuner/measure/layers.h). No test depends on
// the times.
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

class MeasureTest : public TunerTest {
 protected:
  // Makes a request for the graph's baseline, at the given values of its one dim.
  internal::MeasureRequest Request(const std::string& graph, const std::vector<int64_t>& sizes) {
    internal::MeasureRequest request;
    request.set_graph_text(graph);
    request.set_threads(2);
    for (int64_t size : sizes) request.add_sizes()->add_values(size);
    if (sizes.empty()) request.add_sizes();
    auto lowered = tuner_->Lower(*ParseGraph(graph), target_);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    internal::MeasuredPlan* plan = request.add_plans();
    *plan->mutable_plan() = lowered->plan();
    for (const v1::Kernel& kernel : lowered->plan().kernels()) {
      auto object = tuner_->Compile(kernel.source(), target_);
      EXPECT_TRUE(object.ok()) << object.status();
      plan->add_objects(*std::move(object));
    }
    return request;
  }
};

// A weight of 256 KiB that is packed once; the next graph has one that is read in place.
constexpr char kPacked[] = R"(graph "g" { dim b in [1, 1024]
  %0 = Input "x" : f32[b, 256] %1 = Parameter "w" : f32[256, 256]
  %2 = Contract(%0, %1) {spec="bk,kn->bn"} output "y" = %2 })";
constexpr char kRead[] = R"(graph "g" { %0 = Input "x" : f32[256, 256]
  %1 = Parameter "w" : f32[256, 256] %2 = Add(%0, %1) output "y" = %2 })";
constexpr int64_t kWeight = 256 * 1024;

TEST_F(MeasureTest, AWholePlanIsNoLayer) {
  auto reply = tuner_->Measure(Request(kPacked, {1, 1024}));
  ASSERT_TRUE(reply.ok()) << reply.status();
  for (const internal::SizeTimes& size : reply->plans(0).sizes()) {
    EXPECT_GT(size.seconds(), 0);
    EXPECT_EQ(size.layers(), 1);
    EXPECT_EQ(size.turns(), 1);
  }
}

TEST_F(MeasureTest, AKernelAloneWalksThroughTheModelsWeightsAndActivations) {
  internal::MeasureRequest request = Request(kPacked, {1, 1024});
  ASSERT_GT(request.plans(0).plan().prepare_size(), 0);
  request.set_weight_bytes(20 * kWeight);
  // Covers four calls with one row, but less than one call with the most rows.
  request.add_activation_bytes(4 * 2 * 1024);
  request.add_activation_bytes(1024);
  request.set_steps(true);
  auto reply = tuner_->Measure(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  const internal::PlanTimes& times = reply->plans(0);
  ASSERT_EQ(times.sizes_size(), 2);
  for (const internal::SizeTimes& size : times.sizes()) {
    EXPECT_GT(size.seconds(), 0);
    EXPECT_EQ(size.layers(), 20);
    ASSERT_EQ(size.step_seconds_size(), request.plans(0).plan().run_size());
    EXPECT_GT(size.step_seconds(0), 0);
  }
  EXPECT_EQ(times.sizes(0).turns(), 4);
  EXPECT_EQ(times.sizes(1).turns(), 1);
}

TEST_F(MeasureTest, SoDoesOneThatReadsItsWeightsWhereTheyLie) {
  internal::MeasureRequest request = Request(kRead, {});
  ASSERT_EQ(request.plans(0).plan().prepare_size(), 0);
  request.set_weight_bytes(9 * kWeight);
  request.add_activation_bytes(3 * 2 * kWeight);
  auto reply = tuner_->Measure(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_GT(reply->plans(0).sizes(0).seconds(), 0);
  EXPECT_EQ(reply->plans(0).sizes(0).layers(), 9);
  EXPECT_EQ(reply->plans(0).sizes(0).turns(), 3);
}

// The first call of a sample takes longest. A plan beside itself seemed to take 0.6 of its own
// time, since it made more calls a sample.
TEST_F(MeasureTest, PlansSideBySideMakeAsManyCalls) {
  internal::MeasureRequest request = Request(kPacked, {1, 64});
  *request.add_plans() = request.plans(0);
  for (const auto& [race, confirm] : {std::pair(false, false), {true, false}, {true, true}}) {
    request.set_race(race);
    request.set_confirm(confirm);
    for (int again = 0; again < 5; ++again) {
      auto reply = tuner_->Measure(request);
      ASSERT_TRUE(reply.ok()) << reply.status();
      for (int s = 0; s < request.sizes_size(); ++s) {
        EXPECT_GT(reply->plans(0).sizes(s).calls(), 0);
        EXPECT_EQ(reply->plans(0).sizes(s).calls(), reply->plans(1).sizes(s).calls());
      }
    }
  }
}

}  // namespace
}  // namespace athanor
