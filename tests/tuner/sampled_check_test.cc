// Checks hand-written kernels that are right at small sizes and wrong at large ones: the tuner's
// sampled check finds them and names output, element and sizes. Right kernels pass, with parameters
// of many GiB.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Code = absl::StatusCode;

// Returns a kernel with `body` over buffers and work items [begin, end).
std::string Kernel(const std::string& body) {
  return absl::StrCat(
      "struct error_record { long code, index, extent, item; };\n"
      "void athanor_kernel(void* const* b, const long* s, long begin, long end, void* scratch,"
      " struct error_record* e) {\n",
      body, "\n}\n");
}

v1::SizeExpr SizeOf(const Expr& e) {
  v1::SizeExpr size;
  for (const Expr::Term& term : e.terms()) {
    auto* to = size.add_terms();
    to->set_coefficient(term.coefficient);
    for (const AtomRef& atom : term.monomial) to->add_factors()->set_symbol(atom->symbol);
  }
  return size;
}

// Makes a plan of one step with `grid` items that reads all inputs and parameters and writes the
// one output.
v1::Plan PlanOf(const Graph& graph, const Expr& grid) {
  v1::Plan plan;
  plan.set_format(1);
  plan.set_plan_id("p-0000000000000000");
  for (const Dim& d : graph.dims) {
    auto* dim = plan.add_dims();
    dim->set_name(d.name);
    dim->set_min(d.min);
    dim->set_max(d.max);
  }
  plan.add_kernels()->set_name("kernel");
  v1::Step* step = plan.add_run();
  step->set_label("kernel");
  *step->mutable_grid() = SizeOf(grid);
  const auto add = [&](NodeId n, const std::string& name, v1::Buffer::Kind kind) {
    step->add_buffers(plan.buffers_size());
    v1::Buffer* buffer = plan.add_buffers();
    buffer->set_kind(kind);
    buffer->set_name(name);
    const TensorType& type = graph.node(n).type;
    buffer->set_dtype(std::string(DTypeName(type.dtype)));
    Expr bytes = DTypeBytes(type.dtype);
    for (const Expr& e : type.shape) {
      *buffer->add_shape() = SizeOf(e);
      bytes *= e;
    }
    *buffer->mutable_bytes() = SizeOf(bytes);
  };
  for (NodeId n : graph.InputIds()) add(n, graph.node(n).name, v1::Buffer::INPUT);
  for (NodeId n : graph.ParameterIds()) add(n, graph.node(n).name, v1::Buffer::PARAMETER);
  auto* output = plan.add_outputs();
  output->set_name(graph.outputs[0].name);
  output->set_buffer(plan.buffers_size());
  add(graph.outputs[0].node, graph.outputs[0].name, v1::Buffer::OUTPUT);
  return plan;
}

class SampledCheckTest : public TunerTest {
 protected:
  // Checks in full at `small` and sampled at `large`; either may be empty.
  absl::StatusOr<internal::CheckReply> Check(const char* graph_text, const Expr& grid,
                                             const std::string& body,
                                             const std::vector<int64_t>& small,
                                             const std::vector<int64_t>& large) {
    absl::StatusOr<std::string> object = tuner_->Compile(Kernel(body), target_);
    if (!object.ok()) return object.status();
    internal::CheckRequest request;
    const Graph graph = ParseGraph(graph_text).value();
    request.set_graph_text(ToText(graph));
    *request.mutable_plan() = PlanOf(graph, grid);
    request.add_objects(*object);
    request.set_seed(11);
    for (const auto* sizes : {&small, &large}) {
      if (sizes->empty()) continue;
      auto* set = request.add_sizes();
      for (int64_t s : *sizes) set->add_values(s);
      set->set_sampled(sizes == &large);
    }
    return tuner_->CheckReport(request);
  }
};

constexpr char kDouble[] = R"(graph "double" { dim m in [1, 100000] dim n in [1, 100000]
  %0 = Input "x" : f32[m, n] %1 = Add(%0, %0) output "y" = %1 })";
const Expr kRows = Expr::Symbol("m");

