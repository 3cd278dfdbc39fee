// The graph of the runtime's RowPlan (runtime/executor/executor_testing.h) and a parameter for it.
// For tests.
#ifndef ATHANOR_SERVER_PLANS_EXECUTOR_RUNNER_TESTING_H_
#define ATHANOR_SERVER_PLANS_EXECUTOR_RUNNER_TESTING_H_

#include <sys/mman.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/executor/executor_testing.h"
#include "server/plans/executor_runner.h"

namespace athanor {

// Returns a graph with the inputs, parameter and outputs of RowPlan.
inline Graph RowGraph() {
  Graph graph;
  graph.name = "rows";
  graph.dims = {{"b", 0, 64}};
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {Expr::Symbol("b"), Expr(8)}}).value();
  builder.Input("idx", {DType::kI64, {Expr::Symbol("b")}}).value();
  builder.Parameter("w", {DType::kF32, {Expr(8)}}).value();
  builder.Output("y", x);
  builder.Output("g", x);
  return graph;
}

inline std::shared_ptr<const MappedTensor> RowWeight(float value) {
  void* data = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < kWidth; ++i) StoreAt(data, i, value);
  return std::make_shared<const MappedTensor>(data, kWidth * sizeof(float), std::to_string(value));
}

inline absl::StatusOr<std::shared_ptr<PlanRunner>> LoadRowPlan(float weight, Device* device,
                                                               const SharedDevice& shared,
                                                               int64_t work = 1 << 20) {
  std::vector<KernelObject> objects;
  for (absl::string_view object : RowPlanObjects()) {
    objects.push_back({.object = std::string(object)});
  }
  return ExecutorRunner::Load(RowGraph(), RowPlan(work), objects, {RowWeight(weight)}, device, {},
                              shared);
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_EXECUTOR_RUNNER_TESTING_H_
