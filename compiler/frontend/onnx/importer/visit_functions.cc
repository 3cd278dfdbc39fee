// Inlines calls of a model's functions.
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/importer/visit.h"
#include "compiler/frontend/onnx/model/model.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {

const ::onnx::GraphProto& GraphVisitor::BodyOf(const ::onnx::FunctionProto& function) {
  std::unique_ptr<GraphProto>& body = bodies_[&function];
  if (body == nullptr) {
    body = std::make_unique<GraphProto>();
    *body->mutable_node() = function.node();
    for (const std::string& name : function.input()) body->add_input()->set_name(name);
    for (const std::string& name : function.output()) body->add_output()->set_name(name);
  }
  return *body;
}

absl::Status GraphVisitor::BindFunction(const ::onnx::FunctionProto& function,
                                        const NodeProto& node,
                                        absl::Span<const Value* const> operands, Scope* scope,
                                        Frame* frame, Frame::Attributes* attributes,
                                        Frame::Opsets* opsets) const {
  const std::string name = Cat("function ", Quoted(function.name()));
  if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
    return Invalid("has ", node.input_size(), " operands and ", node.output_size(), " results; ",
                   name, " has at most ", function.input_size(), " and ", function.output_size());
  }
  for (const ::onnx::AttributeProto& attr : function.attribute_proto()) {
    attributes->emplace(attr.name(), &attr);
  }
  const std::set<std::string_view> names(function.attribute().begin(), function.attribute().end());
  for (const ::onnx::AttributeProto& attr : node.attribute()) {
    const bool known = attributes->contains(attr.name()) || names.contains(attr.name());
    if (!known) {
      return Invalid("has attribute ", Quoted(attr.name()), ", but ", name,
                     " has no such attribute");
    }
    (*attributes)[attr.name()] = &attr;
  }
  for (int i = 0; i < function.input_size(); ++i) {
    if (static_cast<size_t>(i) < operands.size() && operands[i] != nullptr) {
      scope->Define(function.input(i), *operands[i]);
    } else {
      scope->Omit(function.input(i));
    }
  }
  for (const auto& opset : function.opset_import()) {
    opsets->emplace(std::string(CanonicalDomain(opset.domain())), opset.version());
  }
  frame->path += Cat(NodeName(node), "/");
  frame->attributes = attributes;
  frame->opsets = opsets;
  return ++frame->depth > state_.options.limits.max_nesting ? Nested() : absl::OkStatus();
}

absl::Status GraphVisitor::CallFunction(const ::onnx::FunctionProto& function,
                                        const NodeProto& node,
                                        absl::Span<const Value* const> operands, Scope* scope,
                                        const Frame& outside) {
  Scope inner;
  Frame frame = outside;
  Frame::Attributes attributes;
  Frame::Opsets opsets;
  const GraphProto& body = BodyOf(function);
  absl::Status status = state_.budget.CountLookedAt(
      function.attribute_size() + function.attribute_proto_size() + function.opset_import_size());
  if (!status.ok()) return status;
  status = BindFunction(function, node, operands, &inner, &frame, &attributes, &opsets);
  if (status.ok()) status = Visit(body, &inner, frame, nullptr);
  if (!status.ok()) {
    if (EndsImport(status)) return status;
    Refuse(&node, outside, 0, status);
    PoisonResults(node, scope);
    return absl::OkStatus();
  }
  for (int o = 0; o < node.output_size(); ++o) {
    if (node.output(o).empty()) continue;
    const Scope::Found found = inner.Find(function.output(o));
    Value value;
    value.poisoned = true;
    if (found.value != nullptr) {
      value = *found.value;
    } else {
      Refuse(&node, outside, 0,
             Invalid("result ", Quoted(function.output(o)), " of function ",
                     Quoted(function.name()), " ", kUndefined));
    }
    scope->Define(node.output(o), std::move(value));
  }
  return absl::OkStatus();
}

}  // namespace athanor::onnx
