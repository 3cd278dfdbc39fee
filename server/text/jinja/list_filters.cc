// Filters of lists, dicts and numbers.
#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "server/text/jinja/builtins.h"
#include "server/text/jinja/characters.h"
#include "server/text/jinja/operators.h"
#include "server/text/jinja/print.h"

namespace athanor::jinja {
namespace {

using Arg = std::optional<Value>;

Value Generator(Work* work, std::vector<Value> items) {
  return work->Make(Sequence::kGenerator, std::move(items));
}

// Returns what `value` sorts by: an attribute, and text in lower case unless `cased`.
Value SortKey(Work* work, const Value& value, const Value& attribute, bool cased) {
  const Value key = AttributePath(work, value, attribute);
  return cased || !key.Is(Value::kString) ? key : Cased(work, key, "lower");
}

Value Abs(Caller* caller, const Value& input, const Arguments& arguments) {
  arguments.Bind(caller->work, "abs", 0, {});
  if (!input.IsNumber() || (input.IsInteger() && input.AsInt() < 0)) {
    return Negate(caller->work, input);
  }
  Value value =
      input.Is(Value::kFloat) ? Value::Float(std::fabs(input.real)) : Value::Int(input.AsInt());
  value.trusted = input.trusted;
  return value;
}

Value Batch(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "batch", 1, {"linecount", "fill_with"});
  std::vector<Value> rows, row;
  if (work->failed() || !bound[0]->IsInteger()) return work->Wrong("batch wants a number");
  const int64_t count = bound[0]->AsInt();
  for (const Value& item : Elements(work, input)) {
    if (static_cast<int64_t>(row.size()) == count) {
      rows.push_back(work->List(std::exchange(row, {})));
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (bound[1].has_value() && !bound[1]->Is(Value::kNone)) {
      const int64_t missing = std::max<int64_t>(0, count - static_cast<int64_t>(row.size()));
      int64_t bytes = 0;
      if (__builtin_mul_overflow(missing, int64_t{sizeof(Value)}, &bytes)) bytes = missing;
      if (!work->Charge(bytes)) return {};
      row.resize(row.size() + static_cast<size_t>(missing), *bound[1]);
    }
    rows.push_back(work->List(std::move(row)));
  }
  return Generator(work, std::move(rows));
}

Value Default(Caller* caller, const Value& input, const Arguments& arguments) {
  static const Marked kEmpty;
  const std::vector<Arg> bound =
      arguments.Bind(caller->work, "default", 0, {"default_value", "boolean"});
  const bool falsy = Truth(bound[1].value_or(Value())) && !Truth(input);
  return input.Is(Value::kUndefined) || falsy ? bound[0].value_or(Value::Text(&kEmpty)) : input;
}

std::vector<Value> Sorted(Work* work, const std::vector<Value>& keys,
                          const std::vector<Value>& values, bool reverse) {
  if (!work->Charge(static_cast<int64_t>(2 * keys.size() * sizeof(Value)))) return {};
  std::vector<Value> items;
  for (const size_t place : SortedPlaces(work, keys, reverse)) items.push_back(values[place]);
  return items;
}

Value DictSort(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound =
      arguments.Bind(work, "dictsort", 0, {"case_sensitive", "by", "reverse"});
  const Value by = bound[1].value_or(Value());
  const bool by_value = by.Is(Value::kString) && by.bytes() == "value";
  if (bound[1].has_value() && !by_value && !(by.Is(Value::kString) && by.bytes() == "key")) {
    return work->Wrong("dictsort is by \"key\" or by \"value\"");
  }
  if (!input.Is(Value::kDict)) return work->Wrong(absl::StrCat("dictsort of a ", TypeName(input)));
  std::vector<Value> keys, rows;
  for (const auto& [key, value] : input.dict->rows) {
    keys.push_back(
        SortKey(work, by_value ? value : key, Value::None(), Truth(bound[0].value_or(Value()))));
    rows.push_back(work->Tuple({key, value}));
  }
  if (work->failed()) return {};
  return work->List(Sorted(work, keys, rows, Truth(bound[2].value_or(Value()))));
}

Value First(Caller* caller, const Value& input, const Arguments& arguments) {
  arguments.Bind(caller->work, "first", 0, {});
  if (input.Is(Value::kString)) return Item(caller->work, input, Value::Int(0));
  const std::vector<Value> items = Elements(caller->work, input);
  return items.empty() ? Value() : items.front();
}

Value Last(Caller* caller, const Value& input, const Arguments& arguments) {
  arguments.Bind(caller->work, "last", 0, {});
  if (input.Is(Value::kString)) return Item(caller->work, input, Value::Int(-1));
  if (input.Is(Value::kSequence) && input.sequence->form == Sequence::kGenerator) {
    return caller->work->Wrong("a generator has no last element; |list makes a list of it");
  }
  const std::vector<Value> items = Elements(caller->work, input);
  return items.empty() ? Value() : items.back();
}

std::string Digits(const Value& text) {
  const Range range = Strip(text.bytes(), true, true);
  return text.bytes().substr(range.begin, range.end - range.begin);
}

// Python's float() of text: false if it is none.
bool ParseFloat(const Value& text, double* real) {
  const std::string digits = absl::StrReplaceAll(Digits(text), {{"_", ""}});
  return !digits.empty() && digits.find_first_of("xXpP(") == std::string::npos &&
         absl::SimpleAtod(digits, real);
}

Value ToFloat(Caller* caller, const Value& input, const Arguments& arguments) {
  const std::vector<Arg> bound = arguments.Bind(caller->work, "float", 0, {"default"});
  Value value = Value::Float(0);
  double real = 0;
  if (input.IsNumber()) {
    value = Value::Float(input.AsDouble());
    value.trusted = input.trusted;
  } else if (input.Is(Value::kUndefined)) {
    return FailUndefined(caller->work, input);
  } else if (input.Is(Value::kString) && ParseFloat(input, &real)) {
    value = Value::Float(real);
    value.trusted = input.text->trusted();
  } else {
    value = bound[0].value_or(value);
  }
  return value;
}

Value OfReal(Work* work, double real, const Value& otherwise) {
  if (!std::isfinite(real)) return otherwise;
  if (std::fabs(real) >= 9.2e18) return work->Lacks("an integer of more than 64 bits");
  return Value::Int(static_cast<int64_t>(real));
}

Value ToInt(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "int", 0, {"default", "base"});
  if (bound[1].has_value() && !(bound[1]->IsInteger() && bound[1]->AsInt() == 10)) {
    return work->Lacks("another base than 10 of the filter \"int\"");
  }
  const Value otherwise = bound[0].value_or(Value::Int(0));
  Value value = otherwise;
  if (input.IsInteger()) {
    value = Value::Int(input.AsInt());
  } else if (input.Is(Value::kFloat)) {
    value = OfReal(work, input.real, otherwise);
  } else if (input.Is(Value::kUndefined)) {
    return FailUndefined(work, input);
  } else if (input.Is(Value::kString)) {
    double real = 0;
    int64_t integer = 0;
    const std::string digits = absl::StrReplaceAll(Digits(input), {{"_", ""}});
    if (absl::SimpleAtoi(digits, &integer)) {
      value = Value::Int(integer);
    } else if (ParseFloat(input, &real)) {
      value = OfReal(work, real, otherwise);
    }
    value.trusted = value.trusted && input.text->trusted();
    return value;
  }
  value.trusted = value.trusted && input.trusted;
  return value;
}

Value Items(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  arguments.Bind(work, "items", 0, {});
  std::vector<Value> items;
  if (input.Is(Value::kDict)) {
    for (const auto& [key, value] : input.dict->rows) items.push_back(work->Tuple({key, value}));
  } else if (!input.Is(Value::kUndefined)) {
    return work->Wrong(absl::StrCat("items of a ", TypeName(input)));
  }
  return Generator(work, std::move(items));
}

Value Join(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "join", 0, {"d", "attribute"});
  static const Marked kEmpty;
  const Value by = Str(work, bound[0].value_or(Value::Text(&kEmpty)));
  Marked out;
  bool first = true;
  for (const Value& item : Elements(work, input)) {
    if (work->failed()) return {};
    if (!first) AppendStr(work, by, &out);
    first = false;
    AppendStr(work, AttributePath(work, item, bound[1].value_or(Value::None())), &out);
  }
  return work->String(std::move(out));
}

