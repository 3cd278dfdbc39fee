// Which elements of a large output are compared.
//
//   std::vector<int64_t> positions = EdgePositions({4096, 1000});
//   positions = SpreadPositions({4096, 1000}, 200, seed);       // more of them
//   positions = SuspectPositions(got, /*noise=*/0x5a);          // chosen by what the kernel wrote
#ifndef ATHANOR_SERVER_TUNER_CHECK_SAMPLE_H_
#define ATHANOR_SERVER_TUNER_CHECK_SAMPLE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/value/dtype.h"

namespace athanor {

// The first and the last element, and corners: at most 10, distinct; none of an empty shape.
std::vector<int64_t> EdgePositions(absl::Span<const int64_t> shape);

// About `count` positions, or all where there are no more. Half of them meet every coordinate of an
// axis of at most count / 2 elements, and cover a longer one evenly. Of the other half each axis in
// turn is at an edge: two thirds at its last, the others at the first or last of a tile of 4 to
// 128, or of what remains behind the last such tile; while the other axes go on at equal distances.
// So what is wrong in a tile of 16 rows behind the last full column tile is met for sure with 512
// elements of 1000 x 1000. The same arguments give the same positions.
std::vector<int64_t> SpreadPositions(absl::Span<const int64_t> shape, int64_t count, uint64_t seed);

// Elements worth a look, at most 12: the first and last ones whose bytes are all `noise`, with
// which outputs are filled before the kernel runs; of f32 and f64 besides the first that is not
// finite and the one of largest magnitude.
std::vector<int64_t> SuspectPositions(absl::string_view bytes, DType dtype, unsigned char noise);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_SAMPLE_H_
