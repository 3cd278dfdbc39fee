// Python's methods of text, lists and dicts; those of text share helpers with filters.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/text/jinja/builtins.h"
#include "server/text/jinja/characters.h"
#include "server/text/jinja/loop.h"
#include "server/text/jinja/operators.h"
#include "server/text/jinja/print.h"

namespace athanor::jinja {
namespace {

using Arg = std::optional<Value>;
using Method = Value (*)(Caller* caller, const Value& self, const Arguments& arguments);

struct MethodRow {
  absl::string_view name;
  Method call;
};

// The text of `value`; fails for others, and then is empty.
const Marked& Text(Work* work, const Value& value) {
  static const Marked kEmpty;
  if (value.Is(Value::kString)) return *value.text;
  work->Wrong(absl::StrCat("a method of a string wants a string, not a ", TypeName(value)));
  return kEmpty;
}

int64_t Whole(Work* work, const Value& value) {
  if (value.IsInteger()) return value.AsInt();
  work->Wrong(absl::StrCat("a method wants an integer, not a ", TypeName(value)));
  return 0;
}

template <char kHow>
Value CaseOf(Caller* caller, const Value& self, const Arguments& arguments) {
  arguments.Bind(caller->work, "a method", 0, {});
  return Cased(caller->work, self,
               kHow == 'u'   ? "upper"
               : kHow == 'l' ? "lower"
               : kHow == 't' ? "title"
                             : "capitalize");
}

template <bool kLeft, bool kRight>
Value StripOf(Caller* caller, const Value& self, const Arguments& arguments) {
  const std::vector<Arg> bound = arguments.Bind(caller->work, "strip", 0, {""});
  return Stripped(caller->work, self, kLeft, kRight, bound[0].value_or(Value::None()));
}

// Adds [begin, end) to the parts.
void AddPart(Work* work, const Marked& text, size_t begin, size_t end, std::vector<Value>* parts) {
  parts->push_back(work->String(text.Slice(begin, end)));
}

std::vector<Value> SplitBySpace(Work* work, const Marked& text, int64_t most) {
  std::vector<Value> parts;
  const absl::string_view bytes = text.bytes();
  size_t at = Strip(bytes, true, false).begin;
  while (at < bytes.size() && !work->failed()) {
    if (most-- == 0) {
      AddPart(work, text, at, bytes.size(), &parts);
      break;
    }
    size_t end = at;
    for (size_t next = at; next < bytes.size();) {
      if (IsSpace(Next(bytes, &next))) break;
      end = next;
    }
    AddPart(work, text, at, end, &parts);
    at = end + Strip(bytes.substr(end), true, false).begin;
  }
  return parts;
}

std::vector<Value> SplitBy(Work* work, const Marked& text, const std::string& by, int64_t most) {
  std::vector<Value> parts;
  size_t begin = 0;
  for (; most != 0 && !work->failed(); --most) {
    const size_t found = Find(text.bytes(), by, begin);
    if (found == absl::string_view::npos) break;
    AddPart(work, text, begin, found, &parts);
    begin = found + by.size();
  }
  AddPart(work, text, begin, text.size(), &parts);
  return parts;
}

std::vector<Value> SplitFromRight(Work* work, const Marked& text, const std::string& by,
                                  int64_t most) {
  std::vector<Value> parts;
  size_t end = text.size();
  for (; most != 0 && !work->failed() && end >= by.size(); --most) {
    if (!work->StepBytes(end)) break;
    const size_t found = FindLast(absl::string_view(text.bytes()).substr(0, end), by);
    if (found == absl::string_view::npos) break;
    AddPart(work, text, found + by.size(), end, &parts);
    end = found;
  }
  AddPart(work, text, 0, end, &parts);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool kRight>
Value Split(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "split", 0, {"sep", "maxsplit"});
  const Value by = bound[0].value_or(Value::None());
  const int64_t most = Whole(work, bound[1].value_or(Value::Int(-1)));
  if (work->failed()) return {};
  if (by.Is(Value::kNone)) {
    if (kRight && most >= 0) return work->Lacks("rsplit by white space with a limit");
    return work->List(SplitBySpace(work, *self.text, most));
  }
  const std::string& bytes = Text(work, by).bytes();
  if (bytes.empty()) return work->Wrong("split by an empty string");
  return work->List(kRight && most >= 0 ? SplitFromRight(work, *self.text, bytes, most)
                                        : SplitBy(work, *self.text, bytes, most));
}

template <bool kRight>
Value Partition(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "partition", 1, {""});
  const Marked& by = Text(work, bound[0].value_or(Value()));
  if (work->failed() || by.empty()) return work->Wrong("partition by an empty string");
  if (!work->StepBytes(2 * self.text->size())) return {};
  const size_t found = kRight ? FindLast(self.bytes(), by.bytes()) : Find(self.bytes(), by.bytes());
  if (found == std::string::npos) {
    const Value empty = work->String("", true), other = work->String("", true);
    return work->Tuple(kRight ? std::vector<Value>{empty, other, self}
                              : std::vector<Value>{self, empty, other});
  }
  std::vector<Value> parts;
  AddPart(work, *self.text, 0, found, &parts);
  AddPart(work, *self.text, found, found + by.size(), &parts);
  AddPart(work, *self.text, found + by.size(), self.text->size(), &parts);
  return work->Tuple(std::move(parts));
}

template <bool kStart>
Value HasEnd(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "startswith", 1, {""});
  if (work->failed()) return {};
  const bool several =
      bound[0]->Is(Value::kSequence) && bound[0]->sequence->form == Sequence::kTuple;
  const absl::string_view text = self.bytes();
  bool has = false;
  for (const Value& end : several ? bound[0]->sequence->items : std::vector<Value>{*bound[0]}) {
    const absl::string_view part = Text(work, end).bytes();
    work->StepBytes(part.size());
    has = has ||
          (kStart ? text.substr(0, part.size()) == part
                  : text.size() >= part.size() && text.substr(text.size() - part.size()) == part);
  }
  return Value::Bool(has);
}

