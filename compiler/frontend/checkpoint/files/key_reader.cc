#include "compiler/frontend/checkpoint/files/key_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "compiler/ir/value/message.h"

namespace athanor::checkpoint {
namespace {

std::string Range(std::string_view what, const auto& least, const auto& most) {
  return Cat(what, " from ", least, " to ", most);
}

}  // namespace

bool KeyReader::HasBelow(std::string_view prefix) const {
  const auto it = keys_.lower_bound(prefix);
  return it != keys_.end() && it->first.starts_with(prefix);
}

const GgufValue* KeyReader::Take(std::string_view key) {
  const auto it = keys_.find(key);
  if (it == keys_.end()) return nullptr;
  read_.emplace(key);
  return &it->second;
}

void KeyReader::Refuse(absl::StatusCode code, std::string_view key, std::string reason) {
  ImportRefusal refusal;
  refusal.code = code;
  refusal.node = key;
  refusal.reason = std::move(reason);
  AddRefusal(std::move(refusal), &refusals_);
}

void KeyReader::RefuseType(std::string_view key, std::string_view right) {
  const auto it = keys_.find(key);
  if (it == keys_.end()) {
    return Refuse(absl::StatusCode::kInvalidArgument, key, Cat("is missing; it must be ", right));
  }
  constexpr size_t kShown = 60;
  std::string text = TextOf(it->second);
  if (text.size() > kShown) text = Cat(text.substr(0, kShown), "...");
  Refuse(absl::StatusCode::kInvalidArgument, key, Cat("is ", Quoted(text), "; it must be ", right));
}

int64_t KeyReader::Integer(std::string_view key, int64_t least, int64_t most,
                           std::optional<int64_t> otherwise) {
  const GgufValue* value = Take(key);
  if (value == nullptr && otherwise) return *otherwise;
  const int64_t* held = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  if (held != nullptr && *held >= least && *held <= most) return *held;
  RefuseType(key, Range("an integer", least, most));
  return otherwise.value_or(least);
}

double KeyReader::Number(std::string_view key, double least, double most,
                         std::optional<double> otherwise) {
  const GgufValue* value = Take(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value != nullptr) {
    double number = std::nan("");
    if (const auto* held = std::get_if<double>(value)) number = *held;
    if (const auto* held = std::get_if<int64_t>(value)) number = static_cast<double>(*held);
    if (number >= least && number <= most) return number;
  }
  RefuseType(key, Range("a number", least, most));
  return otherwise.value_or(least);
}

bool KeyReader::Flag(std::string_view key, bool otherwise) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return otherwise;
  if (const bool* held = std::get_if<bool>(value)) return *held;
  RefuseType(key, "true or false");
  return otherwise;
}

std::string KeyReader::Text(std::string_view key, std::string_view otherwise) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return std::string(otherwise);
  if (const auto* held = std::get_if<std::string>(value)) return *held;
  RefuseType(key, "a text");
  return std::string(otherwise);
}

std::vector<std::string> KeyReader::Texts(std::string_view key) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return {};
  if (const auto* held = std::get_if<std::vector<std::string>>(value)) return *held;
  RefuseType(key, "a list of texts");
  return {};
}

std::string KeyReader::Listed(std::string_view key) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return "";
  if (const auto* held = std::get_if<std::string>(value)) return *held;
  const auto* list = std::get_if<std::vector<std::string>>(value);
  if (list != nullptr && list->size() == 1) return list->front();
  RefuseType(key, "a text, or a list of one");
  return "";
}

std::vector<int64_t> KeyReader::Integers(std::string_view key, int64_t least, int64_t most) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return {};
  std::vector<int64_t> found;
  bool right = false;
  if (const auto* one = std::get_if<int64_t>(value)) {
    found = {*one};
    right = true;
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(value)) {
    found = *list;
    right = true;
  }
  right = right && std::all_of(found.begin(), found.end(),
                               [&](int64_t x) { return x >= least && x <= most; });
  if (right) return found;
  RefuseType(key, Cat("an integer or a list of integers", " from ", least, " to ", most));
  return {};
}

}  // namespace athanor::checkpoint
