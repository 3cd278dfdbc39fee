// How large the elements of a weight are at most: what is found once from its contents, and what
// rules may then rely on.
//
//   MagnitudeOf(DType::kF32, bytes) == 20       // all finite, none beyond 2^20 or -2^20
//   SetMagnitude(20, &graph.nodes[w]);          // Parameter "w" {magnitude=20} : f32[4]
//
// A few coarse bounds, not the largest element itself: the layers of a model are one region as long
// as all their weights are within the same one. A magnitude is part of the graph, so of its text,
// its canonical hash and the key of its regions; a node without one says nothing of its contents.
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_IR_GRAPH_MAGNITUDE_H_
#define ATHANOR_COMPILER_IR_GRAPH_MAGNITUDE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// The attribute of a Parameter.
inline constexpr std::string_view kMagnitude = "magnitude";

// Whether elements of this dtype have one: floats that are computed with.
bool HasMagnitude(DType dtype);
// The largest power of two that a float of this dtype holds: 2^15, 2^127, 2^1023. For integers the
// one that no element exceeds: 2^7 for i8, 2^8 for u8; 2^0 for bool.
int LargestExponent(DType dtype);

// The least of 20, 60 and LargestExponent + 1 such that no element is beyond 2^it; nullopt where
// one is infinite or NaN, or the dtype has no magnitude. `contents` are dense elements, at any
// address. One pass; MagnitudeOf of nothing is 20.
std::optional<int> MagnitudeOf(DType dtype, std::string_view contents);

// The same of contents that come piece by piece, cut anywhere.
//
//   MagnitudeFinder finder(DType::kF32);
//   finder.Update(piece);  ...  finder.Found();
class MagnitudeFinder {
 public:
  explicit MagnitudeFinder(DType dtype) : dtype_(dtype) {}

  void Update(std::string_view piece);
  // Of the whole elements so far.
  std::optional<int> Found() const;

 private:
  DType dtype_;
  uint64_t most_ = 0;  // the largest pattern
  std::string rest_;   // the beginning of an element
};

// Of a node: nullopt unless it is a Parameter that has one.
std::optional<int> MagnitudeOf(const Node& parameter);
// Gives a Parameter its magnitude, or takes it away.
void SetMagnitude(std::optional<int> magnitude, Node* parameter);
// INVALID_ARGUMENT: a magnitude of a dtype that has none, or one that no float exceeds by far.
absl::Status CheckMagnitude(const TensorType& type, const Attrs& attrs);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_MAGNITUDE_H_
