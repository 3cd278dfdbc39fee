#include <algorithm>
#include <array>
#include <deque>
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

bool IsRole(const std::string& name, const std::string& text) {
  return name == "role" && std::find(kRoles.begin(), kRoles.end(), text) != kRoles.end();
}

// Makes values as the JSON library reads them: its own objects search their names one by one. All
// events return false once the run has failed.
class Reader {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  Reader(Work* work, bool trusted) : work_(work), trusted_(trusted) {}

  const Value& root() const { return root_; }

  bool null() {
    Value value = Value::None();
    value.trusted = trusted_;
    return Add(value);
  }
  bool boolean(bool flag) { return Add(OfNumber(work_, flag, trusted_)); }
  bool number_integer(int64_t number) { return Add(OfNumber(work_, number, trusted_)); }
  bool number_unsigned(uint64_t number) { return Add(OfNumber(work_, number, trusted_)); }
  bool number_float(double number, const std::string&) {
    return Add(OfNumber(work_, number, trusted_));
  }
  bool string(std::string& text) {
    const bool role = !open_.empty() && open_.back().key.Is(Value::kString) &&
                      IsRole(open_.back().key.bytes(), text);
    return Add(OfText(work_, text, trusted_ || role));
  }
  bool binary(Json::binary_t&) { return false; }  // JSON's text has none
  bool start_object(size_t) { return Open(work_->NewDict()); }
  bool start_array(size_t) { return Open(Value()); }
  bool key(std::string& name) {
    open_.back().key = OfText(work_, name, trusted_);
    return !work_->failed();
  }
  bool end_object() {
    const Value dict = open_.back().dict;
    open_.pop_back();
    return Add(dict);
  }
  bool end_array() {
    const Value list = work_->List(std::move(open_.back().items));
    open_.pop_back();
    return Add(list);
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) { return false; }

 private:
  struct Container {
    explicit Container(Work* work) : in(work) {}
    Work::Depth in;
    Value dict;  // undefined: a list
    Value key;   // whose value comes next
    std::vector<Value> items;
  };

  bool Open(const Value& dict) {
    open_.emplace_back(work_).dict = dict;
    return open_.back().in && !work_->failed();
  }

  bool Add(const Value& value) {
    if (!work_->Step()) return false;
    if (open_.empty()) {
      root_ = value;
    } else if (open_.back().dict.Is(Value::kDict)) {
      work_->Put(open_.back().dict.dict, open_.back().key, value);
    } else {
      open_.back().items.push_back(value);
    }
    return !work_->failed();
  }

  Work* const work_;
  const bool trusted_;
  std::deque<Container> open_;
  Value root_;
};

}  // namespace

Value OfJsonText(Work* work, const std::string& text, bool trusted) {
  Reader reader(work, trusted);
  if (Json::sax_parse(text, &reader) && !work->failed()) return reader.root();
  return work->Wrong("from_json of a text that is no JSON");
}

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
        const bool role = item.is_string() && IsRole(name, item.get_ref<const std::string&>());
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
