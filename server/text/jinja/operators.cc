#include "server/text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "server/text/jinja/builtins.h"
#include "server/text/jinja/characters.h"
#include "server/text/jinja/loop.h"

namespace athanor::jinja {
namespace {

bool SameForm(const Sequence& a, const Sequence& b) { return a.form == b.form; }

bool EqualDicts(Work* work, const Dict& a, const Dict& b) {
  if (a.rows.size() != b.rows.size()) return false;
  return std::all_of(a.rows.begin(), a.rows.end(), [&](const auto& row) {
    const Value* other = work->failed() ? nullptr : work->Get(b, row.first);
    return other != nullptr && Equal(work, row.second, *other);
  });
}

Value FailOperands(Work* work, absl::string_view op, const Value& a, const Value& b) {
  if (a.Is(Value::kUndefined)) return FailUndefined(work, a);
  if (b.Is(Value::kUndefined)) return FailUndefined(work, b);
  return work->Wrong(absl::StrCat("\"", op, "\" of a ", TypeName(a), " and a ", TypeName(b)));
}

Value TooLong(Work* work) { return work->Lacks("an integer of more than 64 bits"); }

Value Marked2(Value value, const Value& a, const Value& b) {
  value.trusted = a.trusted && b.trusted;
  return value;
}

void AppendEscaped(const Value& value, Marked* out) {
  if (value.safe) return out->Append(*value.text);
  const std::string& bytes = value.bytes();
  for (size_t at = 0; at < bytes.size(); ++at) {
    const size_t place = absl::string_view("&<>'\"").find(bytes[at]);
    static constexpr absl::string_view kAs[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (place == absl::string_view::npos) {
      out->AppendSlice(*value.text, at, at + 1);
    } else {
      out->Append(kAs[place], value.text->TrustedAt(at));
    }
  }
}

Value Add(Work* work, const Value& a, const Value& b) {
  if (a.Is(Value::kString) && b.Is(Value::kString)) {
    if (!work->Charge(static_cast<int64_t>(a.text->size() + b.text->size()))) return {};
    Marked sum;
    const bool safe = a.safe || b.safe;
    if (safe) {
      AppendEscaped(a, &sum);
      AppendEscaped(b, &sum);
    } else {
      sum = *a.text;
      sum.Append(*b.text);
    }
    Value value = work->String(std::move(sum));
    value.safe = safe && value.Is(Value::kString);
    return value;
  }
  if (a.Is(Value::kSequence) && b.Is(Value::kSequence) && SameForm(*a.sequence, *b.sequence) &&
      a.sequence->form <= Sequence::kTuple) {
    const size_t size = a.sequence->items.size() + b.sequence->items.size();
    if (!work->Charge(static_cast<int64_t>(size * sizeof(Value)))) return {};
    std::vector<Value> items = a.sequence->items;
    items.insert(items.end(), b.sequence->items.begin(), b.sequence->items.end());
    return work->Make(a.sequence->form, std::move(items));
  }
  return FailOperands(work, "+", a, b);
}

Value Repeat(Work* work, const Value& what, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const bool text = what.Is(Value::kString);
  const size_t size =
      text ? what.text->size() + 1 : sizeof(Value) * (what.sequence->items.size() + 1);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<int64_t>(size), times, &bytes)) {
    bytes = std::numeric_limits<int64_t>::max() / 4;
  }
  if (!work->Charge(bytes) || !work->Step(bytes / 16)) return {};
  if (text) {
    Marked all;
    for (int64_t i = 0; i < times; ++i) all.Append(*what.text);
    Value value = work->String(std::move(all));
    value.safe = what.safe;
    return value;
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), what.sequence->items.begin(), what.sequence->items.end());
  }
  return work->Make(what.sequence->form, std::move(items));
}

Value PowerOfInts(Work* work, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return TooLong(work);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return TooLong(work);
  }
  return Value::Int(result);
}

Value OfInts(Work* work, char op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case '+':
      return __builtin_add_overflow(a, b, &result) ? TooLong(work) : Value::Int(result);
    case '-':
      return __builtin_sub_overflow(a, b, &result) ? TooLong(work) : Value::Int(result);
    case '*':
      return __builtin_mul_overflow(a, b, &result) ? TooLong(work) : Value::Int(result);
    default:
      break;
  }
  if (b == 0) return work->Wrong("a division by zero");
  if (b == -1) return op == '%' ? Value::Int(0) : OfInts(work, '-', 0, a);
  const int64_t remainder = a % b;
  const bool down = remainder != 0 && (remainder < 0) != (b < 0);
  return op == '%' ? Value::Int(down ? remainder + b : remainder)
                   : Value::Int(a / b - (down ? 1 : 0));
}

