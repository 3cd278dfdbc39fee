// Positions of the windows of Conv and Pool at known sizes. Private to ops/.
//
//   WindowPlaces places = WindowPlaces::Of(attrs, /*kernel=*/{3, 3}, dims).value();
//   places.Offsets({8, 8}, {0, 0})    // {-1, -1, -1, -1, 0, 1, -1, 8, 9} where begin is 1, 1
#ifndef ATHANOR_COMPILER_IR_OPS_WINDOW_H_
#define ATHANOR_COMPILER_IR_OPS_WINDOW_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/op.h"

namespace athanor {

struct WindowPlaces {
  std::vector<int64_t> kernel, strides, dilations, begin;  // by spatial axis
  // A mean also counts positions outside x that are below these sizes, measured from where the
  // padding begins; by spatial axis, or empty.
  std::vector<int64_t> counted;

  // Returns INVALID_ARGUMENT if a size has no value at these dims.
  static absl::StatusOr<WindowPlaces> Of(const Attrs& attrs, std::vector<int64_t> kernel,
                                         const Expr::Env& dims);

  // Returns the elements of the window at `out`, in row-major order of the kernel: each as a
  // position in a block of these spatial sizes, or -1 outside it.
  std::vector<int64_t> Offsets(absl::Span<const int64_t> sizes,
                               absl::Span<const int64_t> out) const;
  // Returns only the positions inside the block, in time proportional to their number.
  std::vector<int64_t> Inside(absl::Span<const int64_t> sizes, absl::Span<const int64_t> out) const;
  // Count returns the number of elements that a mean divides by; Counts marks them in the order of
  // Offsets.
  int64_t Count(absl::Span<const int64_t> sizes, absl::Span<const int64_t> out) const;
  std::vector<bool> Counts(absl::Span<const int64_t> sizes, absl::Span<const int64_t> out) const;

 private:
  // Returns the number of taps along one axis whose position is less than `end`, counted from where
  // x begins.
  int64_t TapsBefore(size_t axis, int64_t out, int64_t end) const;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_OPS_WINDOW_H_
