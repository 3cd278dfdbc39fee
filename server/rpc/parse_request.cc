#include "server/rpc/parse_request.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/frontend/parse.h"
#include "deploy/bazel/libs/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "server/rpc/inflate.h"

namespace athanor {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::ArrayInputStream;
using google::protobuf::io::CodedInputStream;

// Smaller messages are not sized: they cannot take much.
constexpr int64_t kSmall = int64_t{64} << 10;
// Heap bytes, never less than protobuf's use, for lists grown by doubling: of a number, a piece of
// text, the overhead of a message, an entry of a map beside its key and value.
constexpr int64_t kNumber = 16;
constexpr int64_t kText = 64;
constexpr int64_t kBeside = 32;
constexpr int64_t kMapEntry = 96;
constexpr int kDeepest = 100;  // protobuf's own limit

int64_t BytesOf(const Descriptor& type) {
  if (type.options().map_entry()) return kMapEntry;  // a map entry is not allocated as a message
  const Message* empty = google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
  return empty == nullptr ? kText : static_cast<int64_t>(empty->SpaceUsedLong());
}

// Returns the bytes of a list of numbers that takes `length` bytes on the wire.
int64_t PackedBytes(const FieldDescriptor& field, int64_t length) {
  int64_t size = 8;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      size = 1;
      break;
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_ENUM:
    case FieldDescriptor::CPPTYPE_FLOAT:
      size = 4;
      break;
    default:
      break;
  }
  switch (field.type()) {
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED32:
    case FieldDescriptor::TYPE_SFIXED64:
      return 2 * length;
    default:
      return 2 * length * size;  // one byte on the wire per number
  }
}

class Sizer {
 public:
  Sizer(CodedInputStream* in, int64_t most) : in_(*in), most_(most) {}

  // Adds a message. Returns false if it is broken or larger than `most`. Stops after its last field
  // or its group's end.
  bool Add(const Descriptor* type, int depth) {
    if (type != last_) last_bytes_ = type == nullptr ? kText : BytesOf(*type);
    last_ = type;
    bytes_ += last_bytes_ + kBeside;
    if (depth > kDeepest) return false;
    while (const uint32_t tag = in_.ReadTag()) {
      if (bytes_ > most_) return false;
      const FieldDescriptor* field =
          type == nullptr ? nullptr
                          : type->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      switch (WireFormatLite::GetTagWireType(tag)) {
        case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
          if (!AddLength(field, depth)) return false;
          break;
        case WireFormatLite::WIRETYPE_START_GROUP:
          if (!Add(nullptr, depth + 1)) return false;
          break;
        case WireFormatLite::WIRETYPE_END_GROUP:
          return true;
        default:
          if (!WireFormatLite::SkipField(&in_, tag)) return false;
          bytes_ += kNumber;
      }
    }
    return true;
  }
  int64_t bytes() const { return bytes_; }

 private:
  bool AddLength(const FieldDescriptor* field, int depth) {
    int length = 0;
    if (!in_.ReadVarintSizeAsInt(&length)) return false;
    if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE) {
      const auto limit = in_.PushLimit(length);
      const bool whole = Add(field->message_type(), depth + 1);
      in_.PopLimit(limit);
      return whole;
    }
    bytes_ +=
        field != nullptr && field->is_packable() ? PackedBytes(*field, length) : kText + length;
    return in_.Skip(length);
  }

  CodedInputStream& in_;
  const int64_t most_;
  int64_t bytes_ = 0;
  const Descriptor* last_ = nullptr;  // type of the previous message; its size is last_bytes_
  int64_t last_bytes_ = kText;
};

absl::Status Reserve(ServerCore& core, const Message& message, int64_t bytes,
                     ServerLedger::Reservation* held) {
  if (bytes <= 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto reserved, core.ledger().Reserve(HeldKind::kRequests, bytes,
                                                        "the message " + message.GetTypeName()));
  *held = std::move(reserved);
  return absl::OkStatus();
}

absl::Status ParseInflated(ServerCore& core, const grpc::ByteBuffer& bytes,
                           const InflateLimits& limits, Message* message,
                           ServerLedger::Reservation* held) {
  ASSIGN_OR_RETURN(InflatedBytes inflated, InflatedBytes::Of(bytes, limits, &core.ledger()));
  const std::string_view view = inflated.view();
  ArrayInputStream stream(view.data(), static_cast<int>(view.size()));
  const int64_t parsed = ParsedBytes(&stream, *message->GetDescriptor(), core.ledger().limit());
  RETURN_IF_ERROR(Reserve(core, *message, parsed, held));
  if (message->ParseFromArray(view.data(), static_cast<int>(view.size()))) return absl::OkStatus();
  message->Clear();
  return ParseMessage(view, message);
}

absl::Status Parse(ServerCore& core, const grpc::ByteBuffer& bytes, const InflateLimits& limits,
                   Message* message, ServerLedger::Reservation* held) {
  grpc::ByteBuffer copy = bytes;  // shares the slices
  WireReader reader(&copy);
  const auto length = static_cast<int64_t>(bytes.Length());
  if (length > 0 && reader.algorithm() != GRPC_COMPRESS_NONE) {
    return ParseInflated(core, bytes, limits, message, held);
  }
  if (length > kSmall) {
    WireReader first(&copy);
    const int64_t limit = core.ledger().limit();
    const int64_t parsed = ParsedBytes(&first, *message->GetDescriptor(), limit);
    // Callers reserve the bytes once more if they keep the message.
    const int64_t beyond = parsed > limit ? parsed : parsed - length - kSmall;
    RETURN_IF_ERROR(Reserve(core, *message, beyond, held));
  }
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return absl::InvalidArgumentError("the message cannot be read");
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  message->Clear();
  return ParseMessage(text, message);
}

}  // namespace

int64_t ParsedBytes(google::protobuf::io::ZeroCopyInputStream* bytes, const Descriptor& type,
                    int64_t most) {
  CodedInputStream in(bytes);
  in.SetTotalBytesLimit(std::numeric_limits<int>::max());
  Sizer sizer(&in, most);
  sizer.Add(&type, 0);
  return sizer.bytes();
}

absl::Status ParseRequest(ServerCore& core, const grpc::ByteBuffer& bytes, Message* message,
                          ServerLedger::Reservation* held) {
  const InflateLimits limits{.most = core.options().max_message_bytes,
                             .times = core.options().max_inflation};
  return Parse(core, bytes, limits, message, held);
}

absl::Status ParseSmallRequest(ServerCore& core, const grpc::ByteBuffer& bytes, Message* message) {
  ServerLedger::Reservation held;
  const InflateLimits limits{.most = std::min(kFreeInflation, core.options().max_message_bytes),
                             .times = core.options().max_inflation,
                             .most_by = "the most of this call"};
  return Parse(core, bytes, limits, message, &held);
}

}  // namespace athanor
