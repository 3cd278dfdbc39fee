#include "compiler/frontend/onnx/schema/schema.h"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/frontend/names.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

using ::onnx::AttributeProto;

constexpr int kMany = std::numeric_limits<int>::max();

#define X(domain, op, since, deprecated, least_in, most_in, least_out, most_out, in, n_in, out, \
          n_out, attr, n_attr)                                                                  \
  SchemaRow{domain,                                                                             \
            op,                                                                                 \
            since,                                                                              \
            deprecated != 0,                                                                    \
            least_in,                                                                           \
            most_in,                                                                            \
            least_out,                                                                          \
            most_out,                                                                           \
            {kOperands + in, n_in},                                                             \
            {kOperands + out, n_out},                                                           \
            {kAttrs + attr, n_attr}},
#include "compiler/frontend/onnx/schema/schema_types.inc"
#undef X

// Returns the formal operand of position `i`; a variadic last one is repeated.
const SchemaOperand* Formal(absl::Span<const SchemaOperand> formals, size_t i) {
  if (i < formals.size()) return &formals[i];
  return !formals.empty() && formals.back().variadic ? &formals.back() : nullptr;
}

std::string CountText(int least, int most) {
  if (most == kMany) return Cat("at least ", least);
  return least == most ? Cat(least) : Cat(least, " to ", most);
}

std::string OpText(const SchemaRow& schema) { return Cat(schema.op, "-", schema.since); }

std::string TypesText(uint32_t types) {
  std::vector<std::string_view> names;
  for (const ElemRow& row : kElems) {
    if (types & (1u << (row.number - 1))) names.push_back(row.name);
  }
  if (names.empty()) return "no tensor";
  std::string text;
  for (std::string_view name : names) text += Cat(text.empty() ? "" : ", ", name);
  return text;
}

absl::Status CheckCounts(const SchemaRow& schema, const ::onnx::NodeProto& node) {
  if (node.input_size() < schema.min_inputs || node.input_size() > schema.max_inputs) {
    return Invalid("has ", node.input_size(), " operands; ", OpText(schema), " takes ",
                   CountText(schema.min_inputs, schema.max_inputs));
  }
  if (node.output_size() < schema.min_outputs || node.output_size() > schema.max_outputs) {
    return Invalid("has ", node.output_size(), " results; ", OpText(schema), " gives ",
                   CountText(schema.min_outputs, schema.max_outputs));
  }
  return absl::OkStatus();
}

absl::Status CheckTypes(const SchemaRow& schema, const ::onnx::NodeProto& node,
                        absl::Span<const Value* const> inputs) {
  // For each type variable, its first operand and that operand's type.
  std::vector<std::tuple<int, size_t, Elem>> variables;
  for (int i = 0; i < node.input_size(); ++i) {
    const SchemaOperand& formal = *Formal(schema.inputs, i);
    if (inputs[i] == nullptr) {
      if (formal.optional) continue;
      return Invalid("operand ", i, " (", formal.name, ") is left out; ", OpText(schema),
                     " needs it");
    }
    if (inputs[i]->poisoned) continue;
    const Elem elem = inputs[i]->elem;
    const ElemRow& row = Row(elem);
    if (formal.types == 0) {
      return Unimplemented("operand ", i, " (", formal.name, ") of ", OpText(schema),
                           " is not a tensor; only tensors are supported");
    }
    if (!(formal.types & (1u << (row.number - 1)))) {
      return Invalid("operand ", i, " (", formal.name, ") is of type ", row.name, "; ",
                     OpText(schema), " takes ", TypesText(formal.types));
    }
    if (formal.same_as < 0) continue;
    auto same = std::find_if(variables.begin(), variables.end(), [&](const auto& variable) {
      return std::get<0>(variable) == formal.same_as;
    });
    if (same == variables.end()) {
      variables.emplace_back(formal.same_as, i, elem);
    } else if (std::get<2>(*same) != elem) {
      return Invalid("operand ", i, " (", formal.name, ") is of type ", row.name, ", operand ",
                     std::get<1>(*same), " of ", ElemName(std::get<2>(*same)), "; ", OpText(schema),
                     " needs one type for both, so a Cast before it");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAttrs(const SchemaRow& schema, const ::onnx::NodeProto& node) {
  std::vector<std::string_view> seen;
  for (const AttributeProto& attr : node.attribute()) {
    auto known = std::find_if(schema.attrs.begin(), schema.attrs.end(),
                              [&](const SchemaAttr& a) { return a.name == attr.name(); });
    if (known == schema.attrs.end()) {
      std::vector<std::string_view> names;
      for (const SchemaAttr& a : schema.attrs) names.push_back(a.name);
      return Invalid("has attribute ", Quoted(attr.name()), ", which ", OpText(schema),
                     " has not; it takes ", names.empty() ? std::string("none") : JoinNames(names));
    }
    if (std::find(seen.begin(), seen.end(), attr.name()) != seen.end()) {
      return Invalid("has attribute ", Quoted(attr.name()), " twice; give it once");
    }
    seen.push_back(known->name);
    if (attr.type() != known->kind) {
      return Invalid("attribute ", Quoted(attr.name()), " is of kind ",
                     AttributeProto::AttributeType_Name(attr.type()), "; ", OpText(schema),
                     " takes ",
                     AttributeProto::AttributeType_Name(
                         static_cast<AttributeProto::AttributeType>(known->kind)));
    }
  }
  for (const SchemaAttr& a : schema.attrs) {
    if (a.required && std::find(seen.begin(), seen.end(), a.name) == seen.end()) {
      return Invalid("has no attribute ", Quoted(a.name), ", which ", OpText(schema), " needs");
    }
  }
  return absl::OkStatus();
}

}  // namespace

const SchemaRow* FindSchema(std::string_view domain, std::string_view op, int64_t opset) {
  const auto key = [](const SchemaRow& row) {
    return std::tuple(row.domain, row.op, static_cast<int64_t>(row.since));
  };
  const auto* after =
      std::upper_bound(std::begin(kSchemas), std::end(kSchemas), std::tuple(domain, op, opset),
                       [&](const auto& wanted, const SchemaRow& row) { return wanted < key(row); });
  if (after == std::begin(kSchemas)) return nullptr;
  const SchemaRow& row = *(after - 1);
  return row.domain == domain && row.op == op ? &row : nullptr;
}

absl::Status CheckNode(const SchemaRow& schema, const ::onnx::NodeProto& node,
                       absl::Span<const Value* const> inputs) {
  if (schema.deprecated) {
    return Invalid("the op was removed in version ", schema.since,
                   " of its domain; convert the model or import an older opset");
  }
  absl::Status s = CheckCounts(schema, node);
  if (s.ok()) s = CheckTypes(schema, node, inputs);
  if (s.ok()) s = CheckAttrs(schema, node);
  return s;
}

}  // namespace athanor::onnx