// CPython's float_divmod.
Value FloorOfFloats(Work* work, bool remainder, double a, double b) {
  if (b == 0) return work->Wrong("a division by zero");
  double mod = std::fmod(a, b);
  double div = (a - mod) / b;
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) {
      mod += b;
      div -= 1;
    }
  } else {
    mod = std::copysign(0.0, b);
  }
  if (remainder) return Value::Float(mod);
  if (div == 0) return Value::Float(std::copysign(0.0, a / b));
  double floor = std::floor(div);
  if (div - floor > 0.5) floor += 1;
  return Value::Float(floor);
}

Value PowerOfFloats(Work* work, double a, double b) {
  if (a == 0 && b < 0) return work->Wrong("zero to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return work->Lacks("a complex number");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return work->Wrong("a power is too large");
  }
  return Value::Float(result);
}

Value Arithmetic(Work* work, absl::string_view op, const Value& a, const Value& b) {
  const bool ints = a.IsInteger() && b.IsInteger();
  if (op == "/") {
    if (b.AsDouble() == 0) return work->Wrong("a division by zero");
    if (!ints) return Value::Float(a.AsDouble() / b.AsDouble());
    return Value::Float(static_cast<double>(static_cast<long double>(a.AsInt()) /
                                            static_cast<long double>(b.AsInt())));
  }
  if (op == "**") {
    return ints && b.AsInt() >= 0 ? PowerOfInts(work, a.AsInt(), b.AsInt())
                                  : PowerOfFloats(work, a.AsDouble(), b.AsDouble());
  }
  if (ints) return OfInts(work, op == "//" ? '/' : op[0], a.AsInt(), b.AsInt());
  const double x = a.AsDouble(), y = b.AsDouble();
  if (op == "+") return Value::Float(x + y);
  if (op == "-") return Value::Float(x - y);
  if (op == "*") return Value::Float(x * y);
  return FloorOfFloats(work, op == "%", x, y);
}

// Python's start, stop and step for a sequence of `size`; false if it fails.
bool Indices(Work* work, const Value& begin, const Value& end, const Value& step, int64_t size,
             int64_t* first, int64_t* last, int64_t* by) {
  for (const Value* part : {&begin, &end, &step}) {
    if (part->Is(Value::kNone) || part->IsInteger()) continue;
    work->Wrong(absl::StrCat("a slice by a ", TypeName(*part)));
    return false;
  }
  *by = step.Is(Value::kNone) ? 1 : step.AsInt();
  if (*by == 0) {
    work->Wrong("a slice by steps of 0");
    return false;
  }
  const int64_t low = *by < 0 ? -1 : 0, high = *by < 0 ? size - 1 : size;
  const auto clamp = [&](const Value& part, int64_t otherwise) {
    if (part.Is(Value::kNone)) return otherwise;
    int64_t at = part.AsInt();
    if (at < 0) at = at < -size ? low : at + size;
    return std::clamp(at, low, high);
  };
  *first = clamp(begin, *by < 0 ? high : low);
  *last = clamp(end, *by < 0 ? low : high);
  return true;
}

// Calls `take` with each index; `by` may be any number but 0.
template <typename Take>
void ForIndices(int64_t first, int64_t last, int64_t by, Take take) {
  int64_t at = first;
  while (by > 0 ? at < last : at > last) {
    take(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, by, &at)) return;
  }
}

}  // namespace

absl::string_view TypeName(const Value& value) {
  switch (value.kind) {
    case Value::kUndefined:
      return "undefined value";
    case Value::kNone:
      return "none";
    case Value::kBool:
      return "boolean";
    case Value::kInt:
      return "integer";
    case Value::kFloat:
      return "float";
    case Value::kString:
      return "string";
    case Value::kSequence: {
      static constexpr absl::string_view kForms[] = {
          "list", "tuple", "range", "dict's keys", "dict's values", "dict's items", "generator"};
      return kForms[value.sequence->form];
    }
    case Value::kDict:
      return "dict";
    case Value::kNamespace:
      return "namespace";
    case Value::kLoop:
      return "loop";
    case Value::kCallable:
      return "function";
  }
  return "value";
}

Value FailUndefined(Work* work, const Value& value) {
  return work->Wrong(value.name == nullptr
                         ? "a value is undefined"
                         : absl::StrCat("\"", value.name->substr(0, 80), "\" is undefined"));
}

