// Checks the kernels of real baseline plans with a real tuner process: all pass, and a kernel that
// is wrong in one place fails.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/pipeline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

struct Model {
  const char* name;
  const char* text;
};

const Model kModels[] = {
    {"mlp", R"(graph "g" { dim b in [1, 64] %0 = Input "x" : f32[b, 64]
       %1 = Parameter "w1" : f32[64, 32] %2 = Parameter "b1" : f32[32]
       %3 = Contract(%0, %1) {spec="bk,kn->bn"} %4 = IndexMap(%2) {map=map[b, 32]($1)}
       %5 = Add(%3, %4) %6 = Relu(%5) %7 = Parameter "w2" : f32[32, 10]
       %8 = Contract(%6, %7) {spec="bk,kn->bn"} %9 = Softmax(%8) {axis=1} output "p" = %9 })"},
    {"attention", R"(graph "g" { dim b in [1, 8] dim s in [1, 512]
       %0 = Input "q" : f32[b, 12, s, 32] %1 = Input "k" : f32[b, 12, s, 32]
       %2 = Input "v" : f32[b, 12, s, 32] %3 = Attention(%0, %1, %2)
       %4 = Attention(%0, %1, %2) {causal=true} output "y" = %3 output "z" = %4 })"},
    {"norm and gelu", R"(graph "g" { dim b in [1, 64] %0 = Input "x" : f32[b, 384]
       %1 = Parameter "s" : f32[384] %2 = Parameter "o" : f32[384]
       %3 = LayerNorm(%0, %1, %2) {epsilon=1e-5} %4 = RmsNorm(%0, %1) {epsilon=1e-5}
       %5 = Gelu(%3) %6 = Silu(%4) output "l" = %5 output "r" = %6 })"},
    {"embedding", R"(graph "g" { dim b in [1, 64] %0 = Parameter "t" : f32[1000, 48]
       %1 = Input "ids" : i64[b] %2 = Gather(%0, %1) {axis=0}
       %3 = Input "offsets" : i32[4] %4 = EmbeddingBag(%0, %1, %3) {mode="mean"}
       output "g" = %2 output "e" = %4 })"},
    {"bf16", R"(graph "g" { dim b in [1, 64] %0 = Input "x" : bf16[b, 64]
       %1 = Parameter "w" : bf16[64, 32] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Exp(%2) %4 = Softmax(%2) {axis=1} %5 = Add(%3, %4) output "y" = %5 })"},
    {"integers",
     R"(graph "g" { dim b in [1, 64] %0 = Input "x" : i32[b, 9] %1 = Input "z" : i32[b, 9]
       %2 = FloorDiv(%0, %1) %3 = Mod(%0, %1) %4 = Mul(%2, %3) %5 = SumReduce(%4) {axes=[1]}
       %6 = LessThan(%0, %1) %7 = Select(%6, %2, %3) output "s" = %5 output "t" = %7 })"},
    {"encoder feed-forward", R"(graph "g" { dim b in [1, 8] dim s in [1, 512]
       %0 = Input "x" : f32[b, s, 384] %1 = Parameter "w" : f32[384, 1536]
       %2 = Parameter "o" : f32[1536] %3 = Contract(%0, %1) {spec="bsk,kn->bsn"}
       %4 = IndexMap(%2) {map=map[b, s, 1536]($2)} %5 = Add(%3, %4) %6 = Gelu(%5)
       output "y" = %6 })"},
};

// Models with parameters that no check could hold, and with weights that are large at every size.
const Model kLargeModels[] = {
    {"table of 12 GiB", R"(graph "g" { dim b in [1, 64] %0 = Parameter "t" : f32[402653184, 8]
       %1 = Input "ids" : i64[b] %2 = Gather(%0, %1) {axis=0} %3 = Input "offsets" : i32[4]
       %4 = EmbeddingBag(%0, %1, %3) {mode="sum"} output "g" = %2 output "e" = %4 })"},
    {"wide layer", R"(graph "g" { dim b in [1, 64] %0 = Input "x" : f32[b, 2048]
       %1 = Parameter "w" : f32[2048, 4001] %2 = Contract(%0, %1) {spec="bk,kn->bn"}
       %3 = Gelu(%2) output "y" = %3 })"},
};