Value ReplaceIn(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "replace", 2, {"", "", ""});
  if (work->failed()) return {};
  const Marked &from = Text(work, *bound[0]), &to = Text(work, *bound[1]);
  const int64_t most = Whole(work, bound[2].value_or(Value::Int(-1)));
  return work->failed() ? Value() : Replaced(work, *self.text, from, to, most);
}

// find, rfind; `kMust`: index.
template <bool kRight, bool kMust>
Value FindIn(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "find", 1, {""});
  const std::string& part = Text(work, bound[0].value_or(Value())).bytes();
  if (!work->StepBytes(2 * self.text->size())) return {};
  const size_t found = kRight ? FindLast(self.bytes(), part) : Find(self.bytes(), part);
  if (found == std::string::npos) {
    return kMust ? work->Wrong("index() of what is not there") : Value::Int(-1);
  }
  return Value::Int(CountCodePoints(absl::string_view(self.bytes()).substr(0, found)));
}

Value CountIn(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "count", 1, {""});
  const std::string& part = Text(work, bound[0].value_or(Value())).bytes();
  if (!work->StepBytes(self.text->size())) return {};
  if (part.empty()) return Value::Int(CountCodePoints(self.bytes()) + 1);
  int64_t count = 0;
  for (size_t at = Find(self.bytes(), part); at != absl::string_view::npos;
       at = Find(self.bytes(), part, at + part.size())) {
    ++count;
  }
  return Value::Int(count);
}

Value JoinOf(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "join", 1, {""});
  if (work->failed()) return {};
  Marked out;
  bool first = true;
  for (const Value& item : Elements(work, *bound[0])) {
    if (!first) AppendStr(work, self, &out);
    first = false;
    Text(work, item);
    if (work->failed()) return {};
    AppendStr(work, item, &out);
  }
  return work->String(std::move(out));
}

Value SplitLines(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "splitlines", 0, {"keepends"});
  std::vector<Value> lines;
  for (const Marked& line : LinesOf(work, *self.text, Truth(bound[0].value_or(Value())))) {
    lines.push_back(work->String(line));
  }
  return work->List(std::move(lines));
}

Value FormatOf(Caller* caller, const Value& self, const Arguments& arguments) {
  return FormatBraces(caller->work, *self.text, arguments);
}

