#include "server/text/jinja/builtins.h"

#include <time.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/text/jinja/characters.h"
#include "server/text/jinja/operators.h"
#include "server/text/jinja/print.h"

namespace athanor::jinja {
namespace {

constexpr int64_t kLongestRange = 100'000;  // jinja2's sandbox
constexpr size_t kLongestTimeFormat = 256;

using Arg = std::optional<Value>;

Value Second(Caller* caller, const Arguments& arguments, absl::string_view test) {
  const std::vector<Arg> bound = arguments.Bind(caller->work, test, 1, {""});
  return bound[0].value_or(Value());
}

template <char kOp>
bool ComparesTo(Caller* caller, const Value& input, const Arguments& arguments) {
  static constexpr absl::string_view kOps = kOp == '='   ? "=="
                                            : kOp == '!' ? "!="
                                            : kOp == '<' ? "<"
                                            : kOp == '>' ? ">"
                                            : kOp == 'l' ? "<="
                                            : kOp == 'g' ? ">="
                                                         : "in";
  const Value other = Second(caller, arguments, kOps);
  return !caller->work->failed() && Compare(caller->work, kOps, input, other);
}

template <bool (*kHolds)(const Value&)>
bool Plain(Caller* caller, const Value& input, const Arguments& arguments) {
  arguments.Bind(caller->work, "a test", 0, {});
  return kHolds(input);
}

template <bool (*kFits)(char32_t)>
bool AllCased(Caller* caller, const Value& input, const Arguments&) {
  const Value text = Str(caller->work, input);
  if (caller->work->failed() || !caller->work->StepBytes(text.text->size())) return false;
  bool any = false;
  for (size_t at = 0; at < text.bytes().size();) {
    const char32_t c = Next(text.bytes(), &at);
    if (kFits(c)) any = true;
    if (!kFits(c) && (IsUpper(c) || IsLower(c))) return false;
  }
  return any;
}

Value Remainder(Caller* caller, const Value& input, const Value& by) {
  return caller->work->failed() ? Value() : Binary(caller->work, "%", input, by);
}

bool IsEven(Caller* caller, const Value& input, const Arguments&) {
  return Equal(caller->work, Remainder(caller, input, Value::Int(2)), Value::Int(0));
}

bool IsOdd(Caller* caller, const Value& input, const Arguments&) {
  return Equal(caller->work, Remainder(caller, input, Value::Int(2)), Value::Int(1));
}

bool IsDivisible(Caller* caller, const Value& input, const Arguments& arguments) {
  const Value by = Second(caller, arguments, "divisibleby");
  return Equal(caller->work, Remainder(caller, input, by), Value::Int(0));
}

bool IsSame(Caller* caller, const Value& input, const Arguments& arguments) {
  const Value other = Second(caller, arguments, "sameas");
  if (input.kind != other.kind) return false;
  switch (input.kind) {
    case Value::kNone:
      return true;
    case Value::kBool:
      return input.flag == other.flag;
    case Value::kDict:
      return input.dict == other.dict;
    case Value::kSequence:
      return input.sequence == other.sequence;
    default:
      caller->work->Lacks(absl::StrCat("\"sameas\" of a ", TypeName(input)));
      return false;
  }
}

template <Value::Kind kKind>
bool IsKind(const Value& value) {
  return value.Is(kKind);
}
bool IsDefined(const Value& value) { return !value.Is(Value::kUndefined); }
bool IsTrue(const Value& value) { return value.Is(Value::kBool) && value.flag; }
bool IsFalse(const Value& value) { return value.Is(Value::kBool) && !value.flag; }
bool IsNumberValue(const Value& value) { return value.IsNumber(); }
bool IsCallableValue(const Value& value) {
  return value.Is(Value::kCallable) || value.Is(Value::kUndefined);
}
bool IsIterable(const Value& value) {
  return value.Is(Value::kUndefined) || value.Is(Value::kString) || value.Is(Value::kSequence) ||
         value.Is(Value::kDict) || value.Is(Value::kLoop);
}
bool IsSequenceValue(const Value& value) {
  if (value.Is(Value::kSequence)) return value.sequence->form <= Sequence::kRange;
  return IsIterable(value) && !value.Is(Value::kLoop);
}

constexpr TestRow kTests[] = {
    {"!=", ComparesTo<'!'>},
    {"<", ComparesTo<'<'>},
    {"<=", ComparesTo<'l'>},
    {"==", ComparesTo<'='>},
    {">", ComparesTo<'>'>},
    {">=", ComparesTo<'g'>},
    {"boolean", Plain<IsKind<Value::kBool>>},
    {"callable", Plain<IsCallableValue>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", IsDivisible},
    {"eq", ComparesTo<'='>},
    {"equalto", ComparesTo<'='>},
    {"even", IsEven},
    {"false", Plain<IsFalse>},
    {"float", Plain<IsKind<Value::kFloat>>},
    {"ge", ComparesTo<'g'>},
    {"greaterthan", ComparesTo<'>'>},
    {"gt", ComparesTo<'>'>},
    {"in", ComparesTo<'i'>},
    {"integer", Plain<IsKind<Value::kInt>>},
    {"iterable", Plain<IsIterable>},
    {"le", ComparesTo<'l'>},
    {"lessthan", ComparesTo<'<'>},
    {"lower", AllCased<IsLower>},
    {"lt", ComparesTo<'<'>},
    {"mapping", Plain<IsKind<Value::kDict>>},
    {"ne", ComparesTo<'!'>},
    {"none", Plain<IsKind<Value::kNone>>},
    {"number", Plain<IsNumberValue>},
    {"odd", IsOdd},
    {"sameas", IsSame},
    {"sequence", Plain<IsSequenceValue>},
    {"string", Plain<IsKind<Value::kString>>},
    {"true", Plain<IsTrue>},
    {"undefined", Plain<IsKind<Value::kUndefined>>},
    {"upper", AllCased<IsUpper>},
};

Value MakeRange(Work* work, const Arguments& arguments) {
  const std::vector<Arg> bound = arguments.Bind(work, "range", 1, {"", "", ""});
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!bound[i].has_value()) continue;
    if (!bound[i]->IsInteger())
      return work->Wrong(absl::StrCat("range of a ", TypeName(*bound[i])));
    parts[i] = bound[i]->AsInt();
  }
  if (!bound[1].has_value()) std::swap(parts[0], parts[1]);
  const auto [first, last, by] = parts;
  if (by == 0) return work->Wrong("range by steps of 0");
  std::vector<Value> items;
  for (int64_t at = first; by > 0 ? at < last : at > last;) {
    items.push_back(Value::Int(at));
    if (static_cast<int64_t>(items.size()) > kLongestRange) {
      return work->Wrong(absl::StrCat("a range of more than ", kLongestRange));
    }
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  return work->Make(Sequence::kRange, std::move(items));
}

Value MakeDict(Work* work, const Arguments& arguments, Value::Kind kind) {
  const Value dict = work->NewDict(kind);
  if (arguments.values.size() > 1) return work->Wrong("dict() takes at most one argument");
  for (const Value& from : arguments.values) {
    if (!from.Is(Value::kDict)) return work->Lacks(absl::StrCat("a dict of a ", TypeName(from)));
    if (work->failed()) return {};
    for (const auto& [key, value] : from.dict->rows) work->Put(dict.dict, key, value);
  }
  for (const auto& [name, value] : arguments.named) {
    const Value key = work->String(std::string(name), true);
    if (work->failed()) return {};
    work->Put(dict.dict, key, value);
  }
  return dict;
}

// As datetime's: no time zone is known, so %Z and %z are empty.
Value TimeNow(Caller* caller, const Value& format) {
  Work* const work = caller->work;
  if (!format.Is(Value::kString)) return work->Wrong("strftime_now() wants a string");
  if (format.text->size() > kLongestTimeFormat)
    return work->Lacks("a time's format of this length");
  const std::string wanted =
      absl::StrReplaceAll(format.bytes(), {{"%%", "%%"}, {"%Z", ""}, {"%z", ""}, {"%f", "000000"}});
  const absl::CivilSecond& now = caller->now;
  tm time = {};
  time.tm_year = static_cast<int>(now.year() - 1900);
  time.tm_mon = now.month() - 1;
  time.tm_mday = now.day();
  time.tm_hour = now.hour();
  time.tm_min = now.minute();
  time.tm_sec = now.second();
  time.tm_wday = (static_cast<int>(absl::GetWeekday(now)) + 1) % 7;
  time.tm_yday = absl::GetYearDay(now) - 1;
  time.tm_isdst = -1;
  char text[4096];
  const size_t length = strftime(text, sizeof(text), wanted.c_str(), &time);
  if (length == 0 && !wanted.empty()) return work->Lacks("a time of this format");
  return work->String(std::string(text, length), format.text->trusted());
}

Value Raise(Work* work, const Value& message) {
  Marked text;
  AppendStr(work, message, &text);
  size_t end = std::min<size_t>(text.size(), 2000);
  while (end > 0 && end < text.size() && (text.bytes()[end] & 0xC0) == 0x80) --end;
  return work->Wrong(absl::StrCat("raises an exception: ", text.bytes().substr(0, end)));
}

}  // namespace

std::vector<Arg> Arguments::Bind(Work* work, absl::string_view callee, size_t required,
                                 std::initializer_list<absl::string_view> parameters) const {
  std::vector<Arg> bound(parameters.size());
  if (values.size() > parameters.size()) {
    work->Wrong(absl::StrCat(callee, " takes at most ", parameters.size(), " arguments, not ",
                             values.size()));
    return bound;
  }
  std::copy(values.begin(), values.end(), bound.begin());
  for (const auto& [name, value] : named) {
    const auto* place = std::find(parameters.begin(), parameters.end(), name);
    const auto index = static_cast<size_t>(place - parameters.begin());
    if (place == parameters.end() || bound[index].has_value()) {
      work->Wrong(absl::StrCat(callee, " takes no argument \"", name, "\" here"));
      return bound;
    }
    bound[index] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i].has_value()) continue;
    work->Wrong(absl::StrCat(callee, " wants ", required, " arguments"));
    bound[i] = Value();
  }
  return bound;
}

