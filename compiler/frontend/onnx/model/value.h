// A value of an ONNX graph while it is imported: its type, where it is in our graph, and what is
// known of its contents. Plain data, cheap to copy.
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
// What is known of any model: as many as a shape, or pads, of a tensor of the highest rank.
inline constexpr int64_t kMaxFewElements = 32;

// Contents known at import. Immutable and shared; at most kMaxKnownElements.
struct Known {
  std::vector<int64_t> shape;
  // Integers and bools (0, 1): an expression over dims for each element, row-major. Floats that are
  // an integer expression over a whole number (a size times 0.5): `sizes` over `divisor`.
  std::vector<Expr> sizes;
  int64_t divisor = 1;            // 1 unless a float
  std::optional<Tensor> literal;  // of the carrier; where it is set, integers' `sizes` agree

  bool concrete() const { return literal.has_value(); }
};

struct Value {
  Elem elem = Elem::kFloat;
  Shape shape;
  // The node of the carrier's dtype and this shape; kNoNode: not made, since nothing needed it as
  // data yet (OpBuilder::Node makes it from `known`).
  NodeId node = kNoNode;
  std::shared_ptr<const Known> known;  // null: only a request tells
  // Positions of the graph inputs its contents flow from, ascending, at most 8: what messages name
  // where contents are needed. Shapes do not count as contents.
  std::vector<int> sources;
  // What made it was refused: those who use it are checked as far as that goes, and not built.
  bool poisoned = false;

  DType dtype() const { return CarrierOf(elem); }
  int rank() const { return static_cast<int>(shape.size()); }
};

// What stands for the result of a step that failed: of as many axes as the code that goes on may
// look at, more than any tensor has.
inline Value FailedValue(Elem elem = Elem::kFloat) {
  Value value;
  value.elem = elem;
  value.shape.assign(18, Expr(1));
  return value;
}

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_VALUE_H_
