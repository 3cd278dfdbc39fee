// Compares two graphs with equal inputs, parameters and outputs by their values from the reference
// evaluator.
#ifndef ATHANOR_TESTS_TUNER_SAME_VALUES_H_
#define ATHANOR_TESTS_TUNER_SAME_VALUES_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "server/tuner/check/error_bound.h"
#include "server/tuner/run/inputs.h"

namespace athanor {

// Counts elements, and those among them with an error bound to compare with. There is no bound
// behind, say, a division by a value that may be 0.
struct Bounded {
  int64_t elements = 0, bounded = 0;
  double share() const {
    return elements > 0 ? static_cast<double>(bounded) / static_cast<double>(elements) : 0;
  }
};

// The share of bounded elements that tests over many graphs require; theirs is 0.84 and 0.92.
inline constexpr double kLeastBounded = 0.8;

// Evaluates both graphs with random inputs at these sizes. Each graph's values lie within its error
// bounds of the exact ones, so the two may differ by the sum of both. DATA_LOSS names the output.
// Adds to `counted`.
inline absl::Status SameValues(const Graph& graph, const Graph& other,
                               const std::vector<int64_t>& sizes, uint64_t seed, Bounded* counted) {
  Expr::Env env;
  for (size_t d = 0; d < graph.dims.size(); ++d) {
    env[graph.dims[d].name] = std::min(graph.dims[d].max, sizes[d % sizes.size()]);
  }
  const auto inputs = RandomInputs(graph, env, seed, IndexChoice::kSmall);
  if (!inputs.ok()) return inputs.status();
  const auto want = EvaluateWithBounds(graph, *inputs, &env);
  const auto got = EvaluateWithBounds(other, *inputs, &env);
  for (const absl::Status& s : {want.status(), got.status()}) {
    if (!s.ok()) return s;
  }
  for (size_t i = 0; i < want->values.size(); ++i) {
    std::vector<double> mean = want->errors[i];
    for (size_t k = 0; k < mean.size(); ++k) mean[k] = (mean[k] + got->errors[i][k]) / 2;
    counted->elements += static_cast<int64_t>(mean.size());
    counted->bounded += std::count_if(mean.begin(), mean.end(), [](double bound) {
      return bound < std::numeric_limits<double>::infinity();
    });
    const auto within = WithinBounds(got->values[i], want->values[i], mean);
    if (!within.ok()) {
      return absl::Status(within.status().code(), absl::StrCat("output ", graph.outputs[i].name,
                                                               ": ", within.status().message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor

#endif  // ATHANOR_TESTS_TUNER_SAME_VALUES_H_
