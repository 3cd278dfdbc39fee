// Decides whether requests of a model version may share a call, and which of them may.
//
//   VersionBatching batching = BatchingOf(graph, {.dim = "b"}, {.max_rows = 32});
//   batching.shared;   // null: each runs alone, and batching.reason says why
//   ticket.group = GroupOf(*batching.shared, dims, inputs);
//
// Once per version, when it is created, proves on its graph that rows may be joined
// (compiler/ir/rows/row_independence.h). Pure.
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

// How requests of a version share a call: by concatenating their rows along one dim.
struct Batching {
  int dim = -1;  // position in graph.dims
  int64_t most_rows = 0;
  // By position: true if it has rows, as its leading dim; false if it is the same for all requests.
  std::vector<bool> input_rows, output_rows;
};

// The server's limits.
struct BatchLimits {
  int64_t max_rows = 0;                // rows of a call; 0: as many as the bounds of the dim allow
  std::chrono::microseconds delay{0};  // longest time that a request waits for others to join
};

// A version's request for batching.
struct BatchWish {
  std::string dim;  // empty: no batching
  bool deterministic = false;
};

struct VersionBatching {
  std::shared_ptr<const Batching> shared;  // null: each request runs alone
  std::string dim;
  std::string reason;  // if a dim was named: why requests do not share calls
  std::chrono::microseconds delay{0};

  v1::Batching ToProto() const;
};

// REQUIRES: Verify(graph).ok()
VersionBatching BatchingOf(const Graph& graph, const BatchWish& wish, const BatchLimits& limits);

// Limit on the bytes of inputs without rows. They are compared byte for byte with those of each
// waiting request; beyond this size that is not worth it.
inline constexpr int64_t kMostSameBytes = 4096;

// Returns everything that must be equal for requests to share a call: the sizes of the other dims
// and the inputs without rows. Empty: the request runs alone, since these are too large.
std::string GroupOf(const Batching& batching, absl::Span<const int64_t> dims,
                    absl::Span<const std::string_view> inputs);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_BATCHING_H_
