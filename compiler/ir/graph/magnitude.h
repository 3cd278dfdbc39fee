// Bounds on the absolute values of a weight's elements: found once from the contents, then relied
// on by rules.
//
//   MagnitudeOf(DType::kF32, bytes) == 20       // all finite, none beyond 2^20 or -2^20
//   SetMagnitude(20, &graph.nodes[w]);          // Parameter "w" {magnitude=20} : f32[4]
//
// Only a few coarse bounds exist instead of the exact largest element, so that layers of a model
// share one region as long as all their weights have the same bound. A magnitude is part of the
// graph: of its text, its canonical hash and the key of its regions. A node without one makes no
// claim about its contents. Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_IR_GRAPH_MAGNITUDE_H_
#define ATHANOR_COMPILER_IR_GRAPH_MAGNITUDE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// Name of the attribute.
inline constexpr std::string_view kMagnitude = "magnitude";

// Reports whether elements of this dtype have a magnitude: true for floats that are computed with.
bool HasMagnitude(DType dtype);
// For floats, returns the exponent of the largest power of two that the dtype holds: 15, 127 or
// 1023. For integers, the exponent of a power of two that no element exceeds: 7 for i8, 8 for u8. 0
// for bool.
int LargestExponent(DType dtype);

// Returns the least of 20, 60 and LargestExponent + 1 such that no absolute value exceeds 2 to that
// power; nullopt if an element is infinite or NaN, or if the dtype has no magnitude. `contents` are
// dense elements at any alignment. Takes one pass; empty contents have 20.
std::optional<int> MagnitudeOf(DType dtype, std::string_view contents);

// Finds the magnitude of contents that arrive in pieces, which may be cut anywhere, inside an
// element too.
//
//   MagnitudeFinder finder(DType::kF32);
//   finder.Update(piece);  ...  finder.Found();
class MagnitudeFinder {
 public:
  explicit MagnitudeFinder(DType dtype) : dtype_(dtype) {}

  void Update(std::string_view piece);
  // Returns the magnitude of the whole elements so far.
  std::optional<int> Found() const;

 private:
  DType dtype_;
  uint64_t most_ = 0;  // largest bit pattern so far, without the sign
  std::string rest_;   // first bytes of an element that a piece cut in two
};

// Returns the node's magnitude; nullopt unless it is a Parameter that has one.
std::optional<int> MagnitudeOf(const Node& parameter);
// Sets a Parameter's magnitude, or removes it.
void SetMagnitude(std::optional<int> magnitude, Node* parameter);
// Returns INVALID_ARGUMENT for a magnitude on a dtype that has none, or outside [-1100, 1100].
absl::Status CheckMagnitude(const TensorType& type, const Attrs& attrs);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_MAGNITUDE_H_
