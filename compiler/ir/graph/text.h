// Parts of the graph text form, for use on their own: attributes and declarations. The e-graph
// writes its payloads with them.
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

// Returns attributes in order of name, separated by commas; "" for none. A literal of more than 64
// elements is written as hexadecimal bytes.
std::string AttrsText(const Attrs& attrs);
// Reads what AttrsText writes. INVALID_ARGUMENT says what was expected. Does not check that an op
// takes these attributes; the op table does.
absl::StatusOr<Attrs> ParseAttrs(std::string_view text);

// The name, type and attributes of an Input or Parameter, `"w" {magnitude=20} : f32[2]`. Brackets
// and quotes are balanced in the text, even if the name holds some.
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
