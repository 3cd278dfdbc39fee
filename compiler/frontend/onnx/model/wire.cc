#include "compiler/frontend/onnx/model/wire.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using ::onnx::TensorProto;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

// A rewritten length is always encoded in this many bytes, because its value is known only later.
// Protobuf accepts lengths of this size.
constexpr int kLengthBytes = 5;

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// Tells which message types can hold a tensor, and through which of their fields.
class TypeTable {
 public:
  static const TypeTable& Get() {
    static const TypeTable* const table = new TypeTable();
    return *table;
  }
  // Returns null unless the field is a tensor or a message that can hold one.
  const Descriptor* Child(const Descriptor* type, uint32_t number) const {
    const auto found = children_.find({type, number});
    return found == children_.end() ? nullptr : found->second;
  }

 private:
  TypeTable() {
    // All types that can hold a tensor.
    std::vector<const Descriptor*> types = {::onnx::ModelProto::descriptor()};
    for (size_t i = 0; i < types.size(); ++i) {
      ForEachChild(types[i], [&](uint32_t, const Descriptor* child) {
        if (std::find(types.begin(), types.end(), child) == types.end()) types.push_back(child);
      });
    }
    std::set<const Descriptor*> holders = {TensorProto::descriptor()};
    for (bool changed = true; changed;) {
      changed = false;
      for (const Descriptor* type : types) {
        ForEachChild(type, [&](uint32_t number, const Descriptor* child) {
          if (holders.count(child) == 0) return;
          changed |= children_.emplace(std::make_pair(type, number), child).second;
          holders.insert(type);
        });
      }
    }
  }

  template <typename Take>
  static void ForEachChild(const Descriptor* type, const Take& take) {
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      if (field->message_type() == nullptr) continue;
      take(static_cast<uint32_t>(field->number()), field->message_type());
    }
  }

  std::map<std::pair<const Descriptor*, uint32_t>, const Descriptor*> children_;
};

bool IsPayload(uint32_t number) {
  switch (number) {
    case TensorProto::kRawDataFieldNumber:
    case TensorProto::kFloatDataFieldNumber:
    case TensorProto::kInt32DataFieldNumber:
    case TensorProto::kInt64DataFieldNumber:
    case TensorProto::kDoubleDataFieldNumber:
    case TensorProto::kUint64DataFieldNumber:
      return true;
    default:
      return false;
  }
}

class Lifter {
 public:
  Lifter(std::string_view model, const LiftLimits& limits) : model_(model), limits_(limits) {}

  absl::StatusOr<Lifted> Run() {
    frames_.push_back({::onnx::ModelProto::descriptor(), static_cast<int64_t>(model_.size())});
    while (!frames_.empty()) {
      const absl::Status s = at_ < frames_.back().end ? Field() : Leave();
      if (!s.ok()) return s;
    }
    return std::move(lifted_);
  }

 private:
  struct Frame {
    const Descriptor* type;
    int64_t end;                             // position in the model
    int64_t length_at = 0;                   // position of its length in the output; 0: unchanged
    const FieldDescriptor* field = nullptr;  // field of the outer frame
    int64_t index = 0;                       // index in that repeated field
    absl::InlinedVector<std::pair<uint32_t, int64_t>, 4> seen = {};  // count by field number
  };

