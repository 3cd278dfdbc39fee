// Printing graphs. One statement a line:
//
//   graph "digits" {
//     dim b in [1, 64]
//     %0 = Input "x" : f32[b, 64]
//     %1 = Constant {value=f32[2] {1.0, 2.0}} : f32[2]
//     %2 = IndexMap(%1) {map=map[b, 2]($1)} : f32[b, 2]
//     output "y" = %2
//   }
#include <bit>
#include <string>

#include "absl/strings/escaping.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/message.h"
#include "compiler/ir/text_values.h"

namespace athanor {
namespace {

constexpr int64_t kMaxListed = 64;  // elements of a literal; larger ones are in hexadecimal

std::string Literal(const std::string& text) { return "\"" + absl::Utf8SafeCEscape(text) + "\""; }

struct ValueText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return Cat(value); }
  std::string operator()(double value) const {
    return FloatText(DType::kF64, std::bit_cast<uint64_t>(value));
  }
  std::string operator()(const std::string& value) const { return Literal(value); }
  std::string operator()(DType value) const { return std::string(DTypeName(value)); }
  std::string operator()(const std::vector<int64_t>& value) const {
    return Cat("[", Join(value), "]");
  }
  std::string operator()(const Shape& value) const { return Cat("shape", ShapeToString(value)); }
  std::string operator()(const IndexMap& value) const {
    std::string coordinates = ShapeToString(value.coordinates);
    coordinates.front() = '(';
    coordinates.back() = ')';
    return Cat("map", ShapeToString(value.shape), coordinates);
  }
  std::string operator()(const Tensor& value) const {
    return Cat(DTypeName(value.dtype), "[", Join(value.shape), "] {", Elements(value), "}");
  }

  static std::string Join(const std::vector<int64_t>& values) {
    std::string text;
    for (int64_t value : values) text += Cat(text.empty() ? "" : ", ", value);
    return text;
  }
  static std::string Elements(const Tensor& tensor) {
    const auto elements = static_cast<int64_t>(tensor.bytes.size() / DTypeBytes(tensor.dtype));
    if (elements > kMaxListed) {
      return Cat("hex \"", std::string(absl::BytesToHexString(tensor.bytes)), "\"");
    }
    std::string text;
    for (int64_t i = 0; i < elements; ++i) {
      text += Cat(text.empty() ? "" : ", ", ElementText(tensor, i));
    }
    return text;
  }
};

void AppendNode(const Node& node, size_t id, std::string* text) {
  *text += Cat("  %", id, " = ", OpName(node.op));
  if (!node.name.empty()) *text += " " + Literal(node.name);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    *text += Cat(i == 0 ? "(%" : ", %", node.inputs[i]);
  }
  if (!node.inputs.empty()) *text += ")";
  std::string_view before = " {";
  for (const auto& [name, value] : node.attrs) {
    *text += Cat(before, name, "=", std::visit(ValueText(), value));
    before = ", ";
  }
  if (!node.attrs.empty()) *text += "}";
  *text += Cat(" : ", TypeToString(node.type), "\n");
}

}  // namespace

std::string ToText(const Graph& graph) {
  std::string text = Cat("graph ", Literal(graph.name), " {\n");
  for (const Dim& dim : graph.dims) {
    text += Cat("  dim ", dim.name, " in [", dim.min, ", ", dim.max, "]\n");
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) AppendNode(graph.nodes[i], i, &text);
  for (const Output& output : graph.outputs) {
    text += Cat("  output ", Literal(output.name), " = %", output.node, "\n");
  }
  return text + "}\n";
}

}  // namespace athanor