Value LengthOf(Caller* caller, const Value& input, const Arguments& arguments) {
  arguments.Bind(caller->work, "length", 0, {});
  const std::optional<int64_t> length = Length(input);
  if (input.Is(Value::kString)) caller->work->StepBytes(input.text->size());
  if (length.has_value()) return Value::Int(*length);
  return caller->work->Wrong(absl::StrCat("a ", TypeName(input), " has no length"));
}

Value ToList(Caller* caller, const Value& input, const Arguments& arguments) {
  arguments.Bind(caller->work, "list", 0, {});
  return caller->work->List(Elements(caller->work, input));
}

// The arguments behind the first `count`.
Arguments Behind(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.values.assign(arguments.values.begin() + static_cast<int64_t>(count),
                     arguments.values.end());
  rest.named = arguments.named;
  return rest;
}

Value Map(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  std::vector<Value> items;
  if (!Truth(input)) return Generator(work, {});
  if (arguments.values.empty()) {
    const std::vector<Arg> bound = arguments.Bind(work, "map", 0, {"attribute", "default"});
    if (!bound[0].has_value()) return work->Wrong("map wants a filter or an attribute");
    for (const Value& item : Elements(work, input)) {
      if (work->failed()) return {};
      const Value part = AttributePath(work, item, *bound[0]);
      const bool defaults =
          part.Is(Value::kUndefined) && bound[1].has_value() && !bound[1]->Is(Value::kNone);
      items.push_back(defaults ? *bound[1] : part);
    }
    return Generator(work, std::move(items));
  }
  const Value& name = arguments.values[0];
  const FilterRow* const row = name.Is(Value::kString) ? FindFilter(name.bytes()) : nullptr;
  if (row == nullptr) return work->Lacks("the filter that map names");
  const Work::Depth in(work);  // map may name map
  if (!in) return {};
  const Arguments rest = Behind(arguments, 1);
  for (const Value& item : Elements(work, input)) {
    if (work->failed()) return {};
    items.push_back(row->apply(caller, item, rest));
  }
  return Generator(work, std::move(items));
}