bool Truth(const Value& value) {
  switch (value.kind) {
    case Value::kUndefined:
    case Value::kNone:
      return false;
    case Value::kBool:
      return value.flag;
    case Value::kInt:
      return value.integer != 0;
    case Value::kFloat:
      return value.real != 0;
    case Value::kString:
      return !value.text->empty();
    case Value::kSequence:
      return value.sequence->form == Sequence::kGenerator || !value.sequence->items.empty();
    case Value::kDict:
      return !value.dict->rows.empty();
    default:
      return true;
  }
}

bool Equal(Work* work, const Value& a, const Value& b) {
  const Work::Depth in(work);
  if (!in || !work->Step()) return false;
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return a.AsInt() == b.AsInt();
    const auto wide = [](const Value& value) {
      return value.IsInteger() ? static_cast<long double>(value.AsInt())
                               : static_cast<long double>(value.real);
    };
    return wide(a) == wide(b);
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Value::kUndefined:
    case Value::kNone:
      return true;
    case Value::kString:
      return work->StepBytes(std::min(a.text->size(), b.text->size())) && a.bytes() == b.bytes();
    case Value::kSequence: {
      const auto &x = a.sequence->items, &y = b.sequence->items;
      if (a.sequence == b.sequence) return true;
      if (!SameForm(*a.sequence, *b.sequence) || x.size() != y.size()) return false;
      if (a.sequence->form > Sequence::kRange) return false;
      return std::equal(x.begin(), x.end(), y.begin(), [work](const Value& p, const Value& q) {
        return !work->failed() && Equal(work, p, q);
      });
    }
    case Value::kDict:
      return a.dict == b.dict || EqualDicts(work, *a.dict, *b.dict);
    case Value::kNamespace:
      return a.dict == b.dict;
    case Value::kLoop:
      return a.loop == b.loop;
    default:
      return a.callable == b.callable;
  }
}

int Order(Work* work, const Value& a, const Value& b) {
  const Work::Depth in(work);
  if (!in || !work->Step()) return 0;
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return (a.AsInt() > b.AsInt()) - (a.AsInt() < b.AsInt());
    const long double x = a.IsInteger() ? a.AsInt() : static_cast<long double>(a.real);
    const long double y = b.IsInteger() ? b.AsInt() : static_cast<long double>(b.real);
    return (x > y) - (x < y);
  }
  if (a.Is(Value::kString) && b.Is(Value::kString)) {
    work->StepBytes(std::min(a.text->size(), b.text->size()));
    const int order = a.bytes().compare(b.bytes());
    return (order > 0) - (order < 0);
  }
  if (a.Is(Value::kSequence) && b.Is(Value::kSequence) && SameForm(*a.sequence, *b.sequence) &&
      a.sequence->form <= Sequence::kTuple) {
    const auto &x = a.sequence->items, &y = b.sequence->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()) && !work->failed(); ++i) {
      if (!Equal(work, x[i], y[i])) return Order(work, x[i], y[i]);
    }
    return (x.size() > y.size()) - (x.size() < y.size());
  }
  FailOperands(work, "<", a, b);
  return 0;
}

// A merge sort, since keys may have no order (NaN), which std::sort does not survive.
std::vector<size_t> SortedPlaces(Work* work, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> places(keys.size()), merged(keys.size());
  std::iota(places.begin(), places.end(), size_t{0});
  if (!work->Charge(static_cast<int64_t>(2 * sizeof(size_t) * keys.size()))) return places;
  const auto before = [&](size_t a, size_t b) {
    if (work->failed()) return false;
    return reverse ? Order(work, keys[b], keys[a]) < 0 : Order(work, keys[a], keys[b]) < 0;
  };
  for (size_t half = 1; half < keys.size(); half *= 2) {
    for (size_t begin = 0; begin < keys.size(); begin += 2 * half) {
      const auto at = [&](size_t place) {
        return places.begin() + static_cast<int64_t>(std::min(place, keys.size()));
      };
      std::merge(at(begin), at(begin + half), at(begin + half), at(begin + 2 * half),
                 merged.begin() + static_cast<int64_t>(begin), before);
    }
    std::swap(places, merged);
  }
  return places;
}

