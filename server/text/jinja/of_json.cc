#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/text/jinja/characters.h"
#include "server/text/jinja/evaluator.h"

namespace athanor::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<absl::string_view, 7> kRoles = {
    "assistant", "developer", "function", "ipython", "system", "tool", "user"};

Value OfText(Work* work, const std::string& text, bool trusted) {
  if (!IsUtf8(text)) return work->Wrong("a text of the chat is not UTF-8");
  return work->String(text, trusted);
}

Value OfNumber(Work* work, const Json& json, bool trusted) {
  Value value;
  if (json.is_boolean()) {
    value = Value::Bool(json.get<bool>());
  } else if (json.is_number_float()) {
    value = Value::Float(json.get<double>());
  } else if (json.is_number_unsigned() &&
             json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return work->Wrong(absl::StrCat("the chat has the integer ", json.get<uint64_t>(),
                                    ", of more than 64 bits with a sign"));
  } else {
    value = Value::Int(json.get<int64_t>());
  }
  value.trusted = trusted;
  return value;
}

}  // namespace

Value OfJson(Work* work, const Json& json, bool trusted) {
  const Work::Depth in(work);
  if (!in || !work->Step()) return {};
  switch (json.type()) {
    case Json::value_t::null: {
      Value value = Value::None();
      value.trusted = trusted;
      return value;
    }
    case Json::value_t::string:
      return OfText(work, json.get_ref<const std::string&>(), trusted);
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) {
        if (work->failed()) return {};
        items.push_back(OfJson(work, item, trusted));
      }
      return work->List(std::move(items));
    }
    case Json::value_t::object: {
      const Value dict = work->NewDict();
      for (const auto& [name, item] : json.items()) {
        const bool role = name == "role" && item.is_string() &&
                          std::find(kRoles.begin(), kRoles.end(),
                                    item.get_ref<const std::string&>()) != kRoles.end();
        const Value key = OfText(work, name, trusted);
        const Value value = OfJson(work, item, trusted || role);
        if (work->failed()) return {};
        work->Put(dict.dict, key, value);
      }
      return dict;
    }
    case Json::value_t::boolean:
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      return OfNumber(work, json, trusted);
    default:
      return work->Wrong("the chat has a value that JSON does not have");
  }
}

}  // namespace athanor::jinja
