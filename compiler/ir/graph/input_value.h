// An Input's attribute `value`: the only contents the input takes. What an importer has read from
// it is part of the graph (shapes, axes); a request with other contents would get wrong answers, so
// it is refused. A value is in the graph's text and its canonical hash, and computes nothing.
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

// The attribute of an Input.
inline constexpr std::string_view kInputValue = "value";

// nullptr of a node that is no Input or takes any contents. Lives in the node.
const Tensor* ValueOf(const Node& input);

// INVALID_ARGUMENT: a value whose dtype is not the input's, or a size not provably the input's.
absl::Status CheckInputValue(const TensorType& type, const Attrs& attrs, const Bounds& bounds);

struct ValueDifference {
  std::string element;  // "element 7", the first that differs; empty where `got` shows all of them
  std::string got, wanted;
};
// nullopt where dense `bytes`, as many as the value's, are the value's, bit for bit.
std::optional<ValueDifference> DifferenceFrom(const Tensor& value, std::string_view bytes);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_INPUT_VALUE_H_
