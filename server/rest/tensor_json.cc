#include "server/rest/tensor_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Returns a value as errors show it.
std::string Shown(const Json& value) {
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  if (value.is_object()) return "an object";
  return value.dump();
}

template <typename T>
void Append(T value, std::string* raw) {
  raw->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

absl::Status ReadBool(const DatatypeRow&, const Json& value, int64_t index, std::string* raw) {
  const bool number = value == 0 || value == 1;
  if (!number && !value.is_boolean()) {
    return Invalid("element ", index, " is ", Shown(value), "; BOOL has true and false");
  }
  Append<uint8_t>(number ? value == 1 : value.get<bool>(), raw);
  return absl::OkStatus();
}

template <typename T>
absl::Status ReadInteger(const DatatypeRow& datatype, const Json& value, int64_t index,
                         std::string* raw) {
  constexpr T kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
  bool fits = value.is_number_integer();
  if (fits && value.is_number_unsigned()) {
    fits = value.get<uint64_t>() <= static_cast<uint64_t>(kHigh);
  } else if (fits) {
    const auto number = value.get<int64_t>();
    fits = std::is_signed_v<T> ? number >= static_cast<int64_t>(kLow) : number >= 0;
    fits = fits && (number < 0 || static_cast<uint64_t>(number) <= static_cast<uint64_t>(kHigh));
  }
  if (!fits) {
    return Invalid("element ", index, " is ", Shown(value), "; ", datatype.name,
                   " has integers from ", +kLow, " to ", +kHigh);
  }
  Append<T>(value.get<T>(), raw);
  return absl::OkStatus();
}

// Returns an infinity for what rounds to none of T; a cast would have no defined result.
template <typename T>
T NearestTo(double number) {
  constexpr double kBeyond = 0x1.ffffffp127;  // halfway from the largest float to the next one
  if (sizeof(T) == sizeof(float) && std::abs(number) >= kBeyond) {
    return std::copysign(std::numeric_limits<T>::infinity(), static_cast<T>(number > 0 ? 1 : -1));
  }
  constexpr double kMost = std::numeric_limits<T>::max();
  return static_cast<T>(std::clamp(number, -kMost, kMost));
}

template <typename T>
absl::Status ReadFloat(const DatatypeRow& datatype, const Json& value, int64_t index,
                       std::string* raw) {
  if (!value.is_number()) {
    return Invalid("element ", index, " is ", Shown(value), "; ", datatype.name, " has numbers");
  }
  const auto number = value.get<double>();
  // The shortest text of the largest float is beyond it, and rounds to it.
  if (!std::isfinite(NearestTo<T>(number))) {
    return Invalid("element ", index, " is ", Shown(value), ", which is beyond all of ",
                   datatype.name);
  }
  Append<T>(NearestTo<T>(number), raw);
  return absl::OkStatus();
}

template <typename T>
void WriteNumber(const char* at, std::string* text) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) {
      *text += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
      return;
    }
  }
  char buffer[32];
  text->append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr - buffer);
}

void WriteBool(const char* at, std::string* text) { *text += *at != 0 ? "true" : "false"; }

// How the elements of a dtype are read and written.
struct Row {
  DType dtype;
  absl::Status (*read)(const DatatypeRow&, const Json&, int64_t index, std::string* raw);
  void (*write)(const char* at, std::string* text);
  int64_t most_bytes;  // of an element's text, with its comma
};
constexpr Row kRows[] = {
    {DType::kBool, ReadBool, WriteBool, 6},
    {DType::kI8, ReadInteger<int8_t>, WriteNumber<int8_t>, 5},
    {DType::kI16, ReadInteger<int16_t>, WriteNumber<int16_t>, 7},
    {DType::kI32, ReadInteger<int32_t>, WriteNumber<int32_t>, 12},
    {DType::kI64, ReadInteger<int64_t>, WriteNumber<int64_t>, 21},
    {DType::kU8, ReadInteger<uint8_t>, WriteNumber<uint8_t>, 4},
    {DType::kU16, ReadInteger<uint16_t>, WriteNumber<uint16_t>, 6},
    {DType::kU32, ReadInteger<uint32_t>, WriteNumber<uint32_t>, 11},
    {DType::kU64, ReadInteger<uint64_t>, WriteNumber<uint64_t>, 21},
    {DType::kF32, ReadFloat<float>, WriteNumber<float>, 16},
    {DType::kF64, ReadFloat<double>, WriteNumber<double>, 25},
};

// Returns null if JSON cannot hold the dtype.
const Row* FindRow(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

absl::Status CountError(absl::string_view has, int64_t elements) {
  return Invalid("data has ", std::string(has), "; its shape has ", elements,
                 elements == 1 ? " element" : " elements");
}

}  // namespace

bool HasJsonForm(const DatatypeRow& datatype) { return FindRow(datatype.dtype) != nullptr; }

absl::Status ReadElements(const DatatypeRow& datatype, const Json& data, int64_t elements,
                          std::string* raw) {
  if (!data.is_array()) return Invalid("data is ", Shown(data), "; it has to be a list");
  const Row& row = *FindRow(datatype.dtype);
  struct Place {
    const Json* list;
    size_t next;
  };
  std::vector<Place> open = {{&data, 0}};
  int64_t index = 0;
  while (!open.empty()) {
    Place& place = open.back();
    if (place.next == place.list->size()) {
      open.pop_back();
      continue;
    }
    const Json& value = (*place.list)[place.next++];
    if (value.is_array()) {
      open.push_back({&value, 0});
      continue;
    }
    if (index == elements) return CountError("more elements", elements);
    RETURN_IF_ERROR(row.read(datatype, value, index++, raw));
  }
  if (index == elements) return absl::OkStatus();
  return CountError(Cat(index, index == 1 ? " element" : " elements"), elements);
}

int64_t MostElementBytes(const DatatypeRow& datatype, int64_t elements) {
  return 2 + elements * FindRow(datatype.dtype)->most_bytes;
}

void WriteElements(const DatatypeRow& datatype, std::string_view raw, std::string* text) {
  const Row& row = *FindRow(datatype.dtype);
  const auto step = static_cast<size_t>(DTypeBytes(datatype.dtype));
  text->push_back('[');
  for (size_t at = 0; at < raw.size(); at += step) {
    if (at > 0) text->push_back(',');
    row.write(raw.data() + at, text);
  }
  text->push_back(']');
}

}  // namespace athanor