// Returns a kernel for the size s = `n`, since kernels do not receive s.
std::string Doubling(int64_t n, const std::string& wrong) {
  return absl::StrCat("const float* x = b[0]; float* y = b[1]; const long n = ", n,
                      "; for (long i = begin; i < end; ++i) for (long j = 0; j < n; ++j) {",
                      " float v = x[i * n + j] + x[i * n + j]; ", wrong, " y[i * n + j] = v; }");
}

TEST_F(SampledCheckTest, WrongOnlyAtLargeSizes) {
  const struct {
    const char* name;
    const char* wrong;
    const char* message;
  } rows[] = {
      {"one element of a million never written", "if (i == 501 && j == 77) continue;",
       "element [501,77] of [1000,1000]"},
      {"a row never written", "if (i == 999) continue;", "element [999,"},
      {"a tile never written", "if (i / 32 == 12 && j / 64 == 3) continue;", "of [1000,1000]"},
      {"the last column", "if (j == n - 1) v = x[i * n + j];", ",999] of [1000,1000]"},
      {"the last row", "if (i == 999) v = x[i * n + j];", "element [999,"},
      {"the rest of columns behind tiles of 48, in the third tile of rows",
       "if (j >= 960 && i / 16 == 2) v = x[i * n + j];", "off by"},
      {"one not a number", "if (i == 3 && j == 3) v = 0.0f / 0.0f;", "element [3,3]"},
      {"one that is far too large", "if (i == 3 && j == 3) v = 1e30f;", "element [3,3]"},
      {"from 2^19 on", "if (i * n + j >= 1 << 19) v += 1e-3f * v;", "off by"},
  };
  ASSERT_TRUE(Check(kDouble, kRows, Doubling(1000, ""), {7, 1000}, {1000, 1000}).ok());
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const auto found = Check(kDouble, kRows, Doubling(1000, row.wrong), {}, {1000, 1000});
    EXPECT_EQ(found.status().code(), Code::kDataLoss) << found.status();
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(row.message));
    EXPECT_THAT(std::string(found.status().message()), HasSubstr("output \"y\""));
    EXPECT_THAT(std::string(found.status().message()), HasSubstr("m=1000 n=1000"));
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(SampledCheckTest, WhatWasComparedIsCounted) {
  auto reply = Check(kDouble, kRows, Doubling(1000, ""), {}, {1000, 1000});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->worst_error(), 0);
  EXPECT_GE(reply->sampled_elements(), 400);
  EXPECT_THAT(reply->left_out(), IsEmpty());
  reply = Check(kDouble, kRows, Doubling(1000, ""), {7, 1000}, {});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->sampled_elements(), 0);
}

// If one element depends on all others, sampling is impossible, and the check says so.
TEST_F(SampledCheckTest, WhatCannotBeComparedIsSaid) {
  constexpr char kSum[] = R"(graph "sum" { dim n in [1, 100000000] %0 = Input "x" : i32[n]
    %1 = SumReduce(%0) {axes=[0]} output "y" = %1 })";
  const std::string body =
      "const int* x = b[0]; unsigned v = 0; for (long i = 0; i < 3000000; ++i) v += x[i];"
      " *(unsigned*)b[1] = v;";
  const auto reply = Check(kSum, 1, body, {}, {3'000'000});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->sampled_elements(), 0);
  ASSERT_THAT(reply->left_out(), SizeIs(1));
  EXPECT_THAT(reply->left_out(0), HasSubstr("n=3000000"));
  EXPECT_THAT(reply->left_out(0), HasSubstr("output \"y\""));
}

// 20 GiB of rows: more than this process may hold, and more than 2^32 elements.
constexpr char kTable[] = R"(graph "table" { dim n in [1, 10000]
  %0 = Input "ids" : i64[n] %1 = Parameter "t" : f32[671088640, 8]
  %2 = Gather(%1, %0) {axis=0} output "y" = %2 })";

std::string Gathering(const std::string& index, const std::string& guard = "") {
  return absl::StrCat(
      "const long* ids = b[0]; const float* t = b[1]; float* y = b[2];"
      " for (long i = begin; i < end; ++i) for (long j = 0; j < 8; ++j) { ",
      guard, " y[8 * i + j] = t[", index, "]; }");
}

