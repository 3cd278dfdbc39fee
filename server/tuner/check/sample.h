// Chooses the elements of a large output to compare.
//
//   std::vector<int64_t> positions = EdgePositions({4096, 1000});
//   positions = SpreadPositions({4096, 1000}, 200, seed);       // more positions
//   positions = SuspectPositions(got, /*noise=*/0x5a);          // from the kernel's output
#ifndef ATHANOR_SERVER_TUNER_CHECK_SAMPLE_H_
#define ATHANOR_SERVER_TUNER_CHECK_SAMPLE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/value/dtype.h"

namespace athanor {

// Returns the first and the last element and corners: at most 10, distinct; none for an empty
// shape.
std::vector<int64_t> EdgePositions(absl::Span<const int64_t> shape);

// Returns about `count` positions, or all if there are no more. Half of them cover every coordinate
// of an axis of at most count / 2 elements, and a longer axis evenly. In the other half one axis
// after the other is at an edge: two thirds at its last coordinate, the others at the first or last
// of a tile of 4 to 128, or of the remainder behind the last such tile. The other axes advance at
// equal distances. So 512 elements of 1000 x 1000 are sure to hit an error in a tile of 16 rows
// behind the last full column tile. The same arguments give the same positions.
std::vector<int64_t> SpreadPositions(absl::Span<const int64_t> shape, int64_t count, uint64_t seed);

// Returns at most 12 suspicious elements: the first and last ones whose bytes are all `noise`, with
// which outputs are filled before the kernel runs; for f32 and f64 also the first that is not
// finite and the one of largest magnitude.
std::vector<int64_t> SuspectPositions(absl::string_view bytes, DType dtype, unsigned char noise);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_SAMPLE_H_