const FilterRow* FindFilter(absl::string_view name) {
  for (const absl::Span<const FilterRow> rows : {TextFilters(), ListFilters()}) {
    for (const FilterRow& row : rows) {
      if (row.name == name) return &row;
    }
  }
  return nullptr;
}

const TestRow* FindTest(absl::string_view name) {
  for (const TestRow& row : kTests) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string LackedInside(const Expression& filter) {
  const bool by_filter = filter.name == "map";
  const bool by_test = filter.name == "select" || filter.name == "reject";
  const bool by_attribute = filter.name == "selectattr" || filter.name == "rejectattr";
  const size_t place = by_attribute ? 2 : 1;
  if ((!by_filter && !by_test && !by_attribute) || filter.args.size() <= place) return "";
  const Expression& name = *filter.args[place];
  if (name.kind != Expression::kConstant || !name.value.Is(Value::kString)) return "";
  const std::string& text = name.text.bytes();
  const bool known = by_filter ? FindFilter(text) != nullptr : FindTest(text) != nullptr;
  return known ? "" : absl::StrCat("the ", by_filter ? "filter" : "test", " \"", text, "\"");
}

bool IsFunction(absl::string_view name) {
  return name == "range" || name == "dict" || name == "namespace" || name == "raise_exception" ||
         name == "strftime_now";
}

Value CallFunction(Caller* caller, absl::string_view name, const Arguments& arguments) {
  Work* const work = caller->work;
  if (name == "range") return MakeRange(work, arguments);
  if (name == "dict") return MakeDict(work, arguments, Value::kDict);
  if (name == "namespace") return MakeDict(work, arguments, Value::kNamespace);
  const bool raises = name == "raise_exception";
  const std::vector<Arg> bound = arguments.Bind(work, name, 1, {raises ? "message" : "format"});
  if (work->failed()) return {};
  return raises ? Raise(work, *bound[0]) : TimeNow(caller, *bound[0]);
}

Value AttributePath(Work* work, const Value& value, const Value& attribute) {
  if (attribute.Is(Value::kNone)) return value;
  if (attribute.IsInteger()) return Item(work, value, attribute);
  if (!attribute.Is(Value::kString)) {
    return work->Wrong(absl::StrCat("an attribute's name is a ", TypeName(attribute)));
  }
  if (attribute.bytes().find(',') != std::string::npos) return work->Lacks("several attributes");
  Value at = value;
  const std::string& path = attribute.bytes();
  for (size_t begin = 0; begin <= path.size() && !work->failed();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    const Value index = number ? Value::Int(std::stoll(part)) : work->String(part, true);
    if (!work->failed()) at = Item(work, at, index);
    begin = end + 1;
  }
  return at;
}

}  // namespace athanor::jinja
