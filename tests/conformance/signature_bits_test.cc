// Genomes of one signature (compiler/search/kernels/signature.h) give equal bytes: values such as
// products and exponentials lie in memory or are computed where they are read, once or several
// times, and kernels have other schedules.
//
//   ATHANOR_GENOMES=1000 bazel-bin/tests/conformance/signature_bits_test   # of each graph; 24
//
// A failure names both genomes.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/signature.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/kernels/task.h"
#include "gtest/gtest.h"
#include "server/tuner/run/inputs.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

struct Case {
  const char* name;
  const char* body;  // over the dims b and s
};

// Sums, products and functions that several kernels may compute, each in its own way.
constexpr Case kCases[] = {
    {"ShortSums", R"(%0 = Input "x" : f32[b, 7, s] %1 = Input "z" : f32[b, 7, s]
       %2 = Mul(%0, %1) %3 = SumReduce(%2) {axes=[1]} %4 = Exp(%3) %5 = Add(%3, %4)
       output "y" = %5 output "p" = %4)"},
    {"ShortSumsOfFunctions", R"(%0 = Input "x" : f32[b, 5, s] %1 = Exp(%0) %2 = Mul(%1, %0)
       %3 = SumReduce(%2) {axes=[1]} %4 = SumReduce(%1) {axes=[1]} %5 = Mul(%3, %4)
       output "y" = %5)"},
    {"LongSums", R"(%0 = Input "x" : f32[b, 200] %1 = Input "z" : f32[200]
       %2 = IndexMap(%1) {map=map[b, 200]($1)} %3 = Mul(%0, %2) %4 = Exp(%3)
       %5 = SumReduce(%4) {axes=[1]} %6 = SumReduce(%3) {axes=[1]} %7 = Mul(%5, %6)
       output "y" = %7)"},
    {"Softmax", R"(%0 = Input "x" : f32[b, 100] %1 = Input "z" : f32[b, 100] %2 = Mul(%0, %1)
       %3 = Softmax(%2) {axis=1} %4 = Mul(%3, %1) %5 = SumReduce(%4) {axes=[1]}
       output "y" = %5 output "p" = %3)"},
    {"Norm", R"(%0 = Input "x" : f32[b, 72] %1 = Parameter "g" : f32[72] %2 = Exp(%0)
       %3 = RmsNorm(%2, %1) {epsilon=1e-5} %4 = Add(%3, %0) %5 = RmsNorm(%4, %1) {epsilon=1e-5}
       %6 = Mul(%5, %2) output "y" = %6)"},
    {"FunctionsOfRows", R"(%0 = Input "x" : f32[b, s] %1 = Input "r" : f32[b] %2 = Exp(%1)
       %3 = IndexMap(%2) {map=map[b, s]($0)} %4 = Mul(%0, %3) %5 = Tanh(%4)
       %6 = IndexMap(%1) {map=map[b, s]($0)} %7 = Exp(%6) %8 = Add(%5, %7) output "y" = %8)"},
    {"FunctionsOfColumns", R"(%0 = Input "x" : f32[b, s] %1 = Input "c" : f32[s] %2 = Exp(%1)
       %3 = IndexMap(%2) {map=map[b, s]($1)} %4 = Mul(%0, %3)
       %5 = IndexMap(%4) {map=map[s, b]($1, $0)} %6 = Tanh(%5) %7 = SumReduce(%6) {axes=[1]}
       output "y" = %6 output "w" = %7)"},
    {"Products", R"(%0 = Input "x" : f32[b, 40] %1 = Parameter "w" : f32[40, 50]
       %2 = Parameter "v" : f32[40, 50] %3 = Exp(%0) %4 = Contract(%3, %1) {spec="bk,kn->bn"}
       %5 = Contract(%3, %2) {spec="bk,kn->bn"} %6 = Silu(%4) %7 = Mul(%6, %5)
       %8 = SumReduce(%7) {axes=[1]} output "y" = %7 output "n" = %8)"},
    {"SumsOfProducts", R"(%0 = Input "x" : f32[b, 24] %1 = Parameter "w" : f32[24, 48]
       %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = IndexMap(%2) {map=map[b, 4, 12]($0, 12*$1 + $2)} %4 = Mul(%3, %3)
       %5 = SumReduce(%4) {axes=[1]} %6 = Exp(%5) output "y" = %6 output "h" = %3)"},
    {"Doubles", R"(%0 = Input "x" : f32[b, 6, s] %1 = Cast(%0) {dtype=f64} %2 = Mul(%1, %1)
       %3 = Exp(%2) %4 = SumReduce(%2) {axes=[1]} %5 = Cast(%3) {dtype=f32} %6 = Exp(%5)
       %7 = SumReduce(%6) {axes=[1]} output "y" = %4 output "z" = %7)"},
    {"Halves", R"(%0 = Input "x" : bf16[b, 3, s] %1 = Exp(%0) %2 = Mul(%1, %0)
       %3 = SumReduce(%2) {axes=[1]} %4 = Cast(%2) {dtype=f32} %5 = SumReduce(%4) {axes=[1]}
       output "y" = %3 output "z" = %5)"},
    {"Windows", R"(%0 = Input "x" : f32[2, b, s] %1 = Input "w" : f32[2, 3, 3] %2 = Exp(%0)
       %3 = IndexMap(%2) {fill=f32[] {0.0}, map=map[2, b, s, 3, 3]($0, $1 + $3 - 1, $2 + $4 - 1)}
       %4 = IndexMap(%1) {map=map[2, b, s, 3, 3]($0, $3, $4)} %5 = Mul(%3, %4)
       %6 = SumReduce(%5) {axes=[3, 4]} %7 = Tanh(%6) output "y" = %7)"},
};

