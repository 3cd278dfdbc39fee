#include "compiler/ir/graph/input_value.h"

#include <cstdint>

#include "compiler/ir/value/message.h"
#include "compiler/ir/value/text_values.h"

namespace athanor {
namespace {

constexpr int64_t kMaxShown = 8;  // number of elements

std::string Elements(const Tensor& tensor) {
  if (tensor.shape.empty()) return ElementText(tensor, 0);
  std::string text;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    text += Cat(i == 0 ? "" : ", ", ElementText(tensor, i));
  }
  return Cat("[", text, "]");
}

}  // namespace

const Tensor* ValueOf(const Node& input) {
  if (!IsInput(input.op)) return nullptr;
  const auto it = input.attrs.find(kInputValue);
  return it == input.attrs.end() ? nullptr : &std::get<Tensor>(it->second);
}

absl::Status CheckInputValue(const TensorType& type, const Attrs& attrs, const Bounds& bounds) {
  const auto it = attrs.find(kInputValue);
  if (it == attrs.end()) return absl::OkStatus();
  const Tensor& value = std::get<Tensor>(it->second);
  bool equal = value.dtype == type.dtype && value.shape.size() == type.shape.size();
  for (size_t i = 0; equal && i < type.shape.size(); ++i) {
    equal = bounds.ProvablyEqual(type.shape[i], value.shape[i]);
  }
  if (equal) return absl::OkStatus();
  const TensorType own{value.dtype, Shape(value.shape.begin(), value.shape.end())};
  return Invalid("attribute ", kInputValue, " is of type ", TypeToString(own),
                 ", the input of type ", TypeToString(type), "; they must be equal");
}

std::optional<ValueDifference> DifferenceFrom(const Tensor& value, std::string_view bytes) {
  if (value.bytes == bytes) return std::nullopt;
  const Tensor got{value.dtype, value.shape, std::string(bytes)};
  if (value.elements() <= kMaxShown) return ValueDifference{"", Elements(got), Elements(value)};
  const auto width = static_cast<size_t>(DTypeBytes(value.dtype));
  size_t at = 0;
  while (bytes[at] == value.bytes[at]) ++at;
  const auto element = static_cast<int64_t>(at / width);
  return ValueDifference{Cat("element ", element), ElementText(got, element),
                         ElementText(value, element)};
}

}  // namespace athanor
