// Checks whole plans with a real tuner process. Plans of graphs that compute something else are
// refused even if each kernel is right, plans of equivalent graphs pass, and hostile plans harm
// only themselves.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/text_graph.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Code = absl::StatusCode;

class PlanCheckTest : public TunerTest {
 protected:
  Graph Parsed(const std::string& text) {
    absl::StatusOr<Graph> graph = ParseGraph(text);
    EXPECT_TRUE(graph.ok()) << graph.status() << text;
    return graph.ok() ? *std::move(graph) : Graph();
  }

  void Compile(internal::MeasuredPlan* plan) {
    plan->clear_objects();
    for (const v1::Kernel& kernel : plan->plan().kernels()) {
      std::string& object = objects_[kernel.source()];
      if (object.empty()) {
        auto compiled = tuner_->Compile(kernel.source(), target_);
        ASSERT_TRUE(compiled.ok()) << compiled.status();
        object = *std::move(compiled);
      }
      plan->add_objects(object);
    }
  }

  internal::MeasuredPlan PlanOf(const std::string& text, bool exact = false) {
    internal::MeasuredPlan plan;
    auto lowered = tuner_->Lower(Parsed(text), target_, exact);
    EXPECT_TRUE(lowered.ok()) << lowered.status() << text;
    if (!lowered.ok()) return plan;
    *plan.mutable_plan() = std::move(*lowered->mutable_plan());
    Compile(&plan);
    return plan;
  }

  // All models name their dims b, then s.
  internal::PlanCheckRequest Request(const std::string& graph, const std::string& candidate,
                                     const std::vector<int64_t>& sizes = {1, 12, 150}) {
    internal::PlanCheckRequest request;
    request.set_graph_text(graph);
    request.set_seed(3);
    request.set_threads(2);
    *request.mutable_candidate() = PlanOf(candidate);
    *request.mutable_baseline() = PlanOf(graph);
    *request.mutable_exact() = PlanOf(graph, /*exact=*/true);
    for (int64_t size : sizes) {
      internal::Sizes* set = request.add_sizes();
      for (int d = 0; d < request.candidate().plan().dims_size(); ++d) set->add_values(size);
      if (set->values().empty()) break;
    }
    return request;
  }

  internal::PlanCheckReply ExpectPasses(const internal::PlanCheckRequest& request) {
    auto reply = tuner_->CheckPlan(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return {};
    EXPECT_GT(reply->elements(), 0);
    std::printf("%s: %.2g of what is allowed, rms %.2g (baseline %.2g), %d runs, %.0f ms\n",
                reply->compared_with().c_str(), reply->worst_error(),
                reply->outputs(0).candidate_rms(), reply->outputs(0).baseline_rms(), reply->runs(),
                reply->seconds() * 1e3);
    return *std::move(reply);
  }

  void ExpectRefused(const internal::PlanCheckRequest& request, const std::string& why) {
    const absl::Status status = tuner_->CheckPlan(request).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }

  std::map<std::string, std::string> objects_;  // keyed by source
};

std::string Model(const std::string& body) {
  return absl::StrCat("graph \"g\" {\n dim b in [1, 256]\n", body, "}");
}

constexpr char kProduct[] = R"(%0 = Input "x" : f32[b, 96] %1 = Parameter "w" : f32[96, 96]
  %2 = Contract(%0, %1) {spec="bk,kn->bn"} )";

struct Case {
  const char* name;
  std::string graph, candidate;  // bodies
  const char* why = "";          // reason of the refusal; empty: it passes
};

std::string Replaced(std::string text, const char* is, const char* becomes) {
  EXPECT_NE(text.find(is), std::string::npos) << is;
  return absl::StrReplaceAll(text, {{is, becomes}});
}