// A genome, and what it made of the inputs.
struct Drawn {
  std::string about;
  std::vector<Tensor> outputs;
};

class SignatureBits : public testing::TestWithParam<Case> {
 protected:
  // Changes some decisions of the rule of thumb; half of the time draws schedules, too, mostly of
  // those that a search with this signature may choose.
  ScheduledGraph Draw(const Graph& graph, std::string* about) {
    const auto one_of = [&](const auto& all) -> const auto& { return all[random_() % all.size()]; };
    Fusion fusion{{}, {.again = random_() % 2 == 0, .one_panel = true}};
    for (int change = static_cast<int>(random_() % 4); change > 0; --change) {
      const auto flips = FusionFlips(graph, ChooseKernels(graph, target_, fusion));
      if (flips.empty()) break;
      const auto& [node, say] = one_of(flips);
      fusion.nodes[node] = say;
      absl::StrAppend(about, " %", node, say == Fuse::kMemory ? "=memory" : "=inline");
    }
    ScheduledGraph scheduled{graph, ChooseKernels(graph, target_, fusion)};
    const std::vector<bool> memory = MemoryOf(graph, scheduled.genome);
    const std::vector<bool> weights = WeightsOf(graph);
    const bool schedules = random_() % 2 == 0, any = random_() % 4 == 0;
    for (KernelChoice& kernel : scheduled.genome.kernels) {
      const KernelTask task = CutTask(graph, memory, weights, kernel);
      std::vector<KernelChoice> able = Schedules(task, target_);
      if (!any) {
        std::erase_if(able, std::not_fn(SameOrders(task, target_)));
      }
      if (schedules && !able.empty()) {
        const KernelChoice& chosen = one_of(able);
        kernel.contract = chosen.contract;
        kernel.walk = chosen.walk;
      }
      absl::StrAppend(about, "; %", kernel.root, " ", ScheduleText(kernel));
    }
    PackWeights(&scheduled.graph, &scheduled.genome, target_);
    return scheduled;
  }

  const v1::Target target_ = TestTargets({0})[0];
  std::mt19937_64 random_{5};
};

TEST_P(SignatureBits, AreEqualWhereSignaturesAre) {
  int genomes = 24;
  if (const char* asked = std::getenv("ATHANOR_GENOMES")) {
    ASSERT_TRUE(absl::SimpleAtoi(asked, &genomes)) << asked;
  }
  const auto graph = ParseGraph(
      absl::StrCat("graph \"\" { dim b in [1, 64] dim s in [1, 64] ", GetParam().body, "}"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto prepared = Prepare(*graph);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  // So many rows have vectors, and elements behind the last one.
  Expr::Env dims;
  for (const Dim& dim : prepared->graph.dims) dims[dim.name] = dims.empty() ? 5 : 37;
  const auto all = RandomInputs(prepared->graph, dims, 3, IndexChoice::kSmall);
  ASSERT_TRUE(all.ok()) << all.status();
  const auto middle = all->begin() + std::ssize(prepared->graph.InputIds());
  std::map<std::string, Drawn> first;  // by signature
  int equal = 0;
  for (int i = 0; i < genomes; ++i) {
    Drawn drawn{.about = absl::StrCat("genome ", i, ":"), .outputs = {}};
    const ScheduledGraph scheduled = Draw(prepared->graph, &drawn.about);
    auto compiled = CompileScheduled(scheduled, {middle, all->end()}, target_);
    ASSERT_TRUE(compiled.ok()) << drawn.about << ": " << compiled.status();
    absl::StatusOr<std::vector<Tensor>> outputs = compiled->Run({all->begin(), middle});
    ASSERT_TRUE(outputs.ok()) << drawn.about << ": " << outputs.status();
    drawn.outputs = *std::move(outputs);
    const auto [at, is_new] = first.try_emplace(
        SignatureOf(scheduled.graph, scheduled.genome, target_), std::move(drawn));
    if (is_new) continue;
    ++equal;
    for (size_t o = 0; o < drawn.outputs.size(); ++o) {
      EXPECT_TRUE(drawn.outputs[o].bytes == at->second.outputs[o].bytes)
          << "output " << o << " of " << drawn.about << "\nand of " << at->second.about;
    }
  }
  EXPECT_GT(equal, genomes / 3);
  RecordProperty("equal", equal);
  RecordProperty("signatures", static_cast<int>(first.size()));
}

INSTANTIATE_TEST_SUITE_P(Genomes, SignatureBits, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace athanor
