#include "server/tuner/measure/measured_inputs.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr char kProduct[] = R"(graph "g" { dim n in [1, 100]
  %0 = Input "x" : f32[n, 8] %1 = Parameter "w" : f32[8, 4]
  %2 = Contract(%0, %1) {spec="bk,kn->bn"} output "y" = %2 })";

internal::MeasureRequest Request(int64_t n) {
  internal::MeasureRequest request;
  request.set_graph_text(kProduct);
  request.add_plans()->mutable_plan()->add_dims()->set_name("n");
  for (int64_t size : {int64_t{1}, n}) request.add_sizes()->add_values(size);
  return request;
}

TEST(MeasuredInputsTest, SchedulesOfATaskShareThem) {
  InputMemory memory;
  internal::MeasureRequest request = Request(7);
  const auto first = memory.For(request);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->names(), (std::vector<std::string>{"x", "w"}));
  EXPECT_EQ((*first)->at(1, 0).size(), 224u);
  EXPECT_EQ((*first)->at(0, 1).data(), (*first)->at(1, 1).data()) << "parameters are held once";
  request.mutable_plans(0)->mutable_plan()->add_kernels()->set_source("another schedule");
  request.mutable_plans(0)->add_objects("its object");
  EXPECT_EQ(memory.For(request)->get(), first->get());
}

TEST(MeasuredInputsTest, OthersAreDrawnForAnotherSizeSeedOrTwoPlans) {
  InputMemory memory;
  const auto first = memory.For(Request(7));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_NE(memory.For(Request(8))->get(), first->get());
  internal::MeasureRequest seed = Request(8);
  seed.set_seed(5);
  const auto seeded = memory.For(seed);
  ASSERT_TRUE(seeded.ok()) << seeded.status();
  EXPECT_NE((*seeded)->at(1, 0), (*first)->at(1, 0));
  // Inputs of whole plans are drawn once and are not kept.
  internal::MeasureRequest pair = Request(9);
  *pair.add_plans() = pair.plans(0);
  const auto of_pair = memory.For(pair);
  ASSERT_TRUE(of_pair.ok()) << of_pair.status();
  EXPECT_EQ(of_pair->use_count(), 1);
}

TEST(MeasuredInputsTest, AGraphThatIsNoneIsRefused) {
  InputMemory memory;
  internal::MeasureRequest request = Request(7);
  request.set_graph_text("no graph");
  EXPECT_EQ(memory.For(request).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace athanor
