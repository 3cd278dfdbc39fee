// The runs on which whole plans are compared: sizes, inputs and weights of each run.
//
//   PlanRuns runs = PlanRuns::Create(graph, sizes, seed).value();
//   runs.runs()[0].inputs;              // bytes, in the order of graph.InputIds()
//   runs.weights(runs.runs()[0].weights);   // in the order of graph.ParameterIds()
//
// Every size has at least one run of usual values, and more if outputs are small, so that there is
// something to average. If inputs are floats, there are also runs with zeros and extremes, with
// infinities, and with a NaN. Inputs and weights repeat their contents (repeated_bytes.h), so large
// tables cost little. Weights of large models share contents (weight_turns.h), so what is prepared
// from them costs little too.
#ifndef ATHANOR_SERVER_TUNER_CHECK_PLAN_RUNS_H_
#define ATHANOR_SERVER_TUNER_CHECK_PLAN_RUNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/graph/graph.h"
#include "server/tuner/run/inputs.h"
#include "server/tuner/run/repeated_bytes.h"

namespace athanor {

struct PlanRun {
  int size;  // index into the given sizes
  SpecialFloats special;
  int weights;    // index of the set of weights
  bool required;  // optional runs are left out when time is short
  Expr::Env dims;
  std::string text;  // "b=8 s=512", "b=8 s=512 with a NaN"
  std::vector<RepeatedBytes> held;
  std::vector<absl::string_view> inputs, states;  // in the order of graph.InputIds(), StateIds()
};

class PlanRuns {
 public:
  // `sizes` are values of the graph's dims. Required runs use the first weights. Returns
  // RESOURCE_EXHAUSTED if inputs are too large to draw.
  static absl::StatusOr<PlanRuns> Create(const Graph& graph, const std::vector<Expr::Env>& sizes,
                                         uint64_t seed);

  const std::vector<PlanRun>& runs() const { return runs_; }
  const std::vector<absl::string_view>& weights(int set) const { return weights_[set]; }
  // For each weight, the first one with equal contents (weight_turns.h).
  const std::vector<int>& turns() const { return turns_; }
  int weight_sets() const { return static_cast<int>(weights_.size()); }
  // Address space of all tensors, which is more than the memory they use.
  int64_t bytes() const;
  // Kinds of values without runs, and why.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  PlanRuns() = default;

  std::vector<PlanRun> runs_;
  std::vector<int> turns_;
  std::vector<std::vector<RepeatedBytes>> held_weights_;
  std::vector<std::vector<absl::string_view>> weights_;
  std::vector<std::string> left_out_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_PLAN_RUNS_H_
