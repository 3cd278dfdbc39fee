// Whether requests of a model version may share a call, and which of them may.
//
//   VersionBatching batching = BatchingOf(graph, {.dim = "b"}, {.max_rows = 32});
//   batching.shared;   // null: each runs alone, and batching.reason says why
//   ticket.group = GroupOf(*batching.shared, dims, inputs);
//
// That rows may be joined is proved of the version's graph (compiler/ir/rows/row_independence.h),
// once, when the version is created. Pure.
#ifndef ATHANOR_SERVER_BATCH_BATCHING_H_
#define ATHANOR_SERVER_BATCH_BATCHING_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/v1/model.pb.h"

namespace athanor {

// How requests of a version share a call: their rows, of one dim, follow each other.
struct Batching {
  int dim = -1;  // position in graph.dims
  int64_t most_rows = 0;
  // By position: whether it has rows, and they come first, or is the same for all requests.
  std::vector<bool> input_rows, output_rows;
};

// What the server allows.
struct BatchLimits {
  int64_t max_rows = 0;                // of a call; 0: what the dim's bounds allow
  std::chrono::microseconds delay{0};  // that a request waits for company
};

// What a version asks for.
struct BatchWish {
  std::string dim;  // empty: none
  bool deterministic = false;
};

struct VersionBatching {
  std::shared_ptr<const Batching> shared;  // null: each request runs alone
  std::string dim;
  std::string reason;  // why not, where a dim was named
  std::chrono::microseconds delay{0};

  v1::Batching ToProto() const;
};

// REQUIRES: Verify(graph).ok()
VersionBatching BatchingOf(const Graph& graph, const BatchWish& wish, const BatchLimits& limits);

// Inputs without rows are compared byte for byte with those of each request that waits: more of
// them than this is not worth it.
inline constexpr int64_t kMostSameBytes = 4096;

// All that must be equal for a request to share a call: sizes of the other dims, and the inputs
// without rows. Empty: it runs alone, as these are too large.
std::string GroupOf(const Batching& batching, absl::Span<const int64_t> dims,
                    absl::Span<const std::string_view> inputs);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_BATCHING_H_