std::vector<Case> WrongPlans() {
  const std::string product = kProduct;
  const std::string scaled = product + R"(%3 = Constant {value=f32[] {1.001}}
    %4 = IndexMap(%3) {map=map[b, 96]()} %5 = Mul(%2, %4) output "y" = %5 )";
  const std::string plain = product + R"(output "y" = %2 )";
  const auto half = [](const std::string& body, const char* dtype, const char* times) {
    return absl::StrReplaceAll(body, {{"f32", dtype}, {"1.001", times}});
  };
  const std::string norm = R"(%0 = Input "x" : f32[b, 64] %1 = Parameter "s" : f32[64]
    %2 = Parameter "o" : f32[64] %3 = LayerNorm(%0, %1, %2) {epsilon=1e-5}
    %4 = Tanh(%3) output "y" = %4 )";
  const std::string relu = R"(%0 = Input "x" : f32[b, 40] %1 = Relu(%0) output "y" = %1 )";
  const std::string masked = R"(%0 = Input "x" : f32[b, 40] %1 = Constant {value=f32[] {0.0}}
    %2 = IndexMap(%1) {map=map[b, 40]()} %3 = LessThan(%2, %0) %4 = Constant {value=f32[] {1.0}}
    %5 = IndexMap(%4) {map=map[b, 40]()} %6 = Select(%3, %5, %2) %7 = Mul(%0, %6)
    output "y" = %7 )";
  const std::string softmax =
      R"(%0 = Input "x" : f32[b, 40] %1 = Softmax(%0) {axis=1} output "y" = %1 )";
  const std::string naive_softmax = R"(%0 = Input "x" : f32[b, 40] %1 = Exp(%0)
    %2 = SumReduce(%1) {axes=[1]} %3 = IndexMap(%2) {map=map[b, 40]($0)} %4 = Div(%1, %3)
    output "y" = %4 )";
  const std::string divisor = R"(%0 = Input "x" : f32[b, 96] %1 = Input "r" : f32[b] )";
  const std::string divided = divisor + R"(%2 = IndexMap(%1) {map=map[b, 96]($0)}
    %3 = Div(%0, %2) output "y" = %3 )";
  const std::string by_reciprocals = divisor + R"(%2 = Recip(%1)
    %3 = IndexMap(%2) {map=map[b, 96]($0)} %4 = Mul(%0, %3) output "y" = %4 )";
  // Computes the variance of values around 300 in one pass and in two.
  const std::string shifted = R"(%0 = Input "x" : f32[b, 64] %1 = Constant {value=f32[] {300.0}}
    %2 = IndexMap(%1) {map=map[b, 64]()} %3 = Add(%0, %2) %4 = SumReduce(%3) {axes=[1]}
    %5 = Constant {value=f32[] {0.015625}} %6 = IndexMap(%5) {map=map[b]()} %7 = Mul(%4, %6) )";
  const std::string two_passes = shifted + R"(%8 = Constant {value=f32[] {-1.0}}
    %9 = IndexMap(%8) {map=map[b]()} %10 = Mul(%7, %9) %11 = IndexMap(%10) {map=map[b, 64]($0)}
    %12 = Add(%3, %11) %13 = Mul(%12, %12) %14 = SumReduce(%13) {axes=[1]} output "v" = %14 )";
  const std::string one_pass = shifted + R"(%8 = Mul(%3, %3) %9 = SumReduce(%8) {axes=[1]}
    %10 = Constant {value=f32[] {-1.0}} %11 = IndexMap(%10) {map=map[b]()} %12 = Mul(%4, %7)
    %13 = Mul(%12, %11) %14 = Add(%9, %13) output "v" = %14 )";
  const std::string late =
      R"(%0 = Input "x" : f32[b, 8] %1 = Iota {axis=0, dtype=i32, shape=shape[b, 8]}
    %2 = Constant {value=i32[] {140}} %3 = IndexMap(%2) {map=map[b, 8]()} %4 = LessThan(%1, %3)
    %5 = Exp(%0) %6 = Exp2(%0) %7 = Select(%4, %5, %6) output "y" = %7 )";
  const std::string integers = R"(%0 = Input "x" : i32[b, 9] %1 = Input "z" : i32[b, 9]
    %2 = FloorDiv(%0, %1) %3 = Mul(%2, %0) output "q" = %3 )";
  const std::string chosen = product + R"(%3 = MaxReduce(%2) {axes=[1]}
    %4 = IndexMap(%3) {map=map[b, 96]($0)} %5 = LessThan(%2, %4) output "below" = %5 )";
  return {
      {"scaled by 1.001", plain, scaled, "error is"},
      {"scaled by 1.001 in f16", half(plain, "f16", ""), half(scaled, "f16", "1.001"), "error is"},
      {"scaled by 1.01 in bf16", half(plain, "bf16", ""), half(scaled, "bf16", "1.01"), "error is"},
      {"transposed weight", plain, Replaced(plain, "bk,kn->bn", "bk,nk->bn"), "error is"},
      {"another epsilon", norm, Replaced(norm, "epsilon=1e-5", "epsilon=1.1e-5"), "error is"},
      {"NaN for infinities only", relu, masked, "with infinities: "},
      {"overflows for large values only", softmax, naive_softmax, "with zeros and extremes: "},
      {"reciprocals of subnormals", divided, by_reciprocals, "with ends of the range: "},
      {"bad rounding", two_passes, one_pass, "error is"},
      {"wrong at the largest size only", Replaced(late, "Exp2(", "Exp("), late, "at b=150: "},
      {"off by one for some integers", integers, Replaced(integers, "FloorDiv", "TruncDiv"),
       "elements are not as in f64"},
      {"another choice", chosen, Replaced(chosen, "LessThan(%2, %4)", "LessThan(%4, %2)"),
       "elements are not as in f64"},
      {"another constant", Replaced(scaled, "1.001", "3.0"), Replaced(scaled, "1.001", "3.00002"),
       "error is"},
  };
}