// select, reject, and of an attribute: selectattr, rejectattr.
template <bool kKeeps, bool kOfAttribute>
Value Choose(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  constexpr size_t kName = kOfAttribute ? 1 : 0;
  if (!Truth(input)) return Generator(work, {});
  if (arguments.values.size() < kName) return work->Wrong("a filter wants an attribute's name");
  const TestRow* row = nullptr;
  Arguments rest;
  if (arguments.values.size() > kName) {
    const Value& name = arguments.values[kName];
    row = name.Is(Value::kString) ? FindTest(name.bytes()) : nullptr;
    if (row == nullptr) return work->Lacks("the test that a filter names");
    rest = Behind(arguments, kName + 1);
  }
  std::vector<Value> chosen;
  for (const Value& item : Elements(work, input)) {
    if (work->failed()) return {};
    const Value part = kOfAttribute ? AttributePath(work, item, arguments.values[0]) : item;
    if (work->failed()) return {};
    if ((row == nullptr ? Truth(part) : row->holds(caller, part, rest)) == kKeeps) {
      chosen.push_back(item);
    }
  }
  return Generator(work, std::move(chosen));
}

template <int kSign>
Value Extreme(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound =
      arguments.Bind(work, kSign < 0 ? "min" : "max", 0, {"case_sensitive", "attribute"});
  Value best, best_key;
  bool any = false;
  for (const Value& item : Elements(work, input)) {
    const Value key =
        SortKey(work, item, bound[1].value_or(Value::None()), Truth(bound[0].value_or(Value())));
    if (work->failed()) return {};
    if (any && Order(work, key, best_key) * kSign <= 0) continue;
    best = item;
    best_key = key;
    any = true;
  }
  return best;
}

