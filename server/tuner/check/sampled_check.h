// Compares some elements of a kernel's output at sizes too large for the reference evaluator.
//
//   SampledRun run{.graph = graph, .dims = {{"n", 1'000'003}}, ...};
//   SampleReport report = CompareSamples(run).value();   // .elements: 512, .worst_error: 0.1
//
// The elements are corners, suspects and an even spread (sample.h), as many as a fixed amount of
// work allows; of a written state also elements of the slots that are written, and all slots that
// are not must be as they were. Each is computed by the reference evaluator's rows
// (compiler/ir/sample/evaluate_at.h) and compared within the same bound as at small sizes
// (error_bound.h).
#ifndef ATHANOR_SERVER_TUNER_CHECK_SAMPLED_CHECK_H_
#define ATHANOR_SERVER_TUNER_CHECK_SAMPLED_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

struct SampledRun {
  const Graph& graph;
  const Expr::Env& dims;
  absl::Span<const absl::string_view> inputs;  // of graph.ArgumentIds()
  absl::Span<const absl::string_view> outputs;
  unsigned char noise;  // byte that outputs were filled with
  uint64_t seed;
};

struct SampleReport {
  double worst_error = 0;             // relative to the tolerance
  int64_t elements = 0;               // number of elements compared
  std::vector<std::string> left_out;  // outputs without compared elements, and why
};

// Returns DATA_LOSS naming output, element, values and tolerance of a difference, or an index that
// the reference evaluator finds out of range and the kernel did not.
absl::StatusOr<SampleReport> CompareSamples(const SampledRun& run);

// Checks that all indices of Gather, Scatter, EmbeddingBag and StateWrite are in range. Returns
// true if all were examined and are in range, false if some would have taken too long; returns
// OUT_OF_RANGE naming an index that is not. Inputs repeat the elements of inputs.h's DrawnInput.
absl::StatusOr<bool> IndicesInRange(const Graph& graph, const Expr::Env& dims,
                                    absl::Span<const absl::string_view> inputs);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_SAMPLED_CHECK_H_