TEST_F(PlanCheckTest, WrongPlansAreRefused) {
  for (const Case& c : WrongPlans()) {
    SCOPED_TRACE(c.name);
    const auto request = Request(Model(c.graph), Model(c.candidate));
    ExpectRefused(request, c.why);
    auto right = request;
    *right.mutable_candidate() = right.baseline();
    EXPECT_EQ(ExpectPasses(right).compared_with(), "f64 plan");
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

std::vector<Case> OtherwiseWritten() {
  const std::string product = kProduct;
  const std::string scale = R"(%3 = Constant {value=f32[] {0.3}} )";
  const std::string after = product + scale + R"(%4 = IndexMap(%3) {map=map[b, 96]()}
    %5 = Mul(%2, %4) %6 = Gelu(%5) output "y" = %6 )";
  const std::string before = R"(%0 = Input "x" : f32[b, 96] %1 = Parameter "w" : f32[96, 96]
    %2 = Constant {value=f32[] {0.3}} %3 = IndexMap(%2) {map=map[96, 96]()} %4 = Mul(%1, %3)
    %5 = Contract(%0, %4) {spec="bk,kn->bn"} %6 = Gelu(%5) output "y" = %6 )";
  const std::string left = R"(%0 = Input "x" : f32[b, 24, 24] %1 = SumReduce(%0) {axes=[1, 2]}
    %2 = Exp(%0) %3 = Add(%0, %2) %4 = Add(%3, %2) output "s" = %1 output "t" = %4 )";
  const std::string right = R"(%0 = Input "x" : f32[b, 24, 24] %1 = SumReduce(%0) {axes=[2]}
    %2 = SumReduce(%1) {axes=[1]} %3 = Exp(%0) %4 = Add(%3, %3) %5 = Add(%0, %4)
    output "s" = %2 output "t" = %5 )";
  const std::string bags = R"(%0 = Parameter "t" : f32[500, 16] %1 = Input "ids" : i64[3*b]
    %2 = Input "offsets" : i32[b] %3 = EmbeddingBag(%0, %1, %2) {mode="sum"}
    %4 = Input "row" : i32[b] %5 = Gather(%0, %4) {axis=0} )";
  const std::string attention = R"(%0 = Input "q" : f32[b, 4, 16] %1 = Input "k" : f32[b, 4, 16]
    %2 = Input "v" : f32[b, 4, 16] )";
  return {
      {"a factor of the weights", after, before},
      {"a factor of the weights, f16", absl::StrReplaceAll(after, {{"f32", "f16"}}),
       absl::StrReplaceAll(before, {{"f32", "f16"}})},
      {"sums in another order", left, right},
      {"bags and rows", bags + R"(%6 = Add(%3, %5) output "y" = %6 )",
       bags + R"(%6 = Add(%5, %3) output "y" = %6 )"},
      {"attention in primitives",
       attention + R"(%3 = Attention(%0, %1, %2) {scale=0.25} output "y" = %3 )",
       attention + R"(%3 = Contract(%0, %1) {spec="bqd,bkd->bqk"} %4 = Constant {value=f32[] {0.25}}
         %5 = IndexMap(%4) {map=map[b, 4, 4]()} %6 = Mul(%3, %5) %7 = Softmax(%6) {axis=2}
         %8 = Contract(%7, %2) {spec="bqk,bkd->bqd"} %9 = Tanh(%6) output "y" = %8 )"},
      {"integers", R"(%0 = Input "x" : i64[b, 9] %1 = Mul(%0, %0) %2 = Add(%1, %0)
         output "y" = %2 )",
       R"(%0 = Input "x" : i64[b, 9] %1 = Constant {value=i64[] {1}}
         %2 = IndexMap(%1) {map=map[b, 9]()} %3 = Add(%0, %2) %4 = Mul(%3, %0) output "y" = %4 )"},
      {"one value in all", R"(%0 = Input "x" : f32[b, 30] %1 = SumReduce(%0) {axes=[0, 1]}
         output "y" = %1 )",
       R"(%0 = Input "x" : f32[b, 30] %1 = SumReduce(%0) {axes=[0]} %2 = SumReduce(%1) {axes=[0]}
         output "y" = %2 )"},
      {"f64", absl::StrReplaceAll(left, {{"f32", "f64"}}),
       absl::StrReplaceAll(right, {{"f32", "f64"}})},
  };
}

