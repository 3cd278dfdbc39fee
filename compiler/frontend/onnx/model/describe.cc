// DescribeTensor: checks a TensorProto's declaration against the place of its bytes.
#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <utility>

#include "compiler/frontend/names.h"
#include "compiler/frontend/onnx/model/payload.h"
#include "compiler/frontend/onnx/model/payload_internal.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::TensorProto;

constexpr size_t kMaxLocationBytes = 1024;

// Returns the field that holds typed data of an element type.
uint32_t TypedField(Elem elem) {
  switch (elem) {
    case Elem::kFloat:
    case Elem::kComplex64:
      return TensorProto::kFloatDataFieldNumber;
    case Elem::kDouble:
    case Elem::kComplex128:
      return TensorProto::kDoubleDataFieldNumber;
    case Elem::kInt64:
      return TensorProto::kInt64DataFieldNumber;
    case Elem::kUInt32:
    case Elem::kUInt64:
      return TensorProto::kUint64DataFieldNumber;
    case Elem::kString:
      return TensorProto::kStringDataFieldNumber;
    default:
      return TensorProto::kInt32DataFieldNumber;
  }
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

// Returns the location without "." and empty components; an error if it leaves its folder.
absl::StatusOr<std::string> CheckedLocation(std::string_view location) {
  if (location.empty()) return Invalid("its location is empty");
  if (location.size() > kMaxLocationBytes) {
    return Invalid("its location has ", location.size(), " bytes; at most ", kMaxLocationBytes);
  }
  if (!IsValidUtf8(location) || location.find('\0') != location.npos) {
    return Invalid("its location ", Quoted(location), " is not valid UTF-8");
  }
  if (location.find('\\') != location.npos) {
    return Invalid("its location ", Quoted(location),
                   " has a backslash; folders are separated by \"/\"");
  }
  if (location.front() == '/') {
    return Invalid("its location ", Quoted(location),
                   " is absolute; it must be relative to the model's folder");
  }
  std::string path;
  for (size_t at = 0; at <= location.size();) {
    const size_t end = std::min(location.find('/', at), location.size());
    const std::string_view part = location.substr(at, end - at);
    at = end + 1;
    if (part == "..") {
      return Invalid("its location ", Quoted(location), " leaves the model's folder");
    }
    if (part.empty() || part == ".") continue;
    path += Cat(path.empty() ? "" : "/", part);
  }
  return path;
}

absl::StatusOr<int> FindFile(std::string_view location, const FileTable& files) {
  ASSIGN_OR_RETURN(std::string path, CheckedLocation(location));
  std::vector<std::string_view> names;
  for (size_t i = 1; i < files.files.size(); ++i) {
    const std::string& name = files.files[i].path;
    if (name == path || name == location) return static_cast<int>(i);
    names.push_back(name);
  }
  return Invalid("its data is in file ", Quoted(location), ", which is not part of this upload",
                 DidYouMean(path, names));
}

// Describes one tensor.
class Describer {
 public:
  Describer(const TensorProto& proto, absl::Span<const PayloadRef> lifted, const FileTable& files)
      : proto_(proto), lifted_(lifted), files_(files) {}

  absl::StatusOr<StoredTensor> Run() {
    out_.name = proto_.name();
    absl::Status s = Type();
    if (s.ok()) s = Sources();
    if (s.ok()) s = Data();
    if (!s.ok()) return Prefixed(Cat("tensor ", Quoted(proto_.name()), ": "), s);
    return std::move(out_);
  }

 private:
  absl::Status Type() {
    const std::optional<Elem> elem = ElemOf(proto_.data_type());
    if (!elem) {
      return Invalid("its data_type is ", proto_.data_type(), ", which is not an element type");
    }
    if (Row(*elem).carry == Carry::kNone) {
      return Unimplemented("elements of type ", ElemName(*elem), " are not supported");
    }
    if (proto_.has_segment()) return Unimplemented("segments of tensors are not read");
    out_.elem = *elem;
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 16;
    bool empty = false, overflow = false;
    for (const int64_t size : proto_.dims()) {
      if (size < 0) return Invalid("axis ", out_.shape.size(), " has the negative size ", size);
      empty |= size == 0;
      overflow |= size > 0 && out_.elements > kMost / size;
      if (!overflow && size > 0) out_.elements *= size;
      out_.shape.push_back(size);
    }
    if (empty) out_.elements = 0;
    // Checked for an empty tensor too: later code multiplies its axes in any order.
    if (overflow) return Invalid("its shape has more elements than can be counted");
    return absl::OkStatus();
  }

  // Finds the one field or file that holds the data.
  absl::Status Sources() {
    const auto take = [&](uint32_t field, bool there) {
      if (!there) return;
      if (!places_.empty()) places_ += " and ";
      places_ += PayloadFieldName(field);
      ++count_;
      field_ = field;
    };
    take(TensorProto::kRawDataFieldNumber, proto_.has_raw_data());
    take(TensorProto::kFloatDataFieldNumber, proto_.float_data_size() > 0);
    take(TensorProto::kInt32DataFieldNumber, proto_.int32_data_size() > 0);
    take(TensorProto::kStringDataFieldNumber, proto_.string_data_size() > 0);
    take(TensorProto::kInt64DataFieldNumber, proto_.int64_data_size() > 0);
    take(TensorProto::kDoubleDataFieldNumber, proto_.double_data_size() > 0);
    take(TensorProto::kUint64DataFieldNumber, proto_.uint64_data_size() > 0);
    for (const ::onnx::StringStringEntryProto& entry : proto_.external_data()) {
      if (entry.key() != kPayloadKey) continue;
      const std::optional<int64_t> index = ParseInteger(entry.value());
      if (!index || *index < 0 || *index >= static_cast<int64_t>(lifted_.size())) {
        return Invalid("the upload has no payload ", Quoted(entry.value()));
      }
      out_.payload = lifted_[*index];
      take(out_.payload->field, true);
    }
    const bool external = proto_.data_location() == TensorProto::EXTERNAL;
    if (external) take(TensorProto::kExternalDataFieldNumber, true);
    if (count_ > 1) return Invalid("its data is in several places: ", places_);
    if (external) return External();
    if (count_ == 0 && out_.elements > 0) {
      return Invalid("it has ", out_.elements, " elements and no data",
                     proto_.external_data_size() > 0 ? "; its data_location is not EXTERNAL" : "");
    }
    if (count_ == 1 && field_ != TensorProto::kRawDataFieldNumber &&
        field_ != TypedField(out_.elem)) {
      return Invalid("elements of type ", ElemName(out_.elem), " cannot be in ", places_,
                     "; they are in ", PayloadFieldName(TypedField(out_.elem)), " or raw_data");
    }
    return absl::OkStatus();
  }

  absl::Status External() {
    std::map<std::string, std::string> entries;
    for (const ::onnx::StringStringEntryProto& entry : proto_.external_data()) {
      if (!entries.emplace(entry.key(), entry.value()).second) {
        return Invalid("external_data has the key ", Quoted(entry.key()), " twice");
      }
    }
    if (entries.count("location") == 0) return Invalid("external_data has no location");
    ASSIGN_OR_RETURN(int file, FindFile(entries["location"], files_));
    PayloadRef ref{file, 0, 0, TensorProto::kRawDataFieldNumber};
    const FileTable::File& there = files_.files[file];
    ref.bytes = there.bytes;
    for (const auto& [key, value] :
         {std::pair<const char*, int64_t*>("offset", &ref.offset), {"length", &ref.bytes}}) {
      const auto entry = entries.find(key);
      if (entry == entries.end()) continue;
      const std::optional<int64_t> number = ParseInteger(entry->second);
      if (!number || *number < 0) {
        return Invalid("external_data's ", key, " is ", Quoted(entry->second),
                       "; it must be a number of bytes");
      }
      *value = *number;
    }
    if (ref.offset > there.bytes) {
      return Invalid("its data starts at byte ", ref.offset, " of file ", Quoted(there.path),
                     ", which has ", there.bytes);
    }
    if (entries.count("length") == 0) ref.bytes = there.bytes - ref.offset;
    if (ref.bytes > there.bytes - ref.offset) {
      return Invalid("its data has ", ref.bytes, " bytes from byte ", ref.offset, " of file ",
                     Quoted(there.path), " on, which has ", there.bytes);
    }
    out_.payload = ref;
    field_ = TensorProto::kRawDataFieldNumber;
    places_ = Cat("file ", Quoted(there.path));
    return absl::OkStatus();
  }

  absl::Status Data() {
    if (field_ == 0) return absl::OkStatus();  // no elements
    const int64_t units = UnitsOf(out_.elem, out_.elements, field_);
    if (out_.payload) return Payload(units);
    int64_t stated = 0;
    switch (field_) {
      case TensorProto::kRawDataFieldNumber:
        return InlineRaw(units);
      case TensorProto::kFloatDataFieldNumber:
        stated = proto_.float_data_size();
        break;
      case TensorProto::kInt32DataFieldNumber:
        stated = proto_.int32_data_size();
        break;
      case TensorProto::kInt64DataFieldNumber:
        stated = proto_.int64_data_size();
        break;
      case TensorProto::kDoubleDataFieldNumber:
        stated = proto_.double_data_size();
        break;
      default:
        stated = proto_.uint64_data_size();
        break;
    }
    if (stated != units) return WrongNumber(stated, units, "values");
    return InlineTyped(units);
  }

  absl::Status Payload(int64_t units) {
    const PayloadRef& ref = *out_.payload;
    if (IsVarints(field_)) {
      out_.form = IsPacked(out_.elem, field_) ? PayloadForm::kPacked : PayloadForm::kVarints;
      if (ref.bytes >= units && ref.bytes <= 10 * units) return absl::OkStatus();
      return Invalid("its ", places_, " has ", ref.bytes, " bytes, which are not ", units,
                     " values");
    }
    if (IsPacked(out_.elem, field_)) out_.form = PayloadForm::kPacked;
    const int64_t bytes = field_ == TensorProto::kRawDataFieldNumber
                              ? units
                              : units * DTypeBytes(CarrierOf(out_.elem));
    return ref.bytes == bytes ? absl::OkStatus() : WrongNumber(ref.bytes, bytes, "bytes");
  }

  absl::Status InlineRaw(int64_t units) {
    const std::string& raw = proto_.raw_data();
    if (static_cast<int64_t>(raw.size()) != units) {
      return WrongNumber(static_cast<int64_t>(raw.size()), units, "bytes");
    }
    out_.inlined = IsPacked(out_.elem, field_) ? Unpacked(out_.elem, out_.elements, raw) : raw;
    return CheckBools(out_.elem, out_.inlined);
  }

  absl::Status InlineTyped(int64_t units) {
    if (field_ == TensorProto::kFloatDataFieldNumber) {
      out_.inlined.assign(reinterpret_cast<const char*>(proto_.float_data().data()), units * 4);
      return absl::OkStatus();
    }
    if (field_ == TensorProto::kDoubleDataFieldNumber) {
      out_.inlined.assign(reinterpret_cast<const char*>(proto_.double_data().data()), units * 8);
      return absl::OkStatus();
    }
    const bool packed = IsPacked(out_.elem, field_);
    const int bytes = packed ? 1 : DTypeBytes(CarrierOf(out_.elem));
    for (int64_t i = 0; i < units; ++i) {
      const int at = static_cast<int>(i);
      const uint64_t value =
          field_ == TensorProto::kInt32DataFieldNumber
              ? static_cast<uint64_t>(static_cast<int64_t>(proto_.int32_data(at)))
          : field_ == TensorProto::kInt64DataFieldNumber
              ? static_cast<uint64_t>(proto_.int64_data(at))
              : proto_.uint64_data(at);
      const std::optional<uint64_t> narrowed = Narrowed(out_.elem, field_, value);
      if (!narrowed) {
        return Invalid("value ", i, " of its ", places_, " is not a value of type ",
                       ElemName(out_.elem));
      }
      AppendLow(*narrowed, bytes, &out_.inlined);
    }
    if (packed) out_.inlined = Unpacked(out_.elem, out_.elements, out_.inlined);
    return absl::OkStatus();
  }

  absl::Status WrongNumber(int64_t stated, int64_t right, std::string_view what) const {
    std::string shape;
    for (const int64_t size : out_.shape) shape += Cat(shape.empty() ? "" : ", ", size);
    return Invalid("its data (", places_, ") has ", stated, " ", what, "; ", ElemName(out_.elem),
                   " [", shape, "] has ", right);
  }

  const TensorProto& proto_;
  const absl::Span<const PayloadRef> lifted_;
  const FileTable& files_;
  StoredTensor out_;
  std::string places_;  // for messages
  int count_ = 0;
  uint32_t field_ = 0;
};

}  // namespace

absl::StatusOr<StoredTensor> DescribeTensor(const TensorProto& tensor,
                                            absl::Span<const PayloadRef> lifted,
                                            const FileTable& files) {
  return Describer(tensor, lifted, files).Run();
}

}  // namespace athanor::onnx
