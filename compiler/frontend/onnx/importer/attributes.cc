#include "compiler/frontend/onnx/importer/attributes.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "compiler/ir/value/message.h"

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

const AttributeProto* NodeAttributes::Find(std::string_view name) const {
  for (const AttributeProto& attr : node_.attribute()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

std::string_view NodeAttributes::Default(std::string_view name) const {
  for (const SchemaAttr& attr : schema_.attrs) {
    if (attr.name == name) return attr.otherwise;
  }
  return {};
}

int64_t NodeAttributes::Int(std::string_view name) const {
  const AttributeProto* attr = Find(name);
  return attr != nullptr ? attr->i() : ToInt(Default(name));
}

double NodeAttributes::Float(std::string_view name) const {
  const AttributeProto* attr = Find(name);
  return attr != nullptr ? attr->f() : ToFloat(Default(name));
}

std::string NodeAttributes::String(std::string_view name) const {
  const AttributeProto* attr = Find(name);
  return attr != nullptr ? attr->s() : std::string(Default(name));
}

std::vector<int64_t> NodeAttributes::Ints(std::string_view name) const {
  if (const AttributeProto* attr = Find(name)) return {attr->ints().begin(), attr->ints().end()};
  std::vector<int64_t> values;
  for (const std::string& part : Split(Default(name))) values.push_back(ToInt(part));
  return values;
}

std::vector<double> NodeAttributes::Floats(std::string_view name) const {
  if (const AttributeProto* attr = Find(name)) {
    return {attr->floats().begin(), attr->floats().end()};
  }
  std::vector<double> values;
  for (const std::string& part : Split(Default(name))) values.push_back(ToFloat(part));
  return values;
}

std::vector<std::string> NodeAttributes::Strings(std::string_view name) const {
  if (const AttributeProto* attr = Find(name)) {
    return {attr->strings().begin(), attr->strings().end()};
  }
  return Split(Default(name));
}

const ::onnx::GraphProto& NodeAttributes::Graph(std::string_view name) const {
  const AttributeProto* attr = Find(name);
  return attr != nullptr ? attr->g() : ::onnx::GraphProto::default_instance();
}

absl::StatusOr<std::string> NodeAttributes::OneOf(
    std::string_view name, absl::Span<const std::string_view> allowed) const {
  std::string value = String(name);
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
  std::string text;
  for (std::string_view one : allowed) text += Cat(text.empty() ? "" : ", ", Quoted(one));
  return Invalid("attribute ", Quoted(name), " is ", Quoted(value), "; it must be one of ", text);
}

}  // namespace athanor::onnx