TEST_F(PlanCheckTest, PlansOfGraphsWrittenOtherwisePass) {
  for (const Case& c : OtherwiseWritten()) {
    SCOPED_TRACE(c.name);
    const internal::PlanCheckReply reply =
        ExpectPasses(Request(Model(c.graph), Model(c.candidate)));
    EXPECT_EQ(reply.compared_with(), "f64 plan");
    if (c.graph.find("Attention") == std::string::npos) {
      EXPECT_THAT(reply.left_out(), IsEmpty());
    }
    EXPECT_GE(reply.runs(), 3);
  }
}

// Checks the encoder's plan in primitives against the encoder in composites. To see the cost for
// another model, give its graph and its sizes, in the order of its dims, in the environment:
//   ATHANOR_MODEL=dlrm.txtpb ATHANOR_SIZES="1 64 2048" bazel-bin/tests/tuner/plan_check_test
TEST_F(PlanCheckTest, WholeModelsPass) {
  std::string model = "tests/models/testdata/encoder_composites.txtpb";
  std::string other = "tests/models/testdata/encoder_primitives.txtpb";
  std::string sizes = "1,1 2,7 8,64";
  if (const char* asked = std::getenv("ATHANOR_MODEL")) model = other = asked;
  if (const char* asked = std::getenv("ATHANOR_SIZES")) sizes = asked;
  const Graph graph = ReadTextGraph(model);
  internal::PlanCheckRequest request = Request(ToText(graph), ToText(ReadTextGraph(other)), {});
  for (absl::string_view set : absl::StrSplit(sizes, ' ')) {
    const std::vector<std::string> values = absl::StrSplit(set, ',');
    ASSERT_EQ(values.size(), graph.dims.size()) << set;
    std::map<std::string, int64_t> by_name;
    for (size_t d = 0; d < values.size(); ++d) {
      ASSERT_TRUE(absl::SimpleAtoi(values[d], &by_name[graph.dims[d].name])) << set;
    }
    internal::Sizes* out = request.add_sizes();
    for (const v1::DimRange& dim : request.candidate().plan().dims()) {
      out->add_values(by_name[dim.name()]);
    }
  }
  const internal::PlanCheckReply reply = ExpectPasses(request);
  EXPECT_EQ(reply.compared_with(), "f64 plan");
  for (const std::string& left_out : reply.left_out()) std::printf("  %s\n", left_out.c_str());
}

