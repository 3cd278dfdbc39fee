// Every genome the search may choose is possible and right, not only the one it takes: random
// changes of what is fused and random schedules of small graphs, lowered, compiled, and checked as
// whole plans against the reference evaluator.
//
//   ATHANOR_GENOMES=10000 bazel-bin/tests/tuner/genomes_test    # the long form; 80 by default
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph.h"
#include "compiler/pipeline/plan_builder.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/search/fusion.h"
#include "compiler/search/space.h"
#include "gtest/gtest.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

// Bodies; each has dims b and s.
constexpr const char* kBodies[] = {
    // A chain, a diamond, and both again with outputs inside.
    R"(%0 = Input "x" : f32[b, s] %1 = Exp(%0) %2 = Tanh(%1) %3 = Sqrt(%1) output "y" = %3
       output "z" = %2)",
    R"(%0 = Input "x" : f32[b, s] %1 = Input "y" : f32[b, s] %2 = Add(%0, %1) %3 = Exp2(%2)
       %4 = Sin(%2) %5 = Mul(%3, %0) %6 = Add(%5, %4) output "w" = %6)",
    R"(%0 = Input "x" : f32[b, 19] %1 = Exp(%0) %2 = Add(%1, %0) %3 = Mul(%2, %1) %4 = Max(%3, %0)
       %5 = Mul(%4, %2) output "y" = %5 output "m" = %3)",
    // Reductions beside their maps.
    R"(%0 = Input "x" : f32[b, 37] %1 = Softmax(%0) {axis=1} %2 = Tanh(%1) output "y" = %2)",
    R"(%0 = Input "x" : f32[b, s, 24] %1 = Parameter "g" : f32[24] %2 = Parameter "o" : f32[24]
       %3 = LayerNorm(%0, %1, %2) {epsilon=1e-5} %4 = RmsNorm(%3, %1) {epsilon=1e-5}
       %5 = Add(%4, %0) output "y" = %5)",
    R"(%0 = Input "x" : f32[b, 33] %1 = SumReduce(%0) {axes=[1]} %2 = Sqrt(%1) %3 = Recip(%2)
       %4 = IndexMap(%3) {map=map[b, 33]($0)} %5 = Mul(%0, %4) output "y" = %5 output "r" = %3)",
    R"(%0 = Input "x" : f64[b, 9, s] %1 = MaxReduce(%0) {axes=[0, 2]} %2 = Exp(%0)
       %3 = SumReduce(%2) {axes=[2]} output "m" = %1 output "s" = %3)",
    // Contractions with what comes before and after.
    R"(%0 = Input "x" : f32[b, 40] %1 = Parameter "w" : f32[40, 50] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Parameter "o" : f32[50] %4 = IndexMap(%3) {map=map[b, 50]($1)} %5 = Add(%2, %4)
       %6 = Gelu(%5) output "y" = %6)",
    R"(%0 = Input "x" : f32[b, 31] %1 = Exp(%0) %2 = Parameter "w" : f32[31, 17]
       %3 = Contract(%1, %2) {spec="bk,kn->bn"} %4 = Tanh(%3) %5 = Parameter "v" : f32[17, 31]
       %6 = Contract(%4, %5) {spec="bk,kn->bn"} %7 = Add(%6, %1) output "y" = %7)",
    R"(%0 = Input "x" : f32[b, 20, 8] %1 = Input "z" : f32[b, 8, s] %2 = Contract(%0, %1) {spec="bik,bkj->bij"}
       %3 = Silu(%2) %4 = IndexMap(%3) {map=map[b, s, 20]($0, $2, $1)} output "y" = %4)",
    R"(%0 = Input "x" : f32[s, b] %1 = Input "z" : f32[s, 21] %2 = Contract(%0, %1) {spec="kb,kn->nb"}
       %3 = Max(%2, %2) %4 = Add(%2, %3) output "y" = %4)",
    R"(%0 = Input "x" : bf16[b, 64] %1 = Parameter "w" : bf16[64, 32] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Exp(%2) %4 = Softmax(%2) {axis=1} %5 = Add(%3, %4) output "y" = %5)",
    R"(%0 = Input "x" : f32[b, 96] %1 = Parameter "w" : f32[96, 48] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = IndexMap(%2) {map=map[b, 4, 12]($0, 12*$1 + $2)} %4 = Mul(%3, %3) %5 = SumReduce(%4) {axes=[2]}
       output "h" = %3 output "n" = %5)",
    R"(%0 = Input "x" : i32[b, 13] %1 = Input "w" : i32[13, 7] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Mul(%2, %2) %4 = LessThan(%2, %3) %5 = Select(%4, %2, %3) output "y" = %5)",
    // Attention whole and with its neighbours.
    R"(%0 = Input "q" : f32[b, 2, s, 16] %1 = Input "k" : f32[b, 2, s, 16] %2 = Input "v" : f32[b, 2, s, 16]
       %3 = Attention(%0, %1, %2) {causal=true} %4 = IndexMap(%3) {map=map[b, s, 32]($0, floordiv($2, 16), $1, mod($2, 16))}
       %5 = Tanh(%4) output "y" = %5)",
    // Movement, tables.
    R"(%0 = Parameter "t" : f32[100, 12] %1 = Input "ids" : i64[b] %2 = Gather(%0, %1) {axis=0}
       %3 = Input "p" : f32[b, 12] %4 = Add(%2, %3) %5 = Softmax(%4) {axis=1} output "y" = %5 output "e" = %2)",
    R"(%0 = Input "x" : f32[b, s] %1 = IndexMap(%0) {map=map[s, b]($1, $0)} %2 = Exp(%1)
       %3 = IndexMap(%2) {map=map[b, s]($1, $0)} %4 = Mul(%3, %0) output "y" = %4 output "t" = %2)",
    R"(%0 = Input "x" : f32[b, 10] %1 = IndexMap(%0) {fill=f32[] {0.5}, map=map[b, 14]($0, $1 - 2)}
       %2 = Tanh(%1) %3 = SumReduce(%2) {axes=[1]} output "y" = %3 output "p" = %1)",
};

