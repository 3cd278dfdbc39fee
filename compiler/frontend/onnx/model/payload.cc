#include "compiler/frontend/onnx/model/payload.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "compiler/frontend/onnx/model/payload_internal.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::TensorProto;

// Reads the varints of a payload one after another.
class VarintReader {
 public:
  explicit VarintReader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return at_ == bytes_.size(); }
  std::optional<uint64_t> Next() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && at_ < bytes_.size(); shift += 7) {
      const uint8_t byte = static_cast<uint8_t>(bytes_[at_++]);
      if (shift == 63 && byte > 1) return std::nullopt;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

 private:
  const std::string_view bytes_;
  size_t at_ = 0;
};

// Handles payloads of int32_data, int64_data and uint64_data.
absl::Status ForEachVarintPiece(const StoredTensor& tensor, std::string_view payload, int64_t piece,
                                absl::FunctionRef<absl::Status(std::string_view)> take) {
  const uint32_t field = tensor.payload->field;
  const int64_t units = UnitsOf(tensor.elem, tensor.elements, field);
  const int width = IsPacked(tensor.elem, field) ? 1 : DTypeBytes(CarrierOf(tensor.elem));
  VarintReader reader(payload);
  std::string buffer;
  for (int64_t i = 0; i < units; ++i) {
    const std::optional<uint64_t> read = reader.Next();
    if (!read) {
      return Invalid("tensor ", Quoted(tensor.name), ": its ", PayloadFieldName(field), " has ", i,
                     " values that can be read; ", units, " are needed");
    }
    const std::optional<uint64_t> value = Narrowed(tensor.elem, field, *read);
    if (!value) {
      return Invalid("tensor ", Quoted(tensor.name), ": value ", i, " of its ",
                     PayloadFieldName(field), " is not a value of type ", ElemName(tensor.elem));
    }
    AppendLow(*value, width, &buffer);
    if (static_cast<int64_t>(buffer.size()) + width > piece || i + 1 == units) {
      RETURN_IF_ERROR(take(buffer));
      buffer.clear();
    }
  }
  if (reader.done()) return absl::OkStatus();
  return Invalid("tensor ", Quoted(tensor.name), ": its ", PayloadFieldName(field),
                 " has more than the ", units, " values of its shape");
}

}  // namespace

std::string PayloadFieldName(uint32_t number) {
  return std::string(
      TensorProto::descriptor()->FindFieldByNumber(static_cast<int>(number))->name());
}

bool IsPacked(Elem elem, uint32_t field) {
  return Row(elem).bits < 8 &&
         (field == TensorProto::kRawDataFieldNumber || 8 % Row(elem).bits == 0);
}

bool IsVarints(uint32_t field) {
  return field == TensorProto::kInt32DataFieldNumber ||
         field == TensorProto::kInt64DataFieldNumber ||
         field == TensorProto::kUint64DataFieldNumber;
}

int64_t PackedBytes(Elem elem, int64_t elements) { return (elements * Row(elem).bits + 7) / 8; }

int64_t UnitsOf(Elem elem, int64_t elements, uint32_t field) {
  if (IsPacked(elem, field)) return PackedBytes(elem, elements);
  return field == TensorProto::kRawDataFieldNumber ? elements * DTypeBytes(CarrierOf(elem))
                                                   : elements;
}

std::optional<uint64_t> Narrowed(Elem elem, uint32_t field, uint64_t value) {
  const DType dtype = CarrierOf(elem);
  if (field != TensorProto::kInt32DataFieldNumber) {
    if (dtype == DType::kU32 && value > UINT32_MAX) return std::nullopt;
    return value;
  }
  // A negative int32 is written in ten bytes; some writers use five.
  if (value > UINT32_MAX && value < 0xffffffff80000000u) return std::nullopt;
  const int64_t v = static_cast<int32_t>(static_cast<uint32_t>(value));
  int64_t low = 0, high = 0;
  if (IsPacked(elem, field)) {
    low = -128, high = 255;
  } else if (Row(elem).carry == Carry::kCode) {
    low = Row(elem).low, high = Row(elem).high;
  } else if (dtype == DType::kBool) {
    low = 0, high = 1;
  } else {
    const int bits = 8 * DTypeBytes(dtype);
    low = IsSigned(dtype) ? -(int64_t{1} << (bits - 1)) : 0;
    high = (int64_t{1} << (IsSigned(dtype) ? bits - 1 : bits)) - 1;
  }
  if (v < low || v > high) return std::nullopt;
  return static_cast<uint64_t>(v);
}