TEST_F(PlanCheckTest, ApproximatePlansPassOnRequest) {
  const std::string product = std::string(kProduct) + R"(output "y" = %2 )";
  const std::string rounded = R"(%0 = Input "x" : f32[b, 96] %1 = Parameter "w" : f32[96, 96]
    %2 = Cast(%0) {dtype=bf16} %3 = Cast(%1) {dtype=bf16} %4 = Contract(%2, %3) {spec="bk,kn->bn"}
    %5 = Cast(%4) {dtype=f32} output "y" = %5 )";
  internal::PlanCheckRequest request = Request(Model(product), Model(rounded));
  ExpectRefused(request, "error is");
  request.set_approximate(true);
  ExpectPasses(request);
  *request.mutable_candidate() = PlanOf(Model(Replaced(product, "bk,kn->bn", "bk,nk->bn")));
  ExpectRefused(request, "error is");
}

TEST_F(PlanCheckTest, WithoutATwinSomeElementsAreComputedInF64) {
  const Case c = WrongPlans()[0];
  internal::PlanCheckRequest request = Request(Model(c.graph), Model(c.candidate));
  request.clear_exact();
  request.set_no_exact("the target lacks f64");
  ExpectRefused(request, "error is");
  *request.mutable_candidate() = request.baseline();
  const internal::PlanCheckReply reply = ExpectPasses(request);
  EXPECT_EQ(reply.compared_with(), "f64 samples");
  ASSERT_GE(reply.left_out_size(), 1);
  EXPECT_THAT(reply.left_out(0), HasSubstr("the target lacks f64"));
}

TEST_F(PlanCheckTest, WhatIsTooMuchToSampleIsComparedWithTheBaseline) {
  const std::string deep = R"(%0 = Input "x" : f32[b, 1024] %1 = Parameter "w" : f32[1024, 1024]
    %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Tanh(%2) %4 = Contract(%3, %1) {spec="bk,kn->bn"}
    %5 = Tanh(%4) %6 = Contract(%5, %1) {spec="bk,kn->bn"} )";
  const std::string scaled = deep + R"(%7 = Constant {value=f32[] {1.001}}
    %8 = IndexMap(%7) {map=map[b, 1024]()} %9 = Mul(%6, %8) output "y" = %9 )";
  internal::PlanCheckRequest request =
      Request(Model(deep + R"(output "y" = %6 )"), Model(scaled), {1, 12});
  request.clear_exact();
  ExpectRefused(request, "error is");
  *request.mutable_candidate() = request.baseline();
  const internal::PlanCheckReply reply = ExpectPasses(request);
  EXPECT_EQ(reply.compared_with(), "baseline");
  EXPECT_THAT(std::string(reply.left_out(reply.left_out_size() - 1)),
              HasSubstr("compared with the baseline alone"));
}

TEST_F(PlanCheckTest, WhatIsNotDefinedIsSaidToBeLeftOut) {
  const std::string causal = R"(%0 = Input "q" : f32[b, 8, 16] %1 = Input "k" : f32[b, 8, 16]
    %2 = Input "v" : f32[b, 8, 16] %3 = Attention(%0, %1, %2) {causal=true} output "y" = %3 )";
  const internal::PlanCheckReply reply = ExpectPasses(Request(Model(causal), Model(causal)));
  ASSERT_EQ(reply.left_out_size(), 2);
  EXPECT_THAT(reply.left_out(0), HasSubstr("infinities and ends of the range: "));
  EXPECT_THAT(reply.left_out(1), HasSubstr("a hidden one"));
}