class GenomesTest : public TunerTest {
 protected:
  template <typename T>
  const T& OneOf(const std::vector<T>& all) {
    return all[random_() % all.size()];
  }

  // Some decisions other than the rule of thumb's, and any schedule for each kernel.
  ScheduledGraph RandomGenome(const Graph& graph, std::string* about) {
    Fusion fusion;
    for (int change = static_cast<int>(random_() % 4); change > 0; --change) {
      const auto flips = FusionFlips(graph, ChooseKernels(graph, target_, fusion));
      if (flips.empty()) break;
      const auto& [node, say] = OneOf(flips);
      fusion.nodes[node] = say;
      absl::StrAppend(about, " %", node, say == Fuse::kMemory ? "=memory" : "=inline");
    }
    ScheduledGraph scheduled{graph, ChooseKernels(graph, target_, fusion)};
    const std::vector<bool> memory = MemoryOf(graph, scheduled.genome);
    const std::vector<bool> weights = WeightsOf(graph);
    for (KernelChoice& kernel : scheduled.genome.kernels) {
      const KernelTask task = CutTask(graph, memory, weights, kernel);
      const std::vector<KernelChoice> schedules = Schedules(task, target_);
      const KernelChoice& chosen = OneOf(schedules);
      kernel.contract = chosen.contract;
      kernel.attention = chosen.attention;
      absl::StrAppend(about, "; ", ScheduleText(kernel));
    }
    PackWeights(&scheduled.graph, &scheduled.genome, target_);
    return scheduled;
  }

  absl::Status Check(const Graph& graph, const v1::Plan& plan) {
    internal::CheckRequest request;
    *request.mutable_plan() = plan;
    for (const v1::Kernel& kernel : plan.kernels()) {
      std::string& object = objects_[kernel.source_hash()];
      if (object.empty()) {
        auto compiled = tuner_->Compile(kernel.source(), target_);
        if (!compiled.ok()) return compiled.status();
        object = *std::move(compiled);
      }
      request.add_objects(object);
    }
    request.set_graph_text(ToText(graph));
    request.set_seed(random_());
    for (int64_t size : {1, 5, 18}) {
      auto* sizes = request.add_sizes();
      for (const Dim& dim : graph.dims) {
        sizes->add_values(std::min(dim.max, size + (dim.name == graph.dims[0].name ? 0 : 2)));
      }
    }
    return tuner_->Check(request);
  }

  std::mt19937_64 random_{7};
  std::map<std::string, std::string> objects_;  // by source
};

TEST_F(GenomesTest, RandomGenomesAreRight) {
  int count = 80;
  if (const char* asked = std::getenv("ATHANOR_GENOMES")) {
    ASSERT_TRUE(absl::SimpleAtoi(asked, &count)) << asked;
  }
  std::vector<Prepared> graphs;
  for (const char* body : kBodies) {
    auto graph = ParseGraph(
        absl::StrCat("graph \"g\" {\n dim b in [1, 64]\n dim s in [1, 64]\n", body, "}"));
    ASSERT_TRUE(graph.ok()) << graph.status() << body;
    auto prepared = Prepare(*graph);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    graphs.push_back(*std::move(prepared));
  }
  PlanBuilder builder(target_);
  for (int i = 0; i < count && !HasFailure(); ++i) {
    const Graph& graph = graphs[i % graphs.size()].graph;
    std::string about = absl::StrCat("genome ", i, ":");
    const ScheduledGraph scheduled = RandomGenome(graph, &about);
    SCOPED_TRACE(about);
    SCOPED_TRACE(ToText(graph));
    auto built = builder.Build(scheduled, {.kind = "test"});
    ASSERT_TRUE(built.ok()) << built.status();
    const absl::Status right = Check(graph, built->plan);
    EXPECT_TRUE(right.ok()) << right;
    if (i % 100 == 99) std::printf("%d genomes, %zu kernels\n", i + 1, objects_.size());
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

}  // namespace
}  // namespace athanor
