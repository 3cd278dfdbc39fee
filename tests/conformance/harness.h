// Runs a graph in one process both as the server would (pipeline, compiler, executor) and with the
// reference evaluator, for tests that cross folders.
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
#include "runtime/executor/executor.h"
#include "runtime/memory/state_memory.h"

namespace athanor {

// Describes this machine with vectors of `vector_bytes`; 0: the widest it has; 1: scalars only, as
// one thread of a GPU.
v1::Target HostTarget(int vector_bytes = 0);

// Returns what tests compile for: this machine with each of these widths of vectors; or the
// GPU alone (devices.h), where the environment has ATHANOR_TEST_DEVICE=cuda or the program no
// compiler for the CPU.
std::vector<v1::Target> TestTargets(const std::vector<int>& vector_bytes = {0, 32, 1});

class Compiled {
 public:
  // `inputs` are the graph's Inputs in order; sizes may differ between calls.
  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs);
  // Runs into given outputs, which have the right sizes.
  absl::Status RunInto(const std::vector<Tensor>& inputs, const std::vector<Tensor*>& outputs);
  // Gives a plan with states their memory, of so many slots with all bits set: NaN in floats.
  // REQUIRES: a multiple of 16; before the first run
  absl::Status MakeStates(int64_t slots);
  // Returns what the graph's states hold, in order, each as a row-major tensor.
  absl::StatusOr<std::vector<Tensor>> States() const;
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
  std::vector<int64_t> StateShape(NodeId state) const;
  Graph graph_;
  v1::Plan plan_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Executable> executable_;
  std::unique_ptr<StateMemory> states_;
  std::unique_ptr<Executable::Context> context_;
};

// Compiles a graph. `parameters` are its Parameters in order. Keeps objects by source for the life
// of the process. INTERNAL: only a plain plan is possible.
absl::StatusOr<Compiled> Compile(const Graph& graph, const std::vector<Tensor>& parameters = {},
                                 const v1::Target& target = TestTargets({0})[0], int threads = 2,
                                 bool poison = true);

// Compiles the plan in plain form (compiler/pipeline/pipeline.h).
absl::StatusOr<Compiled> CompilePlain(const Graph& graph,
                                      const std::vector<Tensor>& parameters = {},
                                      const v1::Target& target = TestTargets({0})[0]);

// Compiles with the given schedules instead of the baseline's.
absl::StatusOr<Compiled> CompileScheduled(const ScheduledGraph& scheduled,
                                          const std::vector<Tensor>& parameters,
                                          const v1::Target& target, int threads = 2);

// Makes reproducible normal values (small integers, fair bools).
Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, std::mt19937& rng, double scale = 1);
// Makes integers in [0, extent).
Tensor RandomIndices(DType dtype, std::vector<int64_t> shape, int64_t extent, std::mt19937& rng);

// Compiles the graph, runs it and the reference, and expects equal outputs within relative +
// absolute bounds that suit the dtype (times `slack`).
void ExpectMatchesReference(const Graph& graph, const std::vector<Tensor>& inputs,
                            const std::vector<Tensor>& parameters = {}, double slack = 1);
// Does the same with the plain plan.
void ExpectPlainMatchesReference(const Graph& graph, const std::vector<Tensor>& inputs,
                                 const std::vector<Tensor>& parameters = {}, double slack = 1);

}  // namespace athanor

#endif  // ATHANOR_TESTS_CONFORMANCE_HARNESS_H_
