#include "compiler/frontend/checkpoint/files/keys.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::checkpoint {
namespace {

using nlohmann::json;

constexpr size_t kShownBytes = 60;
constexpr size_t kMostBytes = 16 << 20;
constexpr int kDeepest = 32;
constexpr size_t kMostKeyBytes = 1024;         // of a key with the objects that it is in
constexpr size_t kMostBytesOfKeys = 64 << 20;  // of all of them

absl::StatusOr<json> Parse(std::string_view text) {
  if (text.size() > kMostBytes) {
    return Invalid("it has ", text.size(), " bytes; at most ", kMostBytes, " are read");
  }
  absl::Status wrong;
  std::vector<std::set<std::string>> seen;  // keys of the objects that are open
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepest) {
      if (wrong.ok()) wrong = Invalid("it is nested deeper than ", kDeepest);
      return false;
    }
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end && !seen.empty()) seen.pop_back();
    if (event == json::parse_event_t::key && !seen.empty() &&
        !seen.back().insert(parsed.get_ref<const std::string&>()).second && wrong.ok()) {
      wrong = Invalid("key ", Quoted(parsed.get_ref<const std::string&>()), " is there twice");
    }
    return true;
  };
  json parsed = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  RETURN_IF_ERROR(wrong);
  return parsed;
}

template <typename T>
std::vector<T> ListOf(const json& list) {
  std::vector<T> values;
  for (const json& item : list) values.push_back(item.get<T>());
  return values;
}

bool FitsInt64(const json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
}

template <typename Predicate>
bool All(const json& list, Predicate is) {
  for (const json& item : list) {
    if (!is(item)) return false;
  }
  return true;
}

GgufValue ValueOf(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (FitsInt64(value)) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (All(value, FitsInt64)) return ListOf<int64_t>(value);
  if (All(value, [](const json& item) { return item.is_boolean(); })) return ListOf<bool>(value);
  if (All(value, [](const json& item) { return item.is_number(); })) return ListOf<double>(value);
  if (All(value, [](const json& item) { return item.is_string(); })) {
    return ListOf<std::string>(value);
  }
  return value.dump();
}

// `bytes` counts those of all keys: an object's own are in each of its members' keys.
absl::Status AddKeys(const json& object, const std::string& prefix, size_t* bytes, Keys* keys) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    const std::string key = Cat(prefix, name);
    *bytes += key.size();
    if (key.size() > kMostKeyBytes) {
      return Invalid("key ", Quoted(Cat(key.substr(0, kShownBytes), "...")), " has ", key.size(),
                     " bytes, with the objects that it is in; at most ", kMostKeyBytes,
                     " are read");
    }
    if (*bytes > kMostBytesOfKeys) {
      return Invalid("its keys, each with the objects that it is in, have more than ",
                     kMostBytesOfKeys, " bytes");
    }
    if (value.is_object()) {
      RETURN_IF_ERROR(AddKeys(value, Cat(key, "."), bytes, keys));
    } else if (!keys->emplace(key, ValueOf(value)).second) {
      return Invalid("key ", Quoted(key), " is there twice, once inside an object");
    }
  }
  return absl::OkStatus();
}

std::string TextOfOne(bool value) { return value ? "true" : "false"; }
std::string TextOfOne(int64_t value) { return Cat(value); }
std::string TextOfOne(double value) { return Cat(value); }
std::string TextOfOne(const std::string& value) { return value; }

template <typename T>
std::string TextOfOne(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) {
    if (text.size() > 1) text += ", ";
    text += TextOfOne(value);
  }
  return text + "]";
}

}  // namespace

absl::StatusOr<Keys> KeysOfJson(std::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json object, Parse(json));
  if (!object.is_object()) return Invalid("it is no JSON object");
  Keys keys;
  size_t bytes = 0;
  RETURN_IF_ERROR(AddKeys(object, "", &bytes, &keys));
  return keys;
}

absl::StatusOr<std::vector<Keys>> KeysOfJsonList(std::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json list, Parse(json));
  if (!list.is_array() || !All(list, [](const auto& item) { return item.is_object(); })) {
    return Invalid("it is no JSON list of objects");
  }
  std::vector<Keys> all;
  size_t bytes = 0;
  for (const nlohmann::json& object : list) {
    RETURN_IF_ERROR(AddKeys(object, "", &bytes, &all.emplace_back()));
  }
  return all;
}

std::string TextOf(const GgufValue& value) {
  return std::visit([](const auto& held) { return TextOfOne(held); }, value);
}

}  // namespace athanor::checkpoint
