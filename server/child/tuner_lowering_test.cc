// Lowering in the tuner's process: what it makes of graphs, and what ends it.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/child/tuner_process.h"
#include "server/child/tuner_process_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

// Takes the greater part of a second to lower.
const Graph& LongChain() {
  static const Graph* const graph = new Graph(Chain(60'000));
  return *graph;
}

// Processor time that a process has had, in ticks of 10 ms.
int64_t WorkedTicks(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  int64_t user = 0, system = 0;
  fields >> user >> system;
  return user + system;
}

// Until it has worked for a tenth of a second, which it only does on a request. A test that waits
// for ever has failed.
void AwaitWork(pid_t pid, int64_t before) {
  while (WorkedTicks(pid) < before + 10) std::this_thread::sleep_for(milliseconds(1));
}

// Lowers a chain of three, and runs what its reply asks for: the child is in order.
void ExpectLowers(TunerProcess& tuner, const v1::Target& target) {
  absl::StatusOr<internal::LowerReply> lowered = tuner.Lower(Chain(3, "batch.size"), target);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->plan().kind(), "baseline");
  ASSERT_EQ(lowered->plan().dims_size(), 1);
  EXPECT_EQ(lowered->plan().dims(0).name(), "batch.size");
  EXPECT_EQ(lowered->plan().dims(0).max(), 1000);
  ASSERT_GE(lowered->plan().kernels_size(), 1);
  ASSERT_EQ(lowered->checks_size(), lowered->plan().kernels_size());
  for (const internal::KernelCheck& check : lowered->checks()) {
    internal::CheckRequest request = check.request();
    EXPECT_EQ(request.objects_size(), 0);
    for (const v1::Kernel& kernel : request.plan().kernels()) {
      absl::StatusOr<std::string> object = tuner.Compile(kernel.source(), target);
      ASSERT_TRUE(object.ok()) << object.status();
      request.add_objects(*std::move(object));
    }
    EXPECT_TRUE(tuner.Check(request).ok()) << tuner.Check(request);
  }
}

TEST_F(TunerProcessTest, LowersGraphs) {
  for (int i = 0; i < 3; ++i) ExpectLowers(*tuner_, target_);
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(TunerProcessTest, LoweringKeepsTheUsersNamesAndLiterals) {
  Graph graph;
  graph.dims = {{"b", 0, 7}, {"in", 2, 9}};
  GraphBuilder builder(&graph);
  const Shape shape = {Expr::Symbol("b"), Expr::Symbol("in"), 100};
  const NodeId x = builder.Input("x \"1\"", {DType::kF32, shape}).value();
  Tensor literal = Tensor::Zeros(DType::kF32, {100});
  for (int i = 0; i < 100; ++i) literal.data<uint32_t>()[i] = 0x7fc00001u + i;  // NaNs
  const NodeId c = builder.Constant(literal).value();
  const NodeId wide =
      builder.Add(Op::kIndexMap, {c}, {{"map", IndexMap{shape, {Expr::Axis(2)}}}}).value();
  builder.Output("z", builder.Add(Op::kMul, {x, wide}).value());
  builder.Output("literal", c);
  builder.Output("a", x);
  absl::StatusOr<internal::LowerReply> lowered = tuner_->Lower(graph, target_);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const v1::Plan& plan = lowered->plan();
  EXPECT_EQ(plan.graph_hash(), CanonicalHash(graph));
  ASSERT_EQ(plan.dims_size(), 2);
  for (const v1::DimRange& dim : plan.dims()) {
    EXPECT_EQ(dim.min(), dim.name() == "in" ? 2 : 0);
    EXPECT_EQ(dim.max(), dim.name() == "in" ? 9 : 7);
  }
  ASSERT_EQ(plan.outputs_size(), 3);
  EXPECT_EQ(plan.outputs(0).name(), "z");
  EXPECT_EQ(plan.outputs(1).name(), "literal");
  EXPECT_EQ(plan.outputs(2).name(), "a");
  EXPECT_EQ(plan.buffers(plan.outputs(1).buffer()).literal(), literal.bytes);
  EXPECT_EQ(plan.buffers(plan.outputs(2).buffer()).name(), "x \"1\"");
}

TEST_F(TunerProcessTest, LoweringThatTakesTooLongCostsTheCall) {
  TunerOptions options = TestOptions();
  options.lower_timeout = milliseconds(50);
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  ASSERT_TRUE((*tuner)->Target().ok());
  const absl::Status status = (*tuner)->Lower(LongChain(), target_).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lowering the graph"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the 50 ms it may take"));
  // Not by lowering again: a busy machine may take as long for any graph.
  EXPECT_TRUE((*tuner)->Target().ok());
  EXPECT_EQ((*tuner)->starts(), 2);
}

TEST_F(TunerProcessTest, LoweringThatTakesTooMuchMemoryCostsTheCall) {
  TunerOptions options = TestOptions();
  options.memory_limit = int64_t{512} << 20;
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  Graph graph = Chain(3);
  GraphBuilder builder(&graph);
  for (int i = 0; i < 2; ++i) {
    builder.Output(absl::StrCat("c", i),
                   builder.Constant(Tensor::Zeros(DType::kU8, {60 << 20})).value());
  }
  const absl::Status status = (*tuner)->Lower(graph, target_).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lowering the graph"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than the 536870912 bytes of memory"));
  ExpectLowers(**tuner, target_);
  EXPECT_EQ((*tuner)->starts(), 2);
}

TEST_F(TunerProcessTest, LoweringBeyondTheMessageLimitsIsRefused) {
  TunerOptions options = TestOptions();
  options.max_graph_text_bytes = 20'000;
  options.max_reply_bytes = 20'000;
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  absl::Status status = (*tuner)->Lower(Chain(2'000), target_).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 20000 are lowered"));
  status = (*tuner)->Lower(Chain(600), target_).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 20000 are sent"));
  ExpectLowers(**tuner, target_);
  EXPECT_EQ((*tuner)->starts(), 1);
}

TEST_F(TunerProcessTest, LoweringIsInterrupted) {
  const Graph& graph = LongChain();
  std::thread interrupter([this, pid = tuner_->pid(), before = WorkedTicks(tuner_->pid())] {
    AwaitWork(pid, before);
    tuner_->Interrupt();
  });
  const absl::Status status = tuner_->Lower(graph, target_).status();
  interrupter.join();
  EXPECT_EQ(status.code(), Code::kCancelled) << status;
  tuner_->ClearInterrupt();
  ExpectLowers(*tuner_, target_);
  EXPECT_EQ(tuner_->starts(), 2);
}

TEST_F(TunerProcessTest, ChildKilledWhileLoweringIsReplaced) {
  const Graph& graph = LongChain();
  std::thread killer([pid = tuner_->pid(), before = WorkedTicks(tuner_->pid())] {
    AwaitWork(pid, before);
    kill(pid, SIGKILL);
  });
  const absl::Status status = tuner_->Lower(graph, target_).status();
  killer.join();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("SIGKILL"));
  ExpectLowers(*tuner_, target_);
  EXPECT_EQ(tuner_->starts(), 2);
}

}  // namespace
}  // namespace athanor
