// A started athanor-tuner as the fixture of tests, and what they give it to compile and to lower.
#ifndef ATHANOR_SERVER_CHILD_TUNER_PROCESS_TESTING_H_
#define ATHANOR_SERVER_CHILD_TUNER_PROCESS_TESTING_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gtest/gtest.h"
#include "server/child/tuner_process.h"

namespace athanor {

inline constexpr char kSignature[] =
    "void athanor_kernel(void* const* b, const long* s, long begin, long end, void* scratch,"
    " void* error)";

// y = x + x over n elements, with something else before it.
inline std::string Kernel(const std::string& body, const std::string& before = "") {
  return absl::StrCat(before, "\n", kSignature, " {\n const float* x = b[0]; float* y = b[1];\n",
                      body, "\n for (long i = begin; i < end; ++i) y[i] = x[i] + x[i];\n}\n");
}

inline v1::SizeExpr Scaled(int64_t coefficient, const std::string& symbol) {
  v1::SizeExpr e;
  auto* term = e.add_terms();
  term->set_coefficient(coefficient);
  if (!symbol.empty()) term->add_factors()->set_symbol(symbol);
  return e;
}

// The check of a kernel that should double n floats.
inline internal::CheckRequest DoublingCheck(const std::string& object) {
  Graph graph;
  graph.name = "double";
  graph.dims = {{"n", 1, 1000}};
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {Expr::Symbol("n")}}).value();
  builder.Output("y", builder.Add(Op::kAdd, {x, x}).value());

  internal::CheckRequest request;
  request.set_graph_text(ToText(graph));
  request.add_objects(object);
  request.set_seed(7);
  for (int64_t n : {1, 37, 1000}) request.add_sizes()->add_values(n);
  v1::Plan* plan = request.mutable_plan();
  plan->set_format(1);
  plan->set_plan_id("p-0000000000000000");
  auto* dim = plan->add_dims();
  dim->set_name("n");
  dim->set_min(1);
  dim->set_max(1000);
  plan->add_kernels()->set_name("double");
  for (const char* name : {"x", "y"}) {
    v1::Buffer* buffer = plan->add_buffers();
    buffer->set_kind(*name == 'x' ? v1::Buffer::INPUT : v1::Buffer::OUTPUT);
    buffer->set_name(name);
    buffer->set_dtype("f32");
    *buffer->add_shape() = Scaled(1, "n");
    *buffer->mutable_bytes() = Scaled(4, "n");
  }
  v1::Step* step = plan->add_run();
  step->set_label("double");
  step->add_buffers(0);
  step->add_buffers(1);
  *step->mutable_grid() = Scaled(1, "n");
  auto* output = plan->add_outputs();
  output->set_name("y");
  output->set_buffer(1);
  return request;
}

inline TunerOptions TestOptions() {
  TunerOptions options;
  options.binary = "server/athanor-tuner";
  options.memory_limit = int64_t{1} << 30;
  options.compile_timeout = std::chrono::milliseconds(6000);
  options.check_timeout = std::chrono::milliseconds(4000);
  return options;
}

// y = tanh(tanh(... x)), each but the last under a name of its own.
inline Graph Chain(int length, const std::string& dim = "n") {
  Graph graph;
  graph.name = "chain";
  graph.dims = {{dim, 1, 1000}};
  GraphBuilder builder(&graph);
  NodeId x = builder.Input("x", {DType::kF32, {Expr::Symbol(dim)}}).value();
  for (int i = 0; i < length; ++i) x = builder.Add(Op::kTanh, {x}).value();
  builder.Output("y", x);
  return graph;
}

class TunerProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<TunerProcess>> tuner = TunerProcess::Start(TestOptions());
    ASSERT_TRUE(tuner.ok()) << tuner.status();
    tuner_ = *std::move(tuner);
    absl::StatusOr<internal::TargetReply> target = tuner_->Target();
    ASSERT_TRUE(target.ok()) << target.status();
    target_ = target->target();
  }

  absl::Status CompileAndCheck(const std::string& source) {
    ASSIGN_OR_RETURN(std::string object, tuner_->Compile(source, target_));
    return tuner_->Check(DoublingCheck(object));
  }

  std::unique_ptr<TunerProcess> tuner_;
  v1::Target target_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_TUNER_PROCESS_TESTING_H_
