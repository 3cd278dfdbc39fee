// Computes some elements of a plan's outputs in f64 with the reference evaluator, for graphs
// without a twin that runs.
//
//   SampledOutput exact;
//   bool known = SampleInF64(twin, runs, {0, 3}, /*output=*/0, seed, &exact);
//   // exact.values[1]: for runs.runs()[3], the elements exact.positions[1]
#ifndef ATHANOR_SERVER_TUNER_CHECK_PLAN_SAMPLES_H_
#define ATHANOR_SERVER_TUNER_CHECK_PLAN_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "compiler/ir/graph/graph.h"
#include "server/tuner/check/plan_runs.h"

namespace athanor {

struct SampledOutput {
  std::vector<std::vector<int64_t>> positions;  // by requested run: row-major positions
  std::vector<Tensor> values;
};

// `twin` is the f64 twin of the graph of `runs` (compiler/ir/sample/widen.h). Returns false if one
// of the elements depends on too many others.
bool SampleInF64(const Graph& twin, const PlanRuns& runs, const std::vector<int>& which, int output,
                 uint64_t seed, SampledOutput* sampled);

// Returns those elements of a whole output, of `size` bytes each.
std::string Picked(absl::string_view bytes, const std::vector<int64_t>& positions, size_t size);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_PLAN_SAMPLES_H_
