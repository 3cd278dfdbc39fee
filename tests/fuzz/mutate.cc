#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "compiler/ir/graph/op.h"

namespace athanor {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int64_t kIntegers[] = {
    0,         1,         2,         3,         4,         -1,        -2,        7,
    16,        64,        127,       128,       255,       256,       65535,     INT32_MAX,
    INT32_MIN, 1LL << 31, 1LL << 32, 1LL << 40, 1LL << 62, INT64_MAX, INT64_MIN, INT64_MIN + 1};
constexpr double kDoubles[] = {0.0,   -0.0,   1.0,    -1.0,     0.5,       1e-5,
                               1e300, -1e300, 5e-324, INFINITY, -INFINITY, NAN};
constexpr const char* kStrings[] = {
    "",      "$0",   "$1",     "$99",  "b",     "s",    "n",    "mk,kn->mn", "k,k->", "add",
    "mul",   "max",  "tanh",   "left", "set",   "\xff", "a b",  "axis",      "map",   "fill",
    "value", "spec", "causal", "FP32", "INT64", "BF16", "BOOL", "wait",      "taps"};

// Collects every message in the tree rooted at `root`, including `root`.
void Collect(Message* root, std::vector<Message*>* out) {
  out->push_back(root);
  std::vector<const FieldDescriptor*> fields;
  const Reflection& reflection = *root->GetReflection();
  reflection.ListFields(*root, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection.MutableMessage(root, field), out);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*root, field); ++i) {
      Collect(reflection.MutableRepeatedMessage(root, field, i), out);
    }
  }
}

void CollectStrings(const Message& message, std::vector<std::string>* out) {
  std::vector<const FieldDescriptor*> fields;
  const Reflection& reflection = *message.GetReflection();
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        CollectStrings(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                            : reflection.GetMessage(message, field),
                       out);
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        out->push_back(field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                            : reflection.GetString(message, field));
      }
    }
  }
}

void CollectOfType(const Message& message, const Descriptor* type,
                   std::vector<const Message*>* out) {
  if (message.GetDescriptor() == type) out->push_back(&message);
  std::vector<const FieldDescriptor*> fields;
  const Reflection& reflection = *message.GetReflection();
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      CollectOfType(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                         : reflection.GetMessage(message, field),
                    type, out);
    }
  }
}

}  // namespace

int64_t Mutator::AnyInteger(int64_t old) {
  switch (Below(4)) {
    case 0:
      return static_cast<int64_t>(static_cast<uint64_t>(old) + Below(5) - 2);
    case 1:
      return static_cast<int64_t>(Below(8));
    case 2:
      return static_cast<int64_t>(static_cast<uint64_t>(old) ^ (uint64_t{1} << Below(64)));
    default:
      return kIntegers[Below(std::size(kIntegers))];
  }
}

double Mutator::AnyDouble(double old) {
  if (OneIn(3)) return old * (1 + static_cast<double>(Below(100)) / 10);
  return kDoubles[Below(std::size(kDoubles))];
}

std::string Mutator::AnyString(const Field& field, const std::string& old) {
  if (field.type() == FieldDescriptor::TYPE_BYTES) {
    std::string bytes = old;
    MutateBytes(&bytes);
    return bytes;
  }
  switch (Below(5)) {
    case 0:
      return std::string(OpTable()[Below(OpTable().size())].name);
    case 1:
      return std::string(kDTypes[Below(std::size(kDTypes))].name);
    case 2:
      return kStrings[Below(std::size(kStrings))];
    case 3:
      if (OneIn(4)) {
        std::string text = old;
        MutateBytes(&text);
        return text;
      }
      [[fallthrough]];
    default:
      return strings_.empty() ? "" : strings_[Below(strings_.size())];
  }
}

// Changes element `index` of a repeated field, or the field itself for -1.
void Mutator::SetScalar(const Field& field, int index, Message* message) {
  const Reflection& r = *message->GetReflection();
#define ATHANOR_SET(Type, value)                                     \
  do {                                                               \
    if (index < 0) {                                                 \
      const auto old = r.Get##Type(*message, &field);                \
      r.Set##Type(message, &field, value);                           \
    } else {                                                         \
      const auto old = r.GetRepeated##Type(*message, &field, index); \
      r.SetRepeated##Type(message, &field, index, value);            \
    }                                                                \
  } while (false)
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      ATHANOR_SET(Int32, static_cast<int32_t>(AnyInteger(old)));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      ATHANOR_SET(Int64, AnyInteger(old));
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      ATHANOR_SET(UInt32, static_cast<uint32_t>(AnyInteger(old)));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      ATHANOR_SET(UInt64, static_cast<uint64_t>(AnyInteger(static_cast<int64_t>(old))));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      ATHANOR_SET(Double, AnyDouble(old));
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      ATHANOR_SET(Float, static_cast<float>(AnyDouble(old)));
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      ATHANOR_SET(Bool, !old);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      ATHANOR_SET(String, AnyString(field, old));
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
#undef ATHANOR_SET
}