void AppendLow(uint64_t value, int bytes, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), bytes);
}

std::string Unpacked(Elem elem, int64_t elements, std::string_view packed) {
  const int bits = Row(elem).bits;
  const bool is_signed = Row(elem).low < 0;
  std::string out(elements, 0);
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t at = i * bits;
    uint32_t word = static_cast<uint8_t>(packed[at / 8]);
    if (at % 8 + bits > 8)
      word |= static_cast<uint32_t>(static_cast<uint8_t>(packed[at / 8 + 1])) << 8;
    uint32_t value = (word >> (at % 8)) & ((1u << bits) - 1);
    if (is_signed && (value >> (bits - 1)) != 0) value |= ~((1u << bits) - 1);
    out[i] = static_cast<char>(value);
  }
  return out;
}

absl::Status CheckBools(Elem elem, std::string_view bytes) {
  if (elem != Elem::kBool) return absl::OkStatus();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    if (byte > 1) {
      return Invalid("a bool has the value ", int{byte}, "; bools are 0 or 1");
    }
  }
  return absl::OkStatus();
}

int64_t StoredTensor::stored_bytes() const {
  return form == PayloadForm::kPacked ? PackedBytes(elem, elements)
                                      : elements * DTypeBytes(CarrierOf(elem));
}

absl::Status CheckOverlaps(absl::Span<const StoredTensor* const> tensors) {
  std::vector<const StoredTensor*> sorted;
  for (const StoredTensor* tensor : tensors) {
    if (tensor->payload && tensor->payload->bytes > 0) sorted.push_back(tensor);
  }
  const auto key = [](const StoredTensor* t) {
    return std::tie(t->payload->file, t->payload->offset, t->payload->bytes, t->name);
  };
  std::sort(sorted.begin(), sorted.end(),
            [&](const StoredTensor* a, const StoredTensor* b) { return key(a) < key(b); });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const PayloadRef& a = *sorted[i - 1]->payload;
    const PayloadRef& b = *sorted[i]->payload;
    if (a.file != b.file || (a.offset == b.offset && a.bytes == b.bytes)) continue;
    if (b.offset >= a.offset + a.bytes) continue;
    return Invalid("the external data of tensors ", Quoted(sorted[i - 1]->name), " (bytes ",
                   a.offset, " to ", a.offset + a.bytes, ") and ", Quoted(sorted[i]->name),
                   " (bytes ", b.offset, " to ", b.offset + b.bytes,
                   ") overlap; they may be one range or apart");
  }
  return absl::OkStatus();
}

absl::Status ForEachPiece(const StoredTensor& tensor, const PayloadReader& reader, int64_t piece,
                          absl::FunctionRef<absl::Status(std::string_view)> take) {
  std::string_view bytes = tensor.inlined;
  if (tensor.payload) {
    absl::StatusOr<std::string_view> read = reader.Bytes(*tensor.payload);
    if (!read.ok()) return Prefixed(Cat("tensor ", Quoted(tensor.name), ": "), read.status());
    bytes = *read;
    if (IsVarints(tensor.payload->field)) return ForEachVarintPiece(tensor, bytes, piece, take);
  }
  for (; !bytes.empty(); bytes.remove_prefix(std::min<size_t>(piece, bytes.size()))) {
    const std::string_view part = bytes.substr(0, piece);
    absl::Status s =
        Prefixed(Cat("tensor ", Quoted(tensor.name), ": "), CheckBools(tensor.elem, part));
    if (s.ok()) s = take(part);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ReadTensor(const StoredTensor& tensor, const PayloadReader& reader,
                                  int64_t max_bytes) {
  const int64_t bytes = tensor.elements * DTypeBytes(CarrierOf(tensor.elem));
  if (bytes > max_bytes) {
    return absl::ResourceExhaustedError(Cat("tensor ", Quoted(tensor.name), " has ", bytes,
                                            " bytes, too many for a value that is read at import"
                                            " (",
                                            max_bytes, ")"));
  }
  Tensor out{CarrierOf(tensor.elem), tensor.shape, {}};
  out.bytes.reserve(bytes);
  const absl::Status s = ForEachPiece(tensor, reader, 1 << 20, [&](std::string_view piece) {
    out.bytes += piece;
    return absl::OkStatus();
  });
  if (!s.ok()) return s;
  if (tensor.form == PayloadForm::kPacked) {
    out.bytes = Unpacked(tensor.elem, tensor.elements, out.bytes);
  }
  return out;
}

}  // namespace athanor::onnx