  // Handles one field of the innermost message.
  absl::Status Field() {
    const int64_t start = at_;
    uint64_t tag = 0, value = 0;
    if (!Varint(&tag) || tag > UINT32_MAX || (tag >> 3) == 0) return Malformed(0, "its tag");
    const uint32_t number = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
      case kVarint:
        if (!Varint(&value)) return Malformed(number, "a varint");
        return Copy(start, at_);
      case kFixed64:
      case kFixed32: {
        const int64_t bytes = (tag & 7) == kFixed64 ? 8 : 4;
        if (bytes > Left()) return Malformed(number, "a fixed-width value");
        at_ += bytes;
        return Copy(start, at_);
      }
      case kLength:
        break;
      default:
        return Malformed(number, "a group or an unknown wire type");
    }
    if (!Varint(&value)) return Malformed(number, "its length");
    if (value > static_cast<uint64_t>(Left())) {
      return Invalid(Path(number), ": ", value, " bytes stated, ", Left(), " left");
    }
    return Delimited(number, start, static_cast<int64_t>(value));
  }

  // Handles a field of `bytes` bytes from at_ on, whose tag is at `start`.
  absl::Status Delimited(uint32_t number, int64_t start, int64_t bytes) {
    const Descriptor* type = frames_.back().type;
    if (const Descriptor* child = TypeTable::Get().Child(type, number)) {
      return Enter(child, number, start, bytes);
    }
    if (type == TensorProto::descriptor()) {
      if (IsPayload(number) && bytes > limits_.inline_bytes) return Lift(number, bytes);
      if (number == TensorProto::kExternalDataFieldNumber && HasOurKey(bytes)) {
        return Invalid(Path(number), ": the key \"", kPayloadKey,
                       "\" is this server's own and cannot be in a file");
      }
    }
    if (type->FindFieldByNumber(number) != nullptr) Count(number);
    at_ += bytes;
    return Copy(start, at_);
  }

  absl::Status Enter(const Descriptor* child, uint32_t number, int64_t start, int64_t bytes) {
    if (static_cast<int>(frames_.size()) >= limits_.max_nesting) {
      return absl::ResourceExhaustedError(
          Cat(Path(number), " is nested deeper than ", limits_.max_nesting, " messages"));
    }
    Frame frame{child, at_ + bytes, 0, frames_.back().type->FindFieldByNumber(number),
                Count(number)};
    // A payload that is small enough stays in the message, with its length unchanged.
    if (bytes <= limits_.inline_bytes) {
      RETURN_IF_ERROR(Copy(start, at_));
    } else {
      RETURN_IF_ERROR(Room(kLengthBytes + kLengthBytes));
      AppendVarint(number << 3 | kLength, &lifted_.message);
      frame.length_at = static_cast<int64_t>(lifted_.message.size());
      lifted_.message.append(kLengthBytes, 0);
    }
    frames_.push_back(std::move(frame));
    return absl::OkStatus();
  }

  absl::Status Leave() {
    const int64_t at = frames_.back().length_at;
    if (at > 0) {
      uint64_t length = lifted_.message.size() - at - kLengthBytes;
      for (int i = 0; i < kLengthBytes; ++i, length >>= 7) {
        lifted_.message[at + i] =
            static_cast<char>((length & 0x7f) | (i + 1 < kLengthBytes ? 0x80 : 0));
      }
    }
    frames_.pop_back();
    return absl::OkStatus();
  }

  absl::Status Lift(uint32_t number, int64_t bytes) {
    if (static_cast<int64_t>(lifted_.payloads.size()) >= limits_.max_payloads) {
      return absl::ResourceExhaustedError(Cat(Path(number), ": the model has more than ",
                                              limits_.max_payloads, " tensors of more than ",
                                              limits_.inline_bytes, " bytes"));
    }
    std::string entry;  // a StringStringEntryProto
    const std::string value = Cat(lifted_.payloads.size());
    entry.push_back(1 << 3 | kLength);
    AppendVarint(kPayloadKey.size(), &entry);
    entry += kPayloadKey;
    entry.push_back(2 << 3 | kLength);
    AppendVarint(value.size(), &entry);
    entry += value;
    RETURN_IF_ERROR(Room(static_cast<int64_t>(entry.size()) + 2));
    lifted_.message.push_back(TensorProto::kExternalDataFieldNumber << 3 | kLength);
    AppendVarint(entry.size(), &lifted_.message);
    lifted_.message += entry;
    lifted_.payloads.push_back({0, at_, bytes, number});
    at_ += bytes;
    Count(number);
    return absl::OkStatus();
  }

  // Reports whether the entry of `bytes` bytes from at_ on has our key. Malformed entries are left
  // to the parser.
  bool HasOurKey(int64_t bytes) const {
    const std::string_view entry = model_.substr(at_, bytes);
    return entry.find(kPayloadKey) != entry.npos && [&] {
      ::onnx::StringStringEntryProto parsed;
      return !parsed.ParseFromArray(entry.data(), static_cast<int>(bytes)) ||
             parsed.key() == kPayloadKey;
    }();
  }

  absl::Status Copy(int64_t begin, int64_t end) {
    RETURN_IF_ERROR(Room(end - begin));
    lifted_.message += model_.substr(begin, end - begin);
    return absl::OkStatus();
  }

  absl::Status Room(int64_t bytes) const {
    const int64_t total = static_cast<int64_t>(lifted_.message.size()) + bytes;
    if (total <= limits_.max_message_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(Cat("the model without its tensors has more than ",
                                            limits_.max_message_bytes, " bytes; ",
                                            LimitIs(limits_.max_message_bytes, "max_graph_bytes")));
  }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (Left() == 0) return false;
      const uint8_t byte = static_cast<uint8_t>(model_[at_++]);
      if (shift == 63 && byte > 1) return false;
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  int64_t Left() const { return frames_.back().end - at_; }

  // Returns the index of a repeated field in the innermost message and counts it.
  int64_t Count(uint32_t number) {
    auto& seen = frames_.back().seen;
    for (auto& [field, count] : seen) {
      if (field == number) return count++;
    }
    seen.push_back({number, 1});
    return 0;
  }

  absl::Status Malformed(uint32_t number, std::string_view what) const {
    return Invalid(Path(number), ": ", what, " is cut off or malformed at byte ", at_, " of ",
                   model_.size());
  }

  // Returns a path such as "graph.initializer[3].raw_data"; for field 0, that of the message.
  std::string Path(uint32_t number) const {
    std::string path;
    const auto add = [&](const FieldDescriptor* field, int64_t index) {
      if (!path.empty()) path += ".";
      path += field->name();
      if (field->is_repeated() && field->message_type() != nullptr) path += Cat("[", index, "]");
    };
    for (const Frame& frame : frames_) {
      if (frame.field != nullptr) add(frame.field, frame.index);
    }
    if (number == 0) return path.empty() ? "the model" : path;
    const FieldDescriptor* field = frames_.back().type->FindFieldByNumber(number);
    if (field == nullptr) return Cat(path, path.empty() ? "" : ".", "field ", number);
    int64_t index = 0;
    for (const auto& [seen, count] : frames_.back().seen) index = seen == number ? count : index;
    add(field, index);
    return path;
  }

  const std::string_view model_;
  const LiftLimits limits_;
  int64_t at_ = 0;  // position in the model
  std::vector<Frame> frames_;
  Lifted lifted_;
};

}  // namespace

absl::StatusOr<Lifted> LiftPayloads(std::string_view model, const LiftLimits& limits) {
  return Lifter(model, limits).Run();
}

}  // namespace athanor::onnx