void Mutator::AddElement(const Field& field, absl::Span<const Message* const> donors,
                         Message* message) {
  const Reflection& r = *message->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      std::vector<const Message*> found;
      for (const Message* donor : donors) CollectOfType(*donor, field.message_type(), &found);
      Message* element = r.AddMessage(message, &field);
      if (!found.empty() && !OneIn(8)) element->CopyFrom(*found[Below(found.size())]);
      return;
    }
    case FieldDescriptor::CPPTYPE_INT32:
      r.AddInt32(message, &field, 0);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      r.AddInt64(message, &field, 0);
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      r.AddUInt32(message, &field, 0);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      r.AddUInt64(message, &field, 0);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      r.AddDouble(message, &field, 0);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      r.AddFloat(message, &field, 0);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      r.AddBool(message, &field, false);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      r.AddString(message, &field, "");
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      return;
  }
  SetScalar(field, r.FieldSize(*message, &field) - 1, message);
}

void Mutator::MutateRepeated(const Field& field, absl::Span<const Message* const> donors,
                             Message* message) {
  const Reflection& r = *message->GetReflection();
  const int size = r.FieldSize(*message, &field);
  if (size == 0 || OneIn(4)) return AddElement(field, donors, message);
  const int index = static_cast<int>(Below(size));
  switch (Below(4)) {
    case 0:
      r.SwapElements(message, &field, index, size - 1);
      r.RemoveLast(message, &field);
      break;
    case 1:
      r.SwapElements(message, &field, index, static_cast<int>(Below(size)));
      break;
    default:
      SetScalar(field, index, message);
  }
}

void Mutator::MutateSingle(const Field& field, absl::Span<const Message* const> donors,
                           Message* message) {
  const Reflection& r = *message->GetReflection();
  if (OneIn(10)) return r.ClearField(message, &field);
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return SetScalar(field, -1, message);
  std::vector<const Message*> found;
  for (const Message* donor : donors) CollectOfType(*donor, field.message_type(), &found);
  if (found.empty()) return;
  r.MutableMessage(message, &field)->CopyFrom(*found[Below(found.size())]);
}

void Mutator::MutateOnce(absl::Span<const Message* const> donors, Message* root) {
  std::vector<Message*> messages;
  Collect(root, &messages);
  Message* message = messages[Below(messages.size())];
  const Descriptor& type = *message->GetDescriptor();
  if (type.field_count() == 0) return;
  // Set fields count twice: setting another member of a oneof would clear the one that is set.
  std::vector<const FieldDescriptor*> fields;
  message->GetReflection()->ListFields(*message, &fields);
  const FieldDescriptor* field = fields.empty() || OneIn(3)
                                     ? type.field(static_cast<int>(Below(type.field_count())))
                                     : fields[Below(fields.size())];
  if (field->is_repeated()) {
    MutateRepeated(*field, donors, message);
  } else {
    MutateSingle(*field, donors, message);
  }
}

void Mutator::Mutate(absl::Span<const Message* const> donors, Message* message) {
  strings_.clear();
  CollectStrings(*message, &strings_);
  for (const Message* donor : donors) CollectStrings(*donor, &strings_);
  const uint64_t changes = 1 + (OneIn(2) ? 0 : Below(6));
  for (uint64_t i = 0; i < changes; ++i) MutateOnce(donors, message);
}

void Mutator::MutateBytes(std::string* bytes) {
  if (bytes->empty()) {
    bytes->assign(Below(9), static_cast<char>(Below(256)));
    return;
  }
  const size_t at = Below(bytes->size());
  const size_t length = 1 + Below(std::min<size_t>(bytes->size() - at, 8));
  switch (Below(5)) {
    case 0:
      (*bytes)[at] = static_cast<char>(Below(256));
      break;
    case 1:
      (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << Below(8)));
      break;
    case 2:
      bytes->resize(at);
      break;
    case 3:
      bytes->insert(at, bytes->substr(at, length));
      break;
    default:
      bytes->erase(at, length);
  }
}

}  // namespace athanor
