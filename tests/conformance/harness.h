// Runs a graph as the server would (pipeline, Clang, executor) and as the reference evaluator does,
// in one process, for tests that cross folders.
//
//   Compiled model = Compile(graph).value();
//   std::vector<Tensor> y = model.Run(inputs).value();
#ifndef ATHANOR_TESTS_CONFORMANCE_HARNESS_H_
#define ATHANOR_TESTS_CONFORMANCE_HARNESS_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/task.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/executor.h"

namespace athanor {

// The machine at hand with `vector_bytes` wide vectors; 0: the widest it has.
v1::Target HostTarget(int vector_bytes = 0);

class Compiled {
 public:
  // `inputs` are the graph's Inputs in order; sizes may differ from call to call.
  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs);
  // The same into outputs of the right size.
  absl::Status RunInto(const std::vector<Tensor>& inputs, const std::vector<Tensor*>& outputs);
  const v1::Plan& plan() const { return plan_; }

 private:
  friend absl::StatusOr<Compiled> Compile(const Graph&, const std::vector<Tensor>&,
                                          const v1::Target&, int, bool);
  friend absl::StatusOr<Compiled> CompilePlain(const Graph&, const std::vector<Tensor>&,
                                               const v1::Target&);
  friend absl::StatusOr<Compiled> CompileScheduled(const ScheduledGraph&,
                                                   const std::vector<Tensor>&, const v1::Target&,
                                                   int);
  static absl::StatusOr<Compiled> Load(const Graph& graph, v1::Plan plan,
                                       const std::vector<Tensor>& parameters,
                                       const v1::Target& target, int threads, bool poison);
  absl::StatusOr<std::vector<int64_t>> Bind(const std::vector<Tensor>& inputs) const;
  Graph graph_;
  v1::Plan plan_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Executable> executable_;
  std::unique_ptr<Executable::Context> context_;
};

// `parameters` are the graph's Parameters in order. Objects are remembered by source for the
// process. INTERNAL: the plan can only be made plain.
absl::StatusOr<Compiled> Compile(const Graph& graph, const std::vector<Tensor>& parameters = {},
                                 const v1::Target& target = HostTarget(), int threads = 2,
                                 bool poison = true);

// The plan that is made plain (compiler/pipeline/pipeline.h).
absl::StatusOr<Compiled> CompilePlain(const Graph& graph,
                                      const std::vector<Tensor>& parameters = {},
                                      const v1::Target& target = HostTarget());

// Under the schedules given, instead of the baseline's.
absl::StatusOr<Compiled> CompileScheduled(const ScheduledGraph& scheduled,
                                          const std::vector<Tensor>& parameters,
                                          const v1::Target& target, int threads = 2);

// Normal values (integers small, bools fair), reproducible.
Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, std::mt19937& rng, double scale = 1);
// Integers in [0, extent).
Tensor RandomIndices(DType dtype, std::vector<int64_t> shape, int64_t extent, std::mt19937& rng);

// Compiles the graph, runs it and the reference, expects outputs equal within relative + absolute
// bounds that suit the dtype (times `slack`).
void ExpectMatchesReference(const Graph& graph, const std::vector<Tensor>& inputs,
                            const std::vector<Tensor>& parameters = {}, double slack = 1);
// The same of the plan that is made plain.
void ExpectPlainMatchesReference(const Graph& graph, const std::vector<Tensor>& inputs,
                                 const std::vector<Tensor>& parameters = {}, double slack = 1);

}  // namespace athanor

#endif  // ATHANOR_TESTS_CONFORMANCE_HARNESS_H_
