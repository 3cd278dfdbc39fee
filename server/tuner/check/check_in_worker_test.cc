// Checks of kernels that a device worker is said to run.
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuner/check/check.h"
#include "server/tuner/check/references.h"
#include "server/tuner/run/device_worker_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class CheckInWorkerTest : public ::testing::Test {
 protected:
  CheckInWorkerTest() {
    Graph graph;
    graph.name = "double";
    graph.dims = {{"n", 1, 1000}};
    GraphBuilder builder(&graph);
    const NodeId x = builder.Input("x", {DType::kF32, {Expr::Symbol("n")}}).value();
    builder.Output("y", builder.Add(Op::kAdd, {x, x}).value());
    request_.set_graph_text(ToText(graph));
    request_.set_seed(3);
    request_.mutable_plan()->add_dims()->set_name("n");
    for (const int64_t n : {1, 7, 100}) request_.add_sizes()->add_values(n);
  }

  using Kernels = std::function<void(const internal::CheckJob& job)>;
  absl::Status Check(const Kernels& kernels) {
    FakeWorker worker(
        [&](const internal::WorkerJob& job, internal::WorkerReply*) { kernels(job.check()); });
    ReferenceMemory memory;
    return CheckKernels(request_, worker.limits(), &memory).status();
  }
  // Writes what right kernels give.
  void Compute(const internal::CheckJob& job) {
    const References references = MakeReferences(request_).value();
    for (int c = 0; c < job.cases_size(); ++c) {
      const std::string& y = references.cases[c].wanted[0].bytes;
      const GuardedBytes output = FakeWorker::Bytes(job.cases(c).outputs(0));
      std::memcpy(output.data(), y.data(), y.size());
    }
  }

  internal::CheckRequest request_;
};

TEST_F(CheckInWorkerTest, ResultsAreCompared) {
  const absl::Status right = Check([&](const internal::CheckJob& job) { Compute(job); });
  EXPECT_TRUE(right.ok()) << right;
  EXPECT_EQ(Check([](const internal::CheckJob&) {}).code(), absl::StatusCode::kDataLoss);
}

// A wild write may hit the marks: it must not spare a kernel the comparison.
TEST_F(CheckInWorkerTest, AnIndexInRangeIsNotRefused) {
  for (const int which : {0, 1, 2}) {
    const absl::Status status = Check([&](const internal::CheckJob& job) {
      Compute(job);
      FakeWorker::Memory(job.refused()).data()[which] = 1;
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("every index is in range"));
  }
}

}  // namespace
}  // namespace athanor
