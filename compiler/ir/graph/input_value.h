// An Input's attribute `value`: the only contents the input accepts. An importer that read a value
// from an input (axes, a shape) has built it into the graph. A request with other contents would
// get wrong answers, so it is refused. A value is part of the graph's text and of its canonical
// hash; it does not change what the graph computes.
//
//   %0 = Input "axes" {value=i64[1] {1}} : i64[1]
//   const Tensor* value = ValueOf(graph.node(0));      // i64[1] {1}
//   DifferenceFrom(*value, bytes)->got == "[0]"        // ->wanted == "[1]"
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_IR_GRAPH_INPUT_VALUE_H_
#define ATHANOR_COMPILER_IR_GRAPH_INPUT_VALUE_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// Name of the attribute.
inline constexpr std::string_view kInputValue = "value";

// Returns nullptr if the node is no Input or accepts any contents. The tensor lives in the node.
const Tensor* ValueOf(const Node& input);

// Returns INVALID_ARGUMENT if the value's dtype is not the input's or its size is not provably the
// input's.
absl::Status CheckInputValue(const TensorType& type, const Attrs& attrs, const Bounds& bounds);

struct ValueDifference {
  std::string element;  // "element 7", the first that differs; empty if `got` shows all elements
  std::string got, wanted;
};
// Compares dense `bytes`, as many as the value has, bit for bit; nullopt if they are equal.
std::optional<ValueDifference> DifferenceFrom(const Tensor& value, std::string_view bytes);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_INPUT_VALUE_H_