TEST_F(SampledCheckTest, ParametersOfManyGiB) {
  const Expr n = Expr::Symbol("n");
  const auto right = Check(kTable, n, Gathering("ids[i] * 8 + j"), {}, {1000});
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_GE(right->sampled_elements(), 300);
  EXPECT_THAT(right->left_out(), IsEmpty());
  const char* wrong[] = {
      "(unsigned)(ids[i] * 8 + j)",                // wraps at 2^32 elements
      "(unsigned)ids[i] * 8u + j",                 // this product wraps too
      "((ids[i] * 8) & 0x7fffffff) + j",           // wraps at 2^31
      "(ids[i] - (ids[i] == 671088639)) * 8 + j",  // reads the row before the last instead of the
                                                   // last
      "(ids[i] ^ (ids[i] > 500000000)) * 8 + j",
      "(long)(float)ids[i] % 671088640 * 8 + j",  // rounded
  };
  for (const char* index : wrong) {
    const auto found = Check(kTable, n, Gathering(index), {}, {1000});
    EXPECT_EQ(found.status().code(), Code::kDataLoss) << index << ": " << found.status();
    EXPECT_THAT(std::string(found.status().message()), HasSubstr("n=1000"));
  }
  // This kernel writes outside its output.
  const auto written =
      Check(kTable, n, Gathering("ids[i] * 8 + j", "((float*)t)[ids[i] * 8 + j] = 0;"), {}, {1000});
  EXPECT_EQ(written.status().code(), Code::kInternal);
  EXPECT_THAT(std::string(written.status().message()), HasSubstr("SIGSEGV"));
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(SampledCheckTest, IndicesInRangeAreNotRefused) {
  const auto found = Check(
      kTable, Expr::Symbol("n"),
      Gathering("ids[i] * 8 + j", "if (ids[i] > 2000000) { e->code = 1; return; }"), {}, {1000});
  EXPECT_EQ(found.status().code(), Code::kDataLoss) << found.status();
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("every index is in range"));
}

// Every index is out of range: the kernel must report that, and no other error counts as the
// report.
constexpr char kOutside[] = R"(graph "outside" { dim n in [1, 5000]
  %0 = Input "x" : f32[n] %1 = Iota {shape=shape[n], axis=0, dtype=i32}
  %2 = Add(%1, %1) %3 = Constant {value=i32[] {9999}} %4 = IndexMap(%3) {map=map[n]()}
  %5 = Add(%2, %4) %6 = Gather(%0, %5) {axis=0} output "y" = %6 })";

TEST_F(SampledCheckTest, IndicesOutOfRangeMustBeNoticedAsSuch) {
  const Expr n = Expr::Symbol("n");
  const std::string noticed =
      "for (long i = begin; i < end; ++i) { e->code = 1; e->index = 9999; }";
  for (const auto& [small, large] :
       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{{{5}, {}},
                                                                          {{}, {3000}}}) {
    EXPECT_TRUE(Check(kOutside, n, noticed, small, large).ok());
    const auto missed = Check(
        kOutside, n, "float* y = b[1]; for (long i = begin; i < end; ++i) y[i] = 0;", small, large);
    EXPECT_EQ(missed.status().code(), Code::kDataLoss) << missed.status();
    EXPECT_THAT(std::string(missed.status().message()), HasSubstr("goes unnoticed"));
  }
  // Sizes that the plan does not serve are INVALID_ARGUMENT too, but with another message.
  const auto sizes = Check(kOutside, n, noticed, {6000}, {});
  EXPECT_EQ(sizes.status().code(), Code::kInvalidArgument) << sizes.status();
}

TEST_F(SampledCheckTest, OutputsBeyondMemoryAreRefusedByName) {
  constexpr char kHuge[] = R"(graph "huge" { dim n in [1, 1000000] %0 = Input "x" : f32[n]
    %1 = IndexMap(%0) {map=map[n, 10000]($0)} output "y" = %1 })";
  const auto found = Check(kHuge, Expr::Symbol("n"), "", {}, {1'000'000});
  EXPECT_EQ(found.status().code(), Code::kResourceExhausted) << found.status();
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("output \"y\""));
  EXPECT_EQ(tuner_->starts(), 1);
}

}  // namespace
}  // namespace athanor