bool Contains(Work* work, const Value& container, const Value& value) {
  switch (container.kind) {
    case Value::kUndefined:
      return false;
    case Value::kString:
      if (!value.Is(Value::kString)) {
        FailOperands(work, "in", value, container);
        return false;
      }
      work->StepBytes(container.text->size());
      return Find(container.bytes(), value.bytes()) != absl::string_view::npos;
    case Value::kDict:
      return work->Get(*container.dict, value) != nullptr;
    case Value::kLoop:
    case Value::kSequence: {
      const std::vector<Value> items = Elements(work, container);
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& item) { return Equal(work, item, value); });
    }
    default:
      FailOperands(work, "in", value, container);
      return false;
  }
}

bool Compare(Work* work, absl::string_view op, const Value& a, const Value& b) {
  if (op == "==") return Equal(work, a, b);
  if (op == "!=") return !Equal(work, a, b);
  if (op == "in") return Contains(work, b, a);
  if (op == "not in") return !Contains(work, b, a);
  const bool nan =
      (a.Is(Value::kFloat) && std::isnan(a.real)) || (b.Is(Value::kFloat) && std::isnan(b.real));
  const int order = Order(work, a, b);
  if (nan) return false;
  return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
}

Value Binary(Work* work, absl::string_view op, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) return Marked2(Arithmetic(work, op, a, b), a, b);
  if (op == "+") return Add(work, a, b);
  if (op == "%" && a.Is(Value::kString)) return FormatPercent(work, *a.text, b);
  const auto repeats = [](const Value& value) {
    return value.Is(Value::kString) ||
           (value.Is(Value::kSequence) && value.sequence->form <= Sequence::kTuple);
  };
  if (op == "*" && repeats(a) && b.IsInteger()) return Repeat(work, a, b.AsInt());
  if (op == "*" && repeats(b) && a.IsInteger()) return Repeat(work, b, a.AsInt());
  return FailOperands(work, op, a, b);
}

Value Negate(Work* work, const Value& value) {
  if (value.Is(Value::kFloat)) return Marked2(Value::Float(-value.real), value, value);
  if (value.IsInteger()) return Marked2(OfInts(work, '-', 0, value.AsInt()), value, value);
  return FailOperands(work, "-", value, value);
}

bool CanBeKey(Work* work, const Value& key) {
  const Work::Depth in(work);
  if (!in || !work->Step()) return false;
  bool can = !key.Is(Value::kDict);
  if (key.Is(Value::kSequence)) {
    can = key.sequence->form == Sequence::kTuple || key.sequence->form == Sequence::kRange;
    for (const Value& item : key.sequence->items) can = can && CanBeKey(work, item);
  }
  if (!can) work->Wrong(absl::StrCat("a ", TypeName(key), " as a key"));
  return can;
}

Value Attribute(Work* work, const Value& object, const std::string& name) {
  switch (object.kind) {
    case Value::kUndefined:
      return FailUndefined(work, object);
    case Value::kLoop:
      return object.loop->Attribute(object, name);
    case Value::kNamespace: {
      const auto row = object.dict->by_text.find(name);
      if (row != object.dict->by_text.end()) return object.dict->rows[row->second].second;
      return Value::Undefined(&name);
    }
    default:
      break;
  }
  if (HasMethod(object, name)) {
    return work->Function({Callable::kMethod, name, object});
  }
  static constexpr absl::string_view kOfMacros[] = {
      "name", "arguments", "caller", "catch_kwargs", "catch_varargs", "explicit_caller"};
  if (object.Is(Value::kCallable) && object.callable->macro != nullptr &&
      std::find(std::begin(kOfMacros), std::end(kOfMacros), name) != std::end(kOfMacros)) {
    return work->Lacks(absl::StrCat("a macro's attribute \"", name, "\" is not supported"));
  }
  if (HasChangingMethod(object, name)) return Value::Undefined(&name);
  if (object.Is(Value::kDict)) {
    const auto row = object.dict->by_text.find(name);
    if (row != object.dict->by_text.end()) return object.dict->rows[row->second].second;
  } else if (object.Is(Value::kString) && IsLackedMethod(name)) {
    return work->Lacks(absl::StrCat("the method \"", name, "\""));
  }
  return Value::Undefined(&name);
}

