// What whole plans are run on to be compared: sizes, inputs and weights of each run.
//
//   PlanRuns runs = PlanRuns::Create(graph, sizes, seed).value();
//   runs.runs()[0].inputs;              // bytes, in the order of graph.InputIds()
//   runs.weights(runs.runs()[0].weights);   // in the order of graph.ParameterIds()
//
// At every size at least one run of usual values; more where outputs are small, so that there is
// something to average. Where inputs are floats, also runs of zeros and extremes, infinities, and a
// NaN. Inputs and weights repeat their contents (repeated_bytes.h), so large tables cost little,
// and weights of large models take turns (weight_turns.h), so what is prepared from them does not
// either.
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
  int size;  // in the sizes given
  SpecialFloats special;
  int weights;    // which set
  bool required;  // others are left out when there is no time
  Expr::Env dims;
  std::string text;  // "b=8 s=512", "b=8 s=512 with a NaN"
  std::vector<RepeatedBytes> held;
  std::vector<absl::string_view> inputs;
};

class PlanRuns {
 public:
  // `sizes` are values of the graph's dims. Required runs have the first weights.
  // RESOURCE_EXHAUSTED: inputs too large to draw.
  static absl::StatusOr<PlanRuns> Create(const Graph& graph, const std::vector<Expr::Env>& sizes,
                                         uint64_t seed);

  const std::vector<PlanRun>& runs() const { return runs_; }
  const std::vector<absl::string_view>& weights(int set) const { return weights_[set]; }
  // Which of them have equal contents (weight_turns.h).
  const std::vector<int>& turns() const { return turns_; }
  int weight_sets() const { return static_cast<int>(weights_.size()); }
  // Address space of all, which is more than the memory they hold.
  int64_t bytes() const;
  // Values that there are no runs of, and why.
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