// Returns the plan's last kernel with `body` in front.
std::string Hostile(const std::string& source, const std::string& body) {
  return absl::StrCat(
      absl::StrReplaceAll(source, {{"void athanor_kernel(", "static void right_kernel("}}),
      "\nvoid athanor_kernel(void* const* buffers, const i64* sizes, i64 begin, i64 end,"
      " void* scratch, struct KernelError* error) {",
      body, " right_kernel(buffers, sizes, begin, end, scratch, error); }\n");
}

TEST_F(PlanCheckTest, HostilePlansCostThemselves) {
  TunerOptions options;
  options.binary = "server/athanor-tuner";
  options.check_timeout = std::chrono::seconds(20);
  options.memory_limit = int64_t{1} << 30;
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  tuner_ = *std::move(tuner);
  const std::string model = Model(std::string(kProduct) + R"(%3 = Tanh(%2) output "y" = %3 )");
  const internal::PlanCheckRequest right = Request(model, model);
  const struct {
    const char* name;
    const char* body;
    Code code;
    const char* why;
  } rows[] = {
      {"crash", "__builtin_trap();", Code::kInternal, "SIGILL"},
      {"hang", "for (;;) *(volatile i64*)scratch;", Code::kDeadlineExceeded, "still ran"},
      {"memory",
       "static char hog[3l << 30]; for (i64 i = 0; i < (3l << 30); i += 4096)"
       " ((volatile char*)hog)[i] = 1;",
       Code::kResourceExhausted, "bytes it may have"},
      // Overwrites everything it can find: its inputs, and memory that the references used.
      {"wild writes", "for (i64 i = -4096; i < 4096; ++i) ((volatile f32*)buffers[0])[i] = 1;",
       Code::kInternal, "SIGSEGV"},
      {"writes nothing", "return;", Code::kDataLoss, "error is"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    internal::PlanCheckRequest request = right;
    v1::Plan* plan = request.mutable_candidate()->mutable_plan();
    v1::Kernel* kernel = plan->mutable_kernels(plan->kernels_size() - 1);
    kernel->set_source(Hostile(kernel->source(), row.body));
    Compile(request.mutable_candidate());
    const absl::Status status = tuner_->CheckPlan(request).status();
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.why));
    ExpectPasses(right);
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(PlanCheckTest, RequestsThatDoNotFitAreRefused) {
  const std::string model = Model(std::string(kProduct) + R"(output "y" = %2 )");
  const internal::PlanCheckRequest right = Request(model, model);
  const auto refused = [&](void (*change)(internal::PlanCheckRequest*)) {
    internal::PlanCheckRequest request = right;
    change(&request);
    return tuner_->CheckPlan(request).status();
  };
  const absl::Status objects =
      refused([](internal::PlanCheckRequest* r) { r->mutable_candidate()->clear_objects(); });
  EXPECT_EQ(objects.code(), Code::kInvalidArgument) << objects;
  const absl::Status sizes = refused([](internal::PlanCheckRequest* r) { r->clear_sizes(); });
  EXPECT_EQ(sizes.code(), Code::kInvalidArgument) << sizes;
  const absl::Status dims =
      refused([](internal::PlanCheckRequest* r) { r->mutable_sizes(0)->add_values(1); });
  EXPECT_EQ(dims.code(), Code::kInvalidArgument) << dims;
  // If the baseline cannot run, the candidate is not at fault.
  const absl::Status baseline = refused([](internal::PlanCheckRequest* r) {
    r->mutable_baseline()->mutable_plan()->mutable_buffers(0)->set_name("other");
  });
  EXPECT_EQ(baseline.code(), Code::kFailedPrecondition) << baseline;
}

}  // namespace
}  // namespace athanor