Value Reverse(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  arguments.Bind(work, "reverse", 0, {});
  if (input.Is(Value::kString)) {
    return Slice(work, input, Value::None(), Value::None(), Value::Int(-1));
  }
  const bool generates = input.Is(Value::kSequence) && input.sequence->form == Sequence::kGenerator;
  std::vector<Value> items = Elements(work, input);
  std::reverse(items.begin(), items.end());
  return generates ? work->List(std::move(items)) : Generator(work, std::move(items));
}

Value Round(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "round", 0, {"precision", "method"});
  const Value precision = bound[0].value_or(Value::Int(0));
  if (bound[1].has_value() && !bound[1]->Is(Value::kString)) return work->Wrong("round's method");
  const std::string method = bound[1].has_value() ? bound[1]->bytes() : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    return work->Wrong("round's method is common, ceil or floor");
  }
  if (!input.IsNumber()) return work->Wrong(absl::StrCat("round of a ", TypeName(input)));
  if (!precision.IsInteger()) return work->Wrong("round's precision is no integer");
  if (precision.AsInt() < 0 || precision.AsInt() > 300) return work->Lacks("round's precision");
  Value value;
  double real = 0;
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision.AsInt()));
    const double scaled = input.AsDouble() * scale;
    if (!std::isfinite(scaled)) return work->Wrong("round of what is not finite");
    value = Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  } else if (input.IsInteger()) {
    value = Value::Int(input.AsInt());
  } else if (!std::isfinite(input.real) ||
             !absl::SimpleAtod(
                 absl::StrFormat("%.*f", static_cast<int>(precision.AsInt()), input.real), &real)) {
    value = input;
  } else {
    value = Value::Float(real);
  }
  value.trusted = input.trusted;
  return value;
}

Value Sort(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound =
      arguments.Bind(work, "sort", 0, {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> items = Elements(work, input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    keys.push_back(
        SortKey(work, item, bound[2].value_or(Value::None()), Truth(bound[1].value_or(Value()))));
  }
  if (work->failed()) return {};
  return work->List(Sorted(work, keys, items, Truth(bound[0].value_or(Value()))));
}

Value Sum(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "sum", 0, {"attribute", "start"});
  Value sum = bound[1].value_or(Value::Int(0));
  if (sum.Is(Value::kString)) return work->Wrong("sum of strings");
  for (const Value& item : Elements(work, input)) {
    const Value part = AttributePath(work, item, bound[0].value_or(Value::None()));
    if (work->failed()) return {};
    sum = Binary(work, "+", sum, part);
  }
  return sum;
}

Value Unique(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "unique", 0, {"case_sensitive", "attribute"});
  const Value seen = work->NewDict();
  std::vector<Value> items;
  for (const Value& item : Elements(work, input)) {
    const Value key =
        SortKey(work, item, bound[1].value_or(Value::None()), Truth(bound[0].value_or(Value())));
    if (work->failed()) return {};
    if (work->Get(*seen.dict, key) != nullptr) continue;
    work->Put(seen.dict, key, Value());
    items.push_back(item);
  }
  return Generator(work, std::move(items));
}

constexpr FilterRow kFilters[] = {
    {"abs", Abs},
    {"batch", Batch},
    {"count", LengthOf},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"first", First},
    {"float", ToFloat},
    {"int", ToInt},
    {"items", Items},
    {"join", Join},
    {"last", Last},
    {"length", LengthOf},
    {"list", ToList},
    {"map", Map},
    {"max", Extreme<1>},
    {"min", Extreme<-1>},
    {"reject", Choose<false, false>},
    {"rejectattr", Choose<false, true>},
    {"reverse", Reverse},
    {"round", Round},
    {"select", Choose<true, false>},
    {"selectattr", Choose<true, true>},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

absl::Span<const FilterRow> ListFilters() { return kFilters; }

}  // namespace athanor::jinja