template <bool (*kIs)(char32_t)>
Value AllAre(Caller* caller, const Value& self, const Arguments& arguments) {
  arguments.Bind(caller->work, "a method", 0, {});
  if (!caller->work->StepBytes(self.text->size())) return {};
  bool all = !self.text->empty();
  for (size_t at = 0; all && at < self.text->size();) all = kIs(Next(self.bytes(), &at));
  return Value::Bool(all);
}

bool IsLetterOrDigit(char32_t c) { return IsLetter(c) || IsDigit(c); }

template <bool (*kIs)(char32_t)>
Value AllCasedAre(Caller* caller, const Value& self, const Arguments& arguments) {
  arguments.Bind(caller->work, "a method", 0, {});
  if (!caller->work->StepBytes(self.text->size())) return {};
  bool any = false;
  for (size_t at = 0; at < self.text->size();) {
    const char32_t c = Next(self.bytes(), &at);
    if (!kIs(c) && (IsUpper(c) || IsLower(c))) return Value::Bool(false);
    any = any || kIs(c);
  }
  return Value::Bool(any);
}

template <bool kStart>
Value Removed(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "removeprefix", 1, {""});
  const size_t cut = Text(work, bound[0].value_or(Value())).size();
  if (work->failed() || !Truth(HasEnd<kStart>(caller, self, arguments))) return self;
  const size_t size = self.text->size();
  return work->String(kStart ? self.text->Slice(cut, size) : self.text->Slice(0, size - cut));
}

template <char kAlign>
Value PadOf(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "center", 1, {"", ""});
  const int64_t width = Whole(work, bound[0].value_or(Value()));
  static const Marked kSpace(" ", true);
  const Marked& fill = bound[1].has_value() ? Text(work, *bound[1]) : kSpace;
  if (CountCodePoints(fill.bytes()) != 1) return work->Wrong("what fills is not one character");
  return work->failed() ? Value() : Padded(work, *self.text, width, kAlign, fill);
}

template <Sequence::Form kForm>
Value RowsOf(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  arguments.Bind(work, "a method", 0, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict->rows) {
    if (work->failed()) return {};
    items.push_back(kForm == Sequence::kKeys     ? key
                    : kForm == Sequence::kValues ? value
                                                 : work->Tuple({key, value}));
  }
  return work->Make(kForm, std::move(items));
}

Value GetOf(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "get", 1, {"", ""});
  if (work->failed()) return {};
  CanBeKey(work, *bound[0]);
  const Value* const found = work->failed() ? nullptr : work->Get(*self.dict, *bound[0]);
  return found != nullptr ? *found : bound[1].value_or(Value::None());
}

Value CopyOf(Caller* caller, const Value& self, const Arguments& arguments) {
  Work* const work = caller->work;
  arguments.Bind(work, "copy", 0, {});
  if (self.Is(Value::kSequence)) return work->List(self.sequence->items);
  const Value copy = work->NewDict();
  for (const auto& [key, value] : self.dict->rows) {
    if (work->failed()) return {};
    work->Put(copy.dict, key, value);
  }
  return copy;
}

Value CountOf(Caller* caller, const Value& self, const Arguments& arguments) {
  const std::vector<Arg> bound = arguments.Bind(caller->work, "count", 1, {""});
  int64_t count = 0;
  for (const Value& item : self.sequence->items) {
    if (caller->work->failed()) return {};
    count += Equal(caller->work, item, *bound[0]) ? 1 : 0;
  }
  return Value::Int(count);
}

Value IndexOf(Caller* caller, const Value& self, const Arguments& arguments) {
  const std::vector<Arg> bound = arguments.Bind(caller->work, "index", 1, {""});
  int64_t index = 0;
  for (const Value& item : self.sequence->items) {
    if (caller->work->failed()) return {};
    if (Equal(caller->work, item, *bound[0])) return Value::Int(index);
    ++index;
  }
  return caller->work->Wrong("index() of what is not there");
}

Value CycleOf(Caller*, const Value& self, const Arguments& arguments) {
  return self.loop->Cycle(arguments.values);
}

Value ChangedOf(Caller*, const Value& self, const Arguments& arguments) {
  return Value::Bool(self.loop->Changed(arguments.values));
}

