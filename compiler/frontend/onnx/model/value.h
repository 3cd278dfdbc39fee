// A value of an ONNX graph during its import: its type, its node in our graph, and its known
// contents. Plain data, cheap to copy.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_VALUE_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_VALUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "compiler/frontend/elem_type.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/tensor.h"

namespace athanor::onnx {

inline constexpr NodeId kNoNode = -1;
inline constexpr int64_t kMaxKnownElements = 65'536;
// Number of elements that stay known in any model: enough for a shape, or for pads, of a tensor of
// the highest rank.
inline constexpr int64_t kMaxFewElements = 32;

// Contents known at import. Immutable and shared; at most kMaxKnownElements.
struct Known {
  std::vector<int64_t> shape;
  // For integers and bools (0, 1): an expression over dims for each element, row-major. For floats
  // that are an integer expression over a whole number (a size times 0.5): `sizes` over `divisor`.
  std::vector<Expr> sizes;
  int64_t divisor = 1;            // 1 unless a float
  std::optional<Tensor> literal;  // in the carrier's dtype; integers' `sizes` agree with it

  bool concrete() const { return literal.has_value(); }
};

struct Value {
  Elem elem = Elem::kFloat;
  Shape shape;
  // The node of the carrier's dtype and this shape. kNoNode: not made yet, because no op needed the
  // value as data (OpBuilder::Node makes it from `known`).
  NodeId node = kNoNode;
  std::shared_ptr<const Known> known;  // null: known only at run time
  // Positions of the graph inputs that the contents depend on, ascending, at most 8. Messages name
  // them when contents must be known. A dependency on shapes does not count.
  std::vector<int> sources;
  // True if the value's node was refused. Nodes that use it are still checked, but not built.
  bool poisoned = false;

  DType dtype() const { return CarrierOf(elem); }
  int rank() const { return static_cast<int>(shape.size()); }
};

// Returns the result of a failed step. Its rank is as high as any code may look at, higher than any
// tensor's.
inline Value FailedValue(Elem elem = Elem::kFloat) {
  Value value;
  value.elem = elem;
  value.shape.assign(18, Expr(1));
  return value;
}

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_VALUE_H_
