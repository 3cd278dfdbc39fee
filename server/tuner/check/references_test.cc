#include "server/tuner/check/references.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr char kDouble[] = R"(graph "g" { dim n in [1, 100000000]
  %0 = Input "x" : f32[n] %1 = Add(%0, %0) output "y" = %1 })";

internal::CheckRequest Request(const char* graph, int64_t n, bool sampled = false) {
  internal::CheckRequest request;
  request.set_graph_text(graph);
  request.mutable_plan()->add_dims()->set_name("n");
  auto* sizes = request.add_sizes();
  sizes->add_values(n);
  sizes->set_sampled(sampled);
  return request;
}

TEST(ReferencesTest, EverySchedulesCheckHasTheSame) {
  ReferenceMemory memory;
  internal::CheckRequest request = Request(kDouble, 7);
  const auto first = memory.For(request);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ((*first)->cases.size(), 2u) << "two seeds";
  EXPECT_EQ((*first)->cases[0].wanted[0].bytes.size(), 28u);
  EXPECT_NE((*first)->cases[0].inputs[0].bytes, (*first)->cases[1].inputs[0].bytes);
  // Another plan and other objects.
  request.mutable_plan()->add_kernels()->set_source("another schedule");
  request.add_objects("its object");
  EXPECT_EQ(memory.For(request)->get(), first->get());
}

TEST(ReferencesTest, AnotherGraphSizeOrSeedHasOthers) {
  ReferenceMemory memory;
  const internal::CheckRequest request = Request(kDouble, 7);
  const auto first = memory.For(request);
  ASSERT_TRUE(first.ok()) << first.status();
  internal::CheckRequest seed = request;
  seed.set_seed(9);
  EXPECT_NE(memory.For(seed)->get(), first->get());
  EXPECT_NE(memory.For(Request(kDouble, 8))->get(), first->get());
  EXPECT_NE(memory.For(Request(kDouble, 7, /*sampled=*/true))->get(), first->get());
  EXPECT_EQ(memory.For(request)->get(), first->get());
  internal::CheckRequest two = request;
  two.mutable_sizes(0)->add_values(1);
  EXPECT_EQ(memory.For(two).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReferencesTest, NoMoreIsKeptThanItMayHold) {
  ReferenceMemory memory;
  constexpr int64_t kHalf = ReferenceMemory::kMostBytes / 16 / 2;  // 16 bytes of each element
  const auto first = memory.For(Request(kDouble, kHalf));
  ASSERT_TRUE(first.ok()) << first.status();
  for (int64_t more : {1, 2, 3}) ASSERT_TRUE(memory.For(Request(kDouble, kHalf + more)).ok());
  EXPECT_NE(memory.For(Request(kDouble, kHalf))->get(), first->get());
  EXPECT_EQ(first->use_count(), 1);
}

}  // namespace
}  // namespace athanor
