#include "compiler/frontend/parse.h"

#include <climits>
#include <map>
#include <optional>
#include <string>

#include "compiler/ir/value/message.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace athanor {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kMaxNesting = 100;  // protobuf's own limit

// Reads the wire form without building a message, to find the field that the parser refused.
class Finder {
 public:
  // Returns what is wrong below `path`, or nullopt.
  std::optional<std::string> Find(std::string_view bytes, const Descriptor& type,
                                  const std::string& path, int depth) {
    if (depth > kMaxNesting) return Cat(path, " is nested deeper than ", kMaxNesting, " levels");
    CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                        static_cast<int>(bytes.size()));
    std::map<int, int> seen;  // number of occurrences, by repeated field
    while (in.CurrentPosition() < static_cast<int>(bytes.size())) {
      const uint32_t tag = in.ReadTag();
      const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      const std::string place = Place(path, field, &seen);
      if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
        if (tag == 0 || !WireFormatLite::SkipField(&in, tag)) return Malformed(place, in);
        continue;
      }
      uint32_t length = 0;
      if (!in.ReadVarint32(&length) || length > bytes.size() - in.CurrentPosition()) {
        return Malformed(place, in);
      }
      const std::string_view value = bytes.substr(in.CurrentPosition(), length);
      in.Skip(static_cast<int>(length));
      if (field == nullptr) continue;
      if (std::optional<std::string> wrong = FindIn(value, *field, place, depth)) return wrong;
    }
    return std::nullopt;
  }

 private:
  std::optional<std::string> FindIn(std::string_view value, const FieldDescriptor& field,
                                    const std::string& place, int depth) {
    if (field.type() == FieldDescriptor::TYPE_MESSAGE) {
      return Find(value, *field.message_type(), place, depth + 1);
    }
    if (field.type() == FieldDescriptor::TYPE_STRING && !IsValidUtf8(value)) {
      return Cat(place, " is not valid UTF-8");
    }
    return std::nullopt;
  }

  static std::string Place(const std::string& path, const FieldDescriptor* field,
                           std::map<int, int>* seen) {
    if (field == nullptr) return path.empty() ? "an unknown field" : path + ": an unknown field";
    std::string place = Cat(path, path.empty() ? "" : ".", field->name());
    if (field->is_repeated()) place += Cat("[", (*seen)[field->number()]++, "]");
    return place;
  }

  static std::string Malformed(const std::string& place, const CodedInputStream& in) {
    return Cat(place, " is cut off or malformed near byte ", in.CurrentPosition(),
               " of its message");
  }
};

}  // namespace

absl::Status ParseMessage(std::string_view bytes, google::protobuf::Message* message) {
  const std::string name = message->GetDescriptor()->full_name();
  if (bytes.size() > INT_MAX) {
    return Invalid(name, ": ", bytes.size(), " bytes; a message has at most ", INT_MAX);
  }
  if (message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::OkStatus();
  }
  const std::optional<std::string> wrong = Finder().Find(bytes, *message->GetDescriptor(), "", 0);
  return Invalid(name, ": ", wrong.value_or("the bytes are not such a message"));
}

}  // namespace athanor