Value Item(Work* work, const Value& object, const Value& index) {
  if (object.Is(Value::kUndefined)) return FailUndefined(work, object);
  if (object.Is(Value::kDict)) {
    const bool hashable = !index.Is(Value::kDict) &&
                          !(index.Is(Value::kSequence) && index.sequence->form == Sequence::kList);
    if (hashable) {
      if (const Value* value = work->Get(*object.dict, index)) return *value;
    }
  }
  if (index.Is(Value::kString)) return Attribute(work, object, index.bytes());
  if (!index.IsInteger()) return Value::Undefined(nullptr);
  int64_t at = index.AsInt();
  if (object.Is(Value::kString)) {
    const std::string& bytes = object.bytes();
    if (!work->StepBytes(bytes.size())) return {};
    if (at < 0) at += CountCodePoints(bytes);
    const size_t begin = at < 0 ? bytes.size() : ByteOf(bytes, at);
    if (begin == bytes.size()) return Value::Undefined(nullptr);
    size_t end = begin;
    Next(bytes, &end);
    return work->String(object.text->Slice(begin, end));
  }
  if (!object.Is(Value::kSequence) || object.sequence->form > Sequence::kRange) {
    return Value::Undefined(nullptr);
  }
  const auto size = static_cast<int64_t>(object.sequence->items.size());
  if (at < 0) at += size;
  if (at < 0 || at >= size) return Value::Undefined(nullptr);
  return object.sequence->items[static_cast<size_t>(at)];
}

Value Slice(Work* work, const Value& object, const Value& begin, const Value& end,
            const Value& step) {
  int64_t first = 0, last = 0, by = 1;
  if (object.Is(Value::kSequence) && object.sequence->form <= Sequence::kRange) {
    const std::vector<Value>& items = object.sequence->items;
    std::vector<Value> some;
    if (!Indices(work, begin, end, step, static_cast<int64_t>(items.size()), &first, &last, &by))
      return {};
    ForIndices(first, last, by, [&](size_t at) { some.push_back(items[at]); });
    return work->Make(object.sequence->form, std::move(some));
  }
  if (!object.Is(Value::kString)) {
    if (object.Is(Value::kUndefined)) return FailUndefined(work, object);
    return work->Wrong(absl::StrCat("a slice of a ", TypeName(object)));
  }
  const std::string& bytes = object.bytes();
  if (!work->StepBytes(2 * bytes.size())) return {};
  if (!Indices(work, begin, end, step, CountCodePoints(bytes), &first, &last, &by)) return {};
  if (by == 1) {
    const size_t from = ByteOf(bytes, first);
    return work->String(
        object.text->Slice(from, std::max(from, ByteOf(bytes, std::max<int64_t>(last, 0)))));
  }
  std::vector<size_t> starts;
  for (size_t at = 0; at < bytes.size(); Next(bytes, &at)) starts.push_back(at);
  if (!work->Step(static_cast<int64_t>(starts.size()))) return {};
  starts.push_back(bytes.size());
  Marked some;
  ForIndices(first, last, by,
             [&](size_t at) { some.AppendSlice(*object.text, starts[at], starts[at + 1]); });
  return work->String(std::move(some));
}

std::vector<Value> Elements(Work* work, const Value& value) {
  std::vector<Value> items;
  switch (value.kind) {
    case Value::kUndefined:
      break;
    case Value::kString:
      for (size_t at = 0; at < value.text->size() && !work->failed();) {
        const size_t from = at;
        Next(value.bytes(), &at);
        items.push_back(work->String(value.text->Slice(from, at)));
      }
      break;
    case Value::kSequence: {
      Sequence& from = *value.sequence;
      if (!work->Charge(static_cast<int64_t>(from.items.size() * sizeof(Value)))) break;
      items.assign(from.items.begin() + static_cast<int64_t>(from.taken), from.items.end());
      if (from.form == Sequence::kGenerator) from.taken = from.items.size();
      break;
    }
    case Value::kDict:
      if (!work->Charge(static_cast<int64_t>(value.dict->rows.size() * sizeof(Value)))) break;
      for (const auto& [key, unused] : value.dict->rows) items.push_back(key);
      break;
    case Value::kLoop:
      work->Lacks("the elements of \"loop\" are not supported");
      break;
    default:
      work->Wrong(absl::StrCat("a ", TypeName(value), " has no elements"));
  }
  work->Step(static_cast<int64_t>(items.size()) / 8);
  return items;
}

std::optional<int64_t> Length(const Value& value) {
  switch (value.kind) {
    case Value::kUndefined:
      return 0;
    case Value::kString:
      return CountCodePoints(value.bytes());
    case Value::kSequence:
      if (value.sequence->form == Sequence::kGenerator) return std::nullopt;
      return static_cast<int64_t>(value.sequence->items.size());
    case Value::kDict:
      return static_cast<int64_t>(value.dict->rows.size());
    default:
      return std::nullopt;
  }
}

}  // namespace athanor::jinja
