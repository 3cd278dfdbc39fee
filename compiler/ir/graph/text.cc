// Prints graphs, one statement per line:
//
//   graph "digits" {
//     dim b in [1, 64]
//     %0 = Input "x" : f32[b, 64]
//     %1 = Constant {value=f32[2] {1.0, 2.0}} : f32[2]
//     %2 = IndexMap(%1) {map=map[b, 2]($1)} : f32[b, 2]
//     output "y" = %2
//   }
//
// A StateWrite, %5, has a line `update %5` behind the outputs.
// A nested graph is written the same way, without dims and with all types stated.
#include "compiler/ir/graph/text.h"

#include <bit>
#include <string>

#include "absl/strings/escaping.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/message.h"
#include "compiler/ir/value/text_values.h"

namespace athanor {
namespace {

// Largest number of elements that are listed; larger literals are hexadecimal.
constexpr int64_t kMaxListed = 64;

std::string Literal(const std::string& text) { return "\"" + absl::Utf8SafeCEscape(text) + "\""; }

// Appends rather than returns, since literals can be large.
void AppendBody(const Graph& graph, std::string* text);

struct AppendValue {
  std::string* text;

  void operator()(bool value) const { *text += value ? "true" : "false"; }
  void operator()(int64_t value) const { *text += Cat(value); }
  void operator()(double value) const {
    *text += FloatText(DType::kF64, std::bit_cast<uint64_t>(value));
  }
  void operator()(const std::string& value) const { *text += Literal(value); }
  void operator()(DType value) const { *text += DTypeName(value); }
  void operator()(const std::vector<int64_t>& value) const { *text += Cat("[", Join(value), "]"); }
  void operator()(const Shape& value) const { *text += Cat("shape", ShapeToString(value)); }
  void operator()(const IndexMap& value) const {
    std::string coordinates = ShapeToString(value.coordinates);
    coordinates.front() = '(';
    coordinates.back() = ')';
    *text += Cat("map", ShapeToString(value.shape), coordinates);
  }
  void operator()(const Tensor& value) const {
    *text += Cat(DTypeName(value.dtype), "[", Join(value.shape), "] {");
    const auto elements = static_cast<int64_t>(value.bytes.size() / DTypeBytes(value.dtype));
    if (elements > kMaxListed) return AppendHex(value.bytes);
    for (int64_t i = 0; i < elements; ++i) {
      *text += Cat(i == 0 ? "" : ", ", ElementText(value, i));
    }
    *text += "}";
  }

  void operator()(const SubGraph& value) const { AppendBody(*value, text); }

  void AppendHex(std::string_view bytes) const {
    constexpr char kDigits[] = "0123456789abcdef";
    *text += "hex \"";
    size_t at = text->size();
    text->resize(at + 2 * bytes.size());
    for (unsigned char byte : bytes) {
      (*text)[at++] = kDigits[byte >> 4];
      (*text)[at++] = kDigits[byte & 15];
    }
    *text += "\"}";
  }

  static std::string Join(const std::vector<int64_t>& values) {
    std::string text;
    for (int64_t value : values) text += Cat(text.empty() ? "" : ", ", value);
    return text;
  }
};

void AppendAttrs(const Attrs& attrs, std::string* text) {
  std::string_view before;
  for (const auto& [name, value] : attrs) {
    *text += Cat(before, name, "=");
    std::visit(AppendValue{text}, value);
    before = ", ";
  }
}

void AppendNode(const Node& node, size_t id, std::string* text) {
  *text += Cat("  %", id, " = ", OpName(node.op));
  if (!node.name.empty()) *text += " " + Literal(node.name);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    *text += Cat(i == 0 ? "(%" : ", %", node.inputs[i]);
  }
  if (!node.inputs.empty()) *text += ")";
  if (!node.attrs.empty()) {
    *text += " {";
    AppendAttrs(node.attrs, text);
    *text += "}";
  }
  *text += Cat(" : ", TypeToString(node.type), "\n");
}

// Appends a nested graph in the form that ToText prints.
void AppendBody(const Graph& graph, std::string* text) {
  *text += Cat("graph ", Literal(graph.name), " {\n");
  for (size_t i = 0; i < graph.nodes.size(); ++i) AppendNode(graph.nodes[i], i, text);
  for (const Output& output : graph.outputs) {
    *text += Cat("  output ", Literal(output.name), " = %", output.node, "\n");
  }
  *text += "}";
}

}  // namespace

std::string AttrsText(const Attrs& attrs) {
  std::string text;
  AppendAttrs(attrs, &text);
  return text;
}

std::string DeclarationText(const Declaration& declaration) {
  // Escapes quotes by their code: a reader that only counts quotes would take \" for one.
  const std::string literal = Literal(declaration.name);
  std::string name;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\') {
      name += literal[i];
    } else if (literal[++i] == '"') {
      name += "\\042";
    } else {
      name += {'\\', literal[i]};
    }
  }
  if (!declaration.attrs.empty()) name += Cat(" {", AttrsText(declaration.attrs), "}");
  return Cat(name, " : ", TypeToString(declaration.type));
}

std::string ToText(const Graph& graph) {
  std::string text = Cat("graph ", Literal(graph.name), " {\n");
  for (const Dim& dim : graph.dims) {
    text += Cat("  dim ", dim.name, " in [", dim.min, ", ", dim.max, "]\n");
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) AppendNode(graph.nodes[i], i, &text);
  for (const Output& output : graph.outputs) {
    text += Cat("  output ", Literal(output.name), " = %", output.node, "\n");
  }
  for (NodeId update : graph.updates) text += Cat("  update %", update, "\n");
  text += "}\n";
  return text;
}

}  // namespace athanor
