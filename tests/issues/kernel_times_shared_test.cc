// Two kernels with one source were measured once and shared the time, although they run over
// different dims: the time of one at b=1 was used for the other at s=512.
#include <set>
#include <string>

#include "compiler/pipeline/search_session.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(KernelTimesSharedTest, KernelsOverOtherDimsAreMeasuredForThemselves) {
  internal::SearchStart start;
  start.set_graph_text(R"(graph "g" { dim b in [1, 512] dim s in [1, 512]
    %0 = Input "x" : f32[b, 64] %1 = Input "z" : f32[s, 64]
    %2 = Tanh(%0) %3 = Tanh(%1) output "x1" = %2 output "z1" = %3 })");
  v1::Target& target = *start.mutable_target();
  target.set_device("cpu");
  target.set_vector_bytes(64);
  target.set_vector_registers(32);
  target.set_l1_bytes(32 << 10);
  target.set_l2_bytes(1 << 20);
  target.set_threads(2);
  start.set_seed(1);
  start.set_max_kernels(20);
  auto session = SearchSession::Create(start);
  ASSERT_TRUE(session.ok()) << session.status();
  std::set<std::string> grids, sources;  // requested at the start
  auto reply = (*session)->Next({});
  ASSERT_TRUE(reply.ok()) << reply.status();
  for (const internal::SearchKernel& kernel : reply->kernels()) {
    const v1::Plan& plan = kernel.check().plan();
    sources.insert(plan.kernels(0).source_hash());
    grids.insert(plan.run(0).grid().SerializeAsString());
  }
  EXPECT_EQ(sources.size(), 1) << "the case needs kernels of one source";
  EXPECT_EQ(grids.size(), 2) << "one over b, one over s";
}

}  // namespace
}  // namespace athanor
