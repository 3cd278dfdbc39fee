#include "server/tuner/check/plan_subjects.h"

#include <time.h>

#include <set>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"
#include "server/tuner/check/plan_runs.h"

namespace athanor {
namespace {

// y = x, as a plan without kernels.
Graph Same() {
  Graph graph;
  graph.name = "same";
  graph.dims = {{"n", 1, 1000}};
  GraphBuilder builder(&graph);
  builder.Output("y", builder.Input("x", {DType::kF32, {Expr::Symbol("n")}}).value());
  return graph;
}

internal::MeasuredPlan PlanOfSame() {
  internal::MeasuredPlan measured;
  v1::Plan& plan = *measured.mutable_plan();
  plan.set_format(1);
  plan.set_plan_id("same");
  v1::DimRange* dim = plan.add_dims();
  dim->set_name("n");
  dim->set_min(1);
  dim->set_max(1000);
  v1::Buffer* x = plan.add_buffers();
  x->set_kind(v1::Buffer::INPUT);
  x->set_name("x");
  x->set_dtype("f32");
  const auto add_term = [](int64_t times, v1::SizeExpr* size) {
    v1::SizeExpr::Term* term = size->add_terms();
    term->set_coefficient(times);
    term->add_factors()->set_symbol("n");
  };
  add_term(1, x->add_shape());
  add_term(4, x->mutable_bytes());
  v1::PlanOutput* y = plan.add_outputs();
  y->set_name("y");
  y->set_buffer(0);
  return measured;
}

double ProcessorSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// A device worker has done other jobs before: what these took is not the check's.
TEST(PlanSubjectsTest, OptionalRunsBeginWhateverTheProcessDidBefore) {
  const Graph graph = Same();
  const PlanRuns runs = PlanRuns::Create(graph, {{{"n", 1}}, {{"n", 10}}}, 3).value();
  int optional = 0;
  for (const PlanRun& run : runs.runs()) optional += run.required ? 0 : 1;
  ASSERT_GT(optional, 0);
  const internal::MeasuredPlan plan = PlanOfSame();
  const std::vector<bool> planned(runs.runs().size(), true);
  volatile double used = 0;
  while (ProcessorSeconds() < 1.1) used = used + 1;
  for (int job = 0; job < 2; ++job) {
    PlanSubject subject{&plan, &graph, {}, {}};
    subject.Mark(SharedMemory::Create(runs.runs().size() * sizeof(PlanMark)).value(),
                 runs.runs().size());
    for (const PlanRun& run : runs.runs()) {
      subject.outputs.emplace_back().push_back(GuardedBytes::Create(run.inputs[0].size()).value());
    }
    const absl::Status status =
        RunSubjects(graph, runs, /*threads=*/1, {&subject}, planned, nullptr, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t r = 0; r < runs.runs().size(); ++r) {
      EXPECT_TRUE(subject.marks[r].ran) << runs.runs()[r].text;
      EXPECT_EQ(subject.outputs[r][0].view(), runs.runs()[r].inputs[0]) << runs.runs()[r].text;
    }
  }
}

// PagedAttention leaves open what it gives for values that are not finite.
TEST(PlanRunsTest, AttentionOverBlocksSeesFiniteValues) {
  const Graph graph = ParseGraph(R"(graph "g" { dim t in [1, 100]
    %0 = Input "q" : f32[t, 2, 4] %1 = Input "k" : f32[64, 1, 4] %2 = Input "v" : f32[64, 1, 4]
    %3 = Input "table" : i32[3, 4] %4 = Input "sequence" : i32[t] %5 = Input "position" : i32[t]
    %6 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=16} output "y" = %6 })")
                          .value();
  const PlanRuns runs = PlanRuns::Create(graph, {{{"t", 1}}, {{"t", 10}}}, 3).value();
  std::set<SpecialFloats> found;
  for (const PlanRun& run : runs.runs()) found.insert(run.special);
  EXPECT_EQ(found, (std::set{SpecialFloats::kNone, SpecialFloats::kExtremes}));
  EXPECT_EQ(runs.left_out().size(), 2u);
}

}  // namespace
}  // namespace athanor
