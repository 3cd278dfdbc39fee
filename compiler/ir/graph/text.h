// Parts of the text form of graphs by themselves: attributes and declarations, as the e-graph's
// payloads are written.
//
//   AttrsText(node.attrs) == "axis=1, dtype=f32"
//   DeclarationText({"x", {DType::kF32, {2}}}) == "\"x\" : f32[2]"
#ifndef ATHANOR_COMPILER_IR_GRAPH_TEXT_H_
#define ATHANOR_COMPILER_IR_GRAPH_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/op.h"

namespace athanor {

// Attributes by name, separated by commas; "" for none. A literal of more than 64 elements is
// written as hexadecimal bytes.
std::string AttrsText(const Attrs& attrs);
// Reads what AttrsText writes. INVALID_ARGUMENT says what was expected; that an op takes these
// attributes is for the op table to say.
absl::StatusOr<Attrs> ParseAttrs(std::string_view text);

// The name, type and attributes of an Input or Parameter, `"w" {magnitude=20} : f32[2]`. Brackets
// and quotes of the name's text are balanced.
struct Declaration {
  std::string name;
  TensorType type;
  Attrs attrs = {};
  bool operator==(const Declaration&) const = default;
};
std::string DeclarationText(const Declaration& declaration);
absl::StatusOr<Declaration> ParseDeclaration(std::string_view text);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_TEXT_H_
