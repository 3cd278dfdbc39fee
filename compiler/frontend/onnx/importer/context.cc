#include "compiler/frontend/onnx/importer/context.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::AttributeProto;

// Splits a default's text such as "Tanh,Tanh".
std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

int64_t ToInt(std::string_view text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

double ToFloat(std::string_view text) { return std::strtof(std::string(text).c_str(), nullptr); }

}  // namespace

NodeContext::NodeContext(GraphVisitor* visitor, const ::onnx::NodeProto& node,
                         const SchemaRow& schema, std::vector<const Value*> operands,
                         const Scope& scope, const Frame& frame, const GraphInfo& info)
    : visitor_(visitor),
      node_(node),
      schema_(schema),
      operands_(std::move(operands)),
      scope_(scope),
      frame_(frame),
      info_(info) {
  while (!operands_.empty() && operands_.back() == nullptr) operands_.pop_back();
  for (const Value* operand : operands_) {
    if (operand != nullptr) Capture(*operand);
  }
  int count = node.output_size();
  while (count > 0 && node.output(count - 1).empty()) --count;
  results_.resize(count);
}

void NodeContext::Set(int o, Value value) {
  if (o < outputs()) results_[o] = std::move(value);
}

const AttributeProto* NodeContext::Find(std::string_view name) const {
  for (const AttributeProto& attr : node_.attribute()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

std::string_view NodeContext::Default(std::string_view name) const {
  for (const SchemaAttr& attr : schema_.attrs) {
    if (attr.name == name) return attr.otherwise;
  }
  return {};
}

int64_t NodeContext::Int(std::string_view name) const {
  const AttributeProto* attr = Find(name);
  return attr != nullptr ? attr->i() : ToInt(Default(name));
}

double NodeContext::Float(std::string_view name) const {
  const AttributeProto* attr = Find(name);
  return attr != nullptr ? attr->f() : ToFloat(Default(name));
}

std::string NodeContext::String(std::string_view name) const {
  const AttributeProto* attr = Find(name);
  return attr != nullptr ? attr->s() : std::string(Default(name));
}

std::vector<int64_t> NodeContext::Ints(std::string_view name) const {
  if (const AttributeProto* attr = Find(name)) return {attr->ints().begin(), attr->ints().end()};
  std::vector<int64_t> values;
  for (const std::string& part : Split(Default(name))) values.push_back(ToInt(part));
  return values;
}

std::vector<double> NodeContext::Floats(std::string_view name) const {
  if (const AttributeProto* attr = Find(name)) {
    return {attr->floats().begin(), attr->floats().end()};
  }
  std::vector<double> values;
  for (const std::string& part : Split(Default(name))) values.push_back(ToFloat(part));
  return values;
}

std::vector<std::string> NodeContext::Strings(std::string_view name) const {
  if (const AttributeProto* attr = Find(name)) {
    return {attr->strings().begin(), attr->strings().end()};
  }
  return Split(Default(name));
}

absl::StatusOr<Value> NodeContext::TensorAttr(std::string_view name) const {
  const AttributeProto* attr = Find(name);
  if (attr == nullptr) return Invalid("has no attribute ", Quoted(name));
  absl::StatusOr<Value> value = visitor_->state().tensors->ValueOf(
      attr->t(), node_.output_size() > 0 ? node_.output(0) : name);
  if (!value.ok()) return Prefixed(Cat("attribute ", Quoted(name), ": "), value.status());
  return value;
}

const ::onnx::GraphProto& NodeContext::GraphAttr(std::string_view name) const {
  const AttributeProto* attr = Find(name);
  return attr != nullptr ? attr->g() : ::onnx::GraphProto::default_instance();
}

absl::StatusOr<std::string> NodeContext::OneOf(std::string_view name,
                                               absl::Span<const std::string_view> allowed) const {
  std::string value = String(name);
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
  std::string text;
  for (std::string_view one : allowed) text += Cat(text.empty() ? "" : ", ", Quoted(one));
  return Invalid("attribute ", Quoted(name), " is ", Quoted(value), "; it must be one of ", text);
}

absl::Status NodeContext::Unknown(int i, std::string_view what) const {
  const Value& operand = In(i);
  absl::Status status;
  if (operand.sources.empty()) {
    status = Unimplemented("its ", what, " (operand ", i, ", ", Quoted(node_.input(i)),
                           ") is known only when the model runs; it must be a constant or follow "
                           "from the inputs' shapes");
  } else {
    std::string names, example;
    for (int source : operand.sources) {
      const std::string name = Quoted(visitor_->state().input_names[source]);
      names += Cat(names.empty() ? "" : ", ", name);
      example += Cat(example.empty() ? "" : ", ", name, ": ...");
    }
    status =
        Unimplemented("its ", what, " depends on the value of input ", names,
                      ", which only requests carry; give it at upload, values={", example, "}");
  }
  unknown_.emplace_back(std::string(absl::string_view(status.message())), operand.sources);
  return status;
}

absl::StatusOr<std::vector<Expr>> NodeContext::Sizes(int i, std::string_view what) const {
  const Value& operand = In(i);
  const DType dtype = operand.dtype();
  if (!IsInteger(dtype) && dtype != DType::kBool) {
    return Invalid("its ", what, " is of type ", ElemName(operand.elem),
                   "; it must be of an integer type");
  }
  if (operand.known == nullptr) return Unknown(i, what);
  const size_t elements = operand.known->sizes.size();
  if (elements == 0 && operand.known->literal && operand.known->literal->elements() != 0) {
    return Invalid("its ", what, " holds numbers beyond int64");
  }
  return operand.known->sizes;
}

absl::StatusOr<std::vector<int64_t>> NodeContext::Integers(int i, std::string_view what) const {
  ASSIGN_OR_RETURN(std::vector<Expr> sizes, Sizes(i, what));
  std::vector<int64_t> values;
  for (const Expr& size : sizes) {
    const std::optional<int64_t> value = size.constant();
    if (!value) {
      return Unimplemented("its ", what, " is ", size.ToString(),
                           ", which depends on dims; it must be one number");
    }
    values.push_back(*value);
  }
  return values;
}

absl::StatusOr<std::vector<double>> NodeContext::Numbers(int i, std::string_view what) const {
  const Value& operand = In(i);
  if (operand.known == nullptr) return Unknown(i, what);
  std::vector<double> values;
  if (const std::optional<Tensor>& literal = operand.known->literal) {
    for (int64_t e = 0; e < literal->elements(); ++e) {
      if (!Computes(literal->dtype)) {
        values.push_back(DecodeFloat(literal->dtype, static_cast<uint8_t>(literal->bytes[e])));
        continue;
      }
      const Scalar scalar = LoadScalar(*literal, e);
      values.push_back(IsFloat(literal->dtype)    ? scalar.f
                       : IsSigned(literal->dtype) ? static_cast<double>(scalar.i)
                                                  : static_cast<double>(scalar.u));
    }
    return values;
  }
  for (const Expr& size : operand.known->sizes) {
    const std::optional<int64_t> value = size.constant();
    if (!value) {
      const int64_t divisor = operand.known->divisor;
      return Unimplemented(
          "its ", what, " is ",
          divisor == 1 ? size.ToString() : Cat("(", size.ToString(), ")/", divisor),
          ", which depends on dims; it must be one number");
    }
    values.push_back(static_cast<double>(*value) / static_cast<double>(operand.known->divisor));
  }
  return values;
}

absl::StatusOr<Expr> NodeContext::OneSize(int i, std::string_view what) const {
  ASSIGN_OR_RETURN(std::vector<Expr> sizes, Sizes(i, what));
  if (sizes.size() == 1) return sizes.front();
  return Invalid("its ", what, " has ", sizes.size(), " elements; it must have one");
}

absl::StatusOr<int> NodeContext::Axis(int64_t axis, int rank) const {
  if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
  if (rank == 0) return Invalid("axis ", axis, " of a scalar; a scalar has no axes");
  return Invalid("axis ", axis, " of a tensor of rank ", rank, "; it must be in [", -rank, ", ",
                 rank - 1, "]");
}

absl::StatusOr<std::vector<int>> NodeContext::Axes(absl::Span<const int64_t> axes, int rank) const {
  std::vector<int> result;
  for (int64_t axis : axes) {
    ASSIGN_OR_RETURN(int one, Axis(axis, rank));
    if (std::find(result.begin(), result.end(), one) != result.end()) {
      return Invalid("axis ", axis, " is given twice");
    }
    result.push_back(one);
  }
  return result;
}

absl::StatusOr<std::vector<Value>> NodeContext::Inline(const ::onnx::GraphProto& graph,
                                                       absl::Span<const Value> inputs,
                                                       std::string_view label) {
  inlined_.insert(&graph);
  return visitor_->Inline(graph, inputs, label, this);
}

absl::StatusOr<std::optional<std::vector<Value>>> NodeContext::TryInline(
    const ::onnx::GraphProto& graph, absl::Span<const Value> inputs, std::string_view label) {
  inlined_.insert(&graph);
  return visitor_->TryInline(graph, inputs, label, this);
}

const Value* NodeContext::Outer(std::string_view name) {
  const Value* value = scope_.Find(name).value;
  if (value != nullptr) Capture(*value);
  return value;
}

void NodeContext::Note(std::string text) {
  visitor_->state().log.Note(Cat("node ", Quoted(frame_.path + NodeName(node_)), ": ", text));
}

std::vector<int> NodeContext::Sources() const {
  std::vector<int> sources(sources_.begin(), sources_.end());
  if (sources.size() > 8) sources.resize(8);
  return sources;
}

std::vector<std::string> NodeContext::Settles(const absl::Status& status) const {
  const std::string text(absl::string_view(status.message()));
  std::vector<std::string> names;
  for (const auto& [message, sources] : unknown_) {
    if (text.find(message) == std::string::npos) continue;
    for (int source : sources) {
      const std::string& name = visitor_->state().input_names[source];
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

}  // namespace athanor::onnx
