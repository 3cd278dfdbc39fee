// Compares some elements of what a kernel wrote at sizes too large for the reference evaluator.
//
//   SampledRun run{.graph = graph, .dims = {{"n", 1'000'003}}, ...};
//   SampleReport report = CompareSamples(run).value();   // .elements: 512, .worst_error: 0.1
//
// The elements: corners, suspects and a spread (sample.h), as many as a fixed amount of work
// allows, each by the reference evaluator's rows (compiler/ir/sample/evaluate_at.h) and within the
// same bound as at small sizes (error_bound.h).
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
  absl::Span<const absl::string_view> inputs;  // inputs, then parameters
  absl::Span<const absl::string_view> outputs;
  unsigned char noise;  // what outputs were filled with
  uint64_t seed;
};

struct SampleReport {
  double worst_error = 0;             // in units of the tolerance
  int64_t elements = 0;               // compared
  std::vector<std::string> left_out;  // outputs of which nothing was compared, and why
};

// DATA_LOSS names output, element, values and tolerance of a difference, or an index that the
// reference evaluator finds out of range where the kernel found none.
absl::StatusOr<SampleReport> CompareSamples(const SampledRun& run);

// Whether all indices of Gather, Scatter and EmbeddingBag are in range: true if all of them were
// looked at and are, false if some would have taken too long; OUT_OF_RANGE names one that is not.
// Inputs repeat the elements of inputs.h's DrawnInput.
absl::StatusOr<bool> IndicesInRange(const Graph& graph, const Expr::Env& dims,
                                    absl::Span<const absl::string_view> inputs);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_SAMPLED_CHECK_H_