class BaselineCheckTest : public TunerTest {
 protected:
  CheckedPlan Lower(const char* text) {
    absl::StatusOr<Graph> graph = ParseGraph(text);
    EXPECT_TRUE(graph.ok()) << graph.status();
    absl::StatusOr<CheckedPlan> plan = BuildCheckedBaselinePlan(*graph, target_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : CheckedPlan();
  }

  absl::StatusOr<internal::CheckReply> Report(internal::CheckRequest request) {
    for (const v1::Kernel& kernel : request.plan().kernels()) {
      absl::StatusOr<std::string> object = tuner_->Compile(kernel.source(), target_);
      if (!object.ok()) return object.status();
      request.add_objects(*std::move(object));
    }
    start_ = std::chrono::steady_clock::now();
    return tuner_->CheckReport(request);
  }

  absl::Status Check(const internal::CheckRequest& request) { return Report(request).status(); }

  std::chrono::steady_clock::time_point start_;  // when the last check began
};

TEST_F(BaselineCheckTest, KernelsOfBaselinePlansPass) {
  std::vector<Model> models(std::begin(kModels), std::end(kModels));
  models.insert(models.end(), std::begin(kLargeModels), std::end(kLargeModels));
  for (const Model& model : models) {
    SCOPED_TRACE(model.name);
    const CheckedPlan plan = Lower(model.text);
    EXPECT_FALSE(plan.checks.empty());
    for (const internal::KernelCheck& check : plan.checks) {
      SCOPED_TRACE(plan.plan.kernels(check.kernel()).name());
      const auto reply = Report(check.request());
      ASSERT_TRUE(reply.ok()) << reply.status() << "\n" << check.request().graph_text();
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - start_);
      EXPECT_LE(reply->worst_error(), 1);
      EXPECT_THAT(reply->left_out(), ::testing::IsEmpty());
      std::string sizes;
      bool sampled = false;
      for (const auto& set : check.request().sizes()) {
        sampled = sampled || set.sampled();
        absl::StrAppend(&sizes, set.sampled() ? " ~" : " ", absl::StrJoin(set.values(), ","));
      }
      EXPECT_EQ(sampled, reply->sampled_elements() > 0);
      std::printf("%s / %s: %.3g of the tolerance, %d ms, %d sampled, at%s\n", model.name,
                  plan.plan.kernels(check.kernel()).name().c_str(), reply->worst_error(),
                  static_cast<int>(ms.count()), static_cast<int>(reply->sampled_elements()),
                  sizes.c_str());
    }
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

// An extra rounding passes, a wrong constant fails: the check's graph gets one number changed.
TEST_F(BaselineCheckTest, AKernelForAnotherGraphFails) {
  const struct {
    const char* model;
    const char* is;
    const char* becomes;
  } rows[] = {
      {R"(graph "g" { dim b in [1, 64] %0 = Input "x" : f32[b, 40] %1 = Softmax(%0) {axis=1}
          %2 = Constant {value=f32[] {0.5}} %3 = IndexMap(%2) {map=map[b, 40]()}
          %4 = Mul(%1, %3) output "y" = %4 })",
       "0.5", "0.50001"},
      {R"(graph "g" { dim b in [1, 64] %0 = Input "x" : f32[b, 40] %1 = Parameter "w" : f32[40, 24]
          %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Constant {value=f32[] {3.0}}
          %4 = IndexMap(%3) {map=map[b, 24]()} %5 = Mul(%2, %4) output "y" = %5 })",
       "3.0", "3.001"},
      {R"(graph "g" { dim b in [1, 64] %0 = Input "x" : f32[b, 40]
          %1 = IndexMap(%0) {map=map[b, 39]($0, $1)} %2 = Exp(%1) output "y" = %2 })",
       "$1", "$1 + 1"},
  };
  for (const auto& row : rows) {
    const CheckedPlan right = Lower(row.model);
    const std::string changed = absl::StrReplaceAll(row.model, {{row.is, row.becomes}});
    const CheckedPlan wrong = Lower(changed.c_str());
    ASSERT_EQ(right.checks.size(), wrong.checks.size());
    bool failed = false;
    for (size_t i = 0; i < right.checks.size(); ++i) {
      EXPECT_TRUE(Check(right.checks[i].request()).ok()) << Check(right.checks[i].request());
      internal::CheckRequest mixed = right.checks[i].request();
      *mixed.mutable_plan() = wrong.checks[i].request().plan();
      const absl::Status error = Check(mixed);
      if (error.ok()) continue;
      EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error;
      EXPECT_THAT(std::string(error.message()), HasSubstr("off by"));
      failed = true;
    }
    EXPECT_TRUE(failed) << changed;
  }
}

TEST_F(BaselineCheckTest, LargeLiteralsDoNotTravelWithChecks) {
  Graph graph;
  graph.dims = {{"b", 1, 64}};
  GraphBuilder builder(&graph);
  const Shape shape = {Expr::Symbol("b"), 256};
  const NodeId x = builder.Input("x", {DType::kF32, shape}).value();
  const NodeId ids = builder.Input("ids", {DType::kI32, {Expr::Symbol("b")}}).value();
  const NodeId table = builder.Constant(Tensor::Zeros(DType::kF32, {1024, 256})).value();
  const NodeId weight = builder.Constant(Tensor::Zeros(DType::kF32, {256, 256})).value();
  const NodeId row = builder.Add(Op::kGather, {table, ids}, {{"axis", int64_t{0}}}).value();
  const NodeId product =
      builder.Add(Op::kContract, {x, weight}, {{"spec", std::string("bk,kn->bn")}}).value();
  builder.Output("y", builder.Add(Op::kTanh, {row}).value());
  builder.Output("z", builder.Add(Op::kExp, {product}).value());
  const CheckedPlan plan = Lower(ToText(graph).c_str());
  EXPECT_GT(plan.plan.ByteSizeLong(), 1 << 20);
  ASSERT_GE(plan.checks.size(), 2);
  for (const internal::KernelCheck& check : plan.checks) {
    EXPECT_LT(check.request().ByteSizeLong(), 100'000)
        << check.request().graph_text().substr(0, 2000);
    EXPECT_TRUE(Check(check.request()).ok()) << Check(check.request());
  }
}

}  // namespace
}  // namespace athanor
