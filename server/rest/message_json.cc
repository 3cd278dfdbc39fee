#include "server/rest/message_json.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace athanor {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns a field, or element `at` of a repeated one.
class Value {
 public:
  Value(const Message& message, const FieldDescriptor& field, int at)
      : message_(message), reflection_(*message.GetReflection()), field_(field), at_(at) {}

  Json json() const {
    switch (field_.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return Get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
      case FieldDescriptor::CPPTYPE_INT64:
        return Get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
      case FieldDescriptor::CPPTYPE_UINT32:
        return Get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
      case FieldDescriptor::CPPTYPE_UINT64:
        return Get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return Get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat);
      case FieldDescriptor::CPPTYPE_BOOL:
        return Get(&Reflection::GetBool, &Reflection::GetRepeatedBool);
      case FieldDescriptor::CPPTYPE_ENUM:
        return std::string(Get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum)->name());
      case FieldDescriptor::CPPTYPE_STRING:
        return Get(&Reflection::GetString, &Reflection::GetRepeatedString);
      case FieldDescriptor::CPPTYPE_MESSAGE:
        break;
    }
    return MessageJson(at_ < 0 ? reflection_.GetMessage(message_, &field_)
                               : reflection_.GetRepeatedMessage(message_, &field_, at_));
  }

 private:
  using Reflection = google::protobuf::Reflection;

  template <typename T>
  T Get(T (Reflection::*one)(const Message&, const FieldDescriptor*) const,
        T (Reflection::*of_many)(const Message&, const FieldDescriptor*, int) const) const {
    return at_ < 0 ? (reflection_.*one)(message_, &field_)
                   : (reflection_.*of_many)(message_, &field_, at_);
  }

  const Message& message_;
  const Reflection& reflection_;
  const FieldDescriptor& field_;
  const int at_;  // -1: it is not repeated
};

Json MapJson(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  std::vector<std::pair<std::string, Json>> entries;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const Json key = Value(entry, *field.message_type()->map_key(), -1).json();
    entries.emplace_back(key.is_string() ? key.get<std::string>() : key.dump(),
                         Value(entry, *field.message_type()->map_value(), -1).json());
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  Json map = Json::object();
  for (auto& [key, value] : entries) map[key] = std::move(value);
  return map;
}

}  // namespace

Json MessageJson(const Message& message) {
  const auto& descriptor = *message.GetDescriptor();
  const auto& reflection = *message.GetReflection();
  Json object = Json::object();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    Json& json = object[std::string(field.name())];
    if (field.is_map()) {
      json = MapJson(message, field);
    } else if (field.is_repeated()) {
      json = Json::array();
      for (int at = 0; at < reflection.FieldSize(message, &field); ++at) {
        json.push_back(Value(message, field, at).json());
      }
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      json = Value(message, field, -1).json();
    } else {
      object.erase(std::string(field.name()));
    }
  }
  return object;
}

}  // namespace athanor
