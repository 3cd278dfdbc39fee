#include "server/tuner/check/plan_samples.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/sample/evaluate_at.h"
#include "server/tuner/check/sample.h"

namespace athanor {
namespace {

// Elements that the reference evaluator visits for one output of one run.
constexpr int64_t kVisits = 1'000'000;
constexpr int64_t kMostSamples = 64, kLeastSamples = 4;

bool SampleRun(const Graph& twin, const PlanRuns& runs, const PlanRun& run, int output,
               uint64_t seed, SampledOutput* sampled) {
  const auto shape = ConcreteShape(twin.node(twin.outputs[output].node).type.shape, run.dims);
  if (!shape.ok()) return false;
  std::vector<absl::string_view> inputs = run.inputs;
  const std::vector<absl::string_view>& weights = runs.weights(run.weights);
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.insert(inputs.end(), run.states.begin(), run.states.end());
  for (int64_t count = kMostSamples; count >= kLeastSamples; count /= 4) {
    std::vector<std::vector<int64_t>> positions(twin.outputs.size());
    positions[output] = SpreadPositions(*shape, count, seed);
    auto values = EvaluateAt(twin, run.dims, positions, inputs, kVisits);
    if (!values.ok()) continue;
    sampled->positions.push_back(std::move(positions[output]));
    sampled->values.push_back(std::move((*values)[output]));
    return true;
  }
  return false;
}

}  // namespace

bool SampleInF64(const Graph& twin, const PlanRuns& runs, const std::vector<int>& which, int output,
                 uint64_t seed, SampledOutput* sampled) {
  return std::all_of(which.begin(), which.end(), [&](int r) {
    return SampleRun(twin, runs, runs.runs()[r], output, seed, sampled);
  });
}

std::string Picked(absl::string_view bytes, const std::vector<int64_t>& positions, size_t size) {
  std::string picked;
  for (int64_t p : positions) picked.append(bytes.data() + p * size, size);
  return picked;
}

}  // namespace athanor