constexpr MethodRow kTextMethods[] = {
    {"capitalize", CaseOf<'c'>},
    {"center", PadOf<'^'>},
    {"count", CountIn},
    {"endswith", HasEnd<false>},
    {"find", FindIn<false, false>},
    {"format", FormatOf},
    {"index", FindIn<false, true>},
    {"isalnum", AllAre<IsLetterOrDigit>},
    {"isalpha", AllAre<IsLetter>},
    {"isdigit", AllAre<IsDigit>},
    {"islower", AllCasedAre<IsLower>},
    {"isspace", AllAre<IsSpace>},
    {"isupper", AllCasedAre<IsUpper>},
    {"join", JoinOf},
    {"ljust", PadOf<'<'>},
    {"lower", CaseOf<'l'>},
    {"lstrip", StripOf<true, false>},
    {"partition", Partition<false>},
    {"removeprefix", Removed<true>},
    {"removesuffix", Removed<false>},
    {"replace", ReplaceIn},
    {"rfind", FindIn<true, false>},
    {"rindex", FindIn<true, true>},
    {"rjust", PadOf<'>'>},
    {"rpartition", Partition<true>},
    {"rsplit", Split<true>},
    {"rstrip", StripOf<false, true>},
    {"split", Split<false>},
    {"splitlines", SplitLines},
    {"startswith", HasEnd<true>},
    {"strip", StripOf<true, true>},
    {"title", CaseOf<'t'>},
    {"upper", CaseOf<'u'>},
};
constexpr MethodRow kDictMethods[] = {
    {"copy", CopyOf},
    {"get", GetOf},
    {"items", RowsOf<Sequence::kItems>},
    {"keys", RowsOf<Sequence::kKeys>},
    {"values", RowsOf<Sequence::kValues>},
};
constexpr MethodRow kListMethods[] = {{"copy", CopyOf}, {"count", CountOf}, {"index", IndexOf}};
constexpr MethodRow kTupleMethods[] = {{"count", CountOf}, {"index", IndexOf}};
constexpr MethodRow kLoopMethods[] = {{"changed", ChangedOf}, {"cycle", CycleOf}};

absl::Span<const MethodRow> MethodsOf(const Value& self) {
  switch (self.kind) {
    case Value::kString:
      return kTextMethods;
    case Value::kDict:
      return kDictMethods;
    case Value::kLoop:
      return kLoopMethods;
    case Value::kSequence:
      if (self.sequence->form == Sequence::kList) return kListMethods;
      if (self.sequence->form <= Sequence::kRange) return kTupleMethods;
      return {};
    default:
      return {};
  }
}

Method FindMethod(const Value& self, absl::string_view name) {
  for (const MethodRow& row : MethodsOf(self)) {
    if (row.name == name) return row.call;
  }
  return nullptr;
}

template <size_t kCount>
bool IsIn(absl::string_view name, const absl::string_view (&names)[kCount]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool IsLackedMethod(absl::string_view name) {
  static constexpr absl::string_view kNames[] = {
      "as_integer_ratio", "bit_count",  "bit_length",  "casefold", "conjugate", "encode",
      "expandtabs",       "format_map", "fromkeys",    "isascii",  "isdecimal", "isidentifier",
      "is_integer",       "isnumeric",  "isprintable", "istitle",  "maketrans", "swapcase",
      "to_bytes",         "translate",  "zfill"};
  return IsIn(name, kNames);
}

bool HasMethod(const Value& self, absl::string_view name) {
  return FindMethod(self, name) != nullptr;
}

bool HasChangingMethod(const Value& self, absl::string_view name) {
  static constexpr absl::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault",
                                                   "update"};
  static constexpr absl::string_view kOfLists[] = {"append", "clear",  "extend",  "insert",
                                                   "pop",    "remove", "reverse", "sort"};
  if (self.Is(Value::kDict)) return IsIn(name, kOfDicts);
  return self.Is(Value::kSequence) && self.sequence->form == Sequence::kList &&
         IsIn(name, kOfLists);
}

Value CallMethod(Caller* caller, const Callable& method, const Arguments& arguments) {
  return FindMethod(method.self, method.name)(caller, method.self, arguments);
}

}  // namespace athanor::jinja
