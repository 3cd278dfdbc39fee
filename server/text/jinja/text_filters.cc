// Filters of text, and the helpers that they share with Python's methods.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/text/jinja/builtins.h"
#include "server/text/jinja/characters.h"
#include "server/text/jinja/evaluator.h"
#include "server/text/jinja/operators.h"
#include "server/text/jinja/print.h"

namespace athanor::jinja {
namespace {

using Arg = std::optional<Value>;

// The integer `value`; fails for others.
int64_t Whole(Work* work, const Value& value, absl::string_view what) {
  if (value.IsInteger()) return value.AsInt();
  work->Wrong(absl::StrCat(what, " is a ", TypeName(value), ", not an integer"));
  return 0;
}

template <char kHow>
Value CaseFilter(Caller* caller, const Value& input, const Arguments& arguments) {
  static constexpr absl::string_view kName = kHow == 'u'   ? "upper"
                                             : kHow == 'l' ? "lower"
                                                           : "capitalize";
  arguments.Bind(caller->work, kName, 0, {});
  const Value text = Str(caller->work, input);
  return caller->work->failed() ? Value() : Cased(caller->work, text, kName);
}

// jinja2's: words begin behind white space and - ( { [ <.
Value Title(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  arguments.Bind(work, "title", 0, {});
  const Value text = Str(work, input);
  if (work->failed()) return {};
  Marked out;
  bool first = true;
  for (size_t at = 0; at < text.bytes().size();) {
    const size_t from = at;
    const char32_t c = Next(text.bytes(), &at);
    const bool parts = IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    std::string cased;
    AppendCased(c, first ? Case::kUpper : Case::kLower, &cased);
    out.Append(cased, text.text->TrustedAt(from));
    first = parts;
  }
  return work->String(std::move(out));
}

Value Trim(Caller* caller, const Value& input, const Arguments& arguments) {
  const std::vector<Arg> bound = arguments.Bind(caller->work, "trim", 0, {"chars"});
  const Value text = Str(caller->work, input);
  if (caller->work->failed()) return {};
  return Stripped(caller->work, text, true, true, bound[0].value_or(Value::None()));
}

Value Replace(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "replace", 2, {"old", "new", "count"});
  if (work->failed()) return {};
  const Value text = Str(work, input), from = Str(work, *bound[0]), to = Str(work, *bound[1]);
  const Value count = bound[2].value_or(Value::None());
  const int64_t most = count.Is(Value::kNone) ? -1 : Whole(work, count, "the count of replace");
  return work->failed() ? Value() : Replaced(work, *text.text, *from.text, *to.text, most);
}

Value Center(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "center", 0, {"width"});
  const Value text = Str(work, input);
  const int64_t width = Whole(work, bound[0].value_or(Value::Int(80)), "the width of center");
  return work->failed() ? Value() : Padded(work, *text.text, width, '^');
}

Value ToString(Caller* caller, const Value& input, const Arguments& arguments) {
  arguments.Bind(caller->work, "string", 0, {});
  return Str(caller->work, input);
}

Value Safe(Caller* caller, const Value& input, const Arguments& arguments) {
  arguments.Bind(caller->work, "safe", 0, {});
  Value text = Str(caller->work, input);
  text.safe = text.Is(Value::kString);
  return text;
}

Value Escape(Caller* caller, const Value& input, const Arguments& arguments) {
  arguments.Bind(caller->work, "escape", 0, {});
  const Value text = Str(caller->work, input);
  static const Marked kNothing;
  Value nothing = Value::Text(&kNothing);
  nothing.safe = true;  // + escapes what is added to it
  return caller->work->failed() ? Value() : Binary(caller->work, "+", text, nothing);
}

Value Format(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  if (!arguments.named.empty()) return work->Lacks("named arguments of the filter \"format\"");
  const Value text = Str(work, input);
  const Value values = work->Tuple(arguments.values);
  return work->failed() ? Value() : FormatPercent(work, *text.text, values);
}

Value Indent(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound = arguments.Bind(work, "indent", 0, {"width", "first", "blank"});
  const Value width = bound[0].value_or(Value::Int(4));
  if (!input.Is(Value::kString)) {
    return input.Is(Value::kUndefined) ? FailUndefined(work, input)
                                       : work->Wrong(absl::StrCat("indent of a ", TypeName(input)));
  }
  static const Marked kSpace(" ", true);
  const Value by = width.Is(Value::kString)
                       ? width
                       : Binary(work, "*", Value::Text(&kSpace),
                                Value::Int(Whole(work, width, "the width of indent")));
  if (work->failed()) return {};
  Marked ended = *input.text;
  ended.Append("\n", true);
  const std::vector<Marked> lines = LinesOf(work, ended, false);
  const bool first = Truth(bound[1].value_or(Value())), blank = Truth(bound[2].value_or(Value()));
  if (!work->Charge(static_cast<int64_t>(ended.size() + (lines.size() + 1) * by.text->size()))) {
    return {};
  }
  Marked out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n", true);
    if (i == 0 ? first : blank || !lines[i].empty()) out.Append(*by.text);
    out.Append(lines[i]);
  }
  return work->String(std::move(out));
}

Value ToJson(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  const std::vector<Arg> bound =
      arguments.Bind(work, "tojson", 0, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = Truth(bound[0].value_or(Value()));
  style.sorted = Truth(bound[3].value_or(Value()));
  const Value indent = bound[1].value_or(Value::None());
  if (indent.Is(Value::kString)) {
    style.indent = indent.bytes();
  } else if (!indent.Is(Value::kNone)) {
    const int64_t width = std::max<int64_t>(0, Whole(work, indent, "the indent of tojson"));
    if (!work->Charge(width)) return {};
    style.indent = std::string(static_cast<size_t>(width), ' ');
  }
  if (style.indent.has_value()) style.item = Marked(",", false);
  if (const Value by = bound[2].value_or(Value::None()); !by.Is(Value::kNone)) {
    const std::vector<Value> parts = Elements(work, by);
    if (parts.size() != 2 || !parts[0].Is(Value::kString) || !parts[1].Is(Value::kString)) {
      return work->Wrong("the separators of tojson are not two strings");
    }
    style.item = *parts[0].text;
    style.key = *parts[1].text;
  }
  Marked out;
  if (!work->failed()) AppendJson(work, input, style, &out);
  return work->String(std::move(out));
}

Value FromJson(Caller* caller, const Value& input, const Arguments& arguments) {
  Work* const work = caller->work;
  arguments.Bind(work, "from_json", 0, {});
  if (!input.Is(Value::kString))
    return work->Wrong(absl::StrCat("from_json of a ", TypeName(input)));
  if (!work->Charge(static_cast<int64_t>(input.text->size()) * 64)) return {};
  return OfJsonText(work, input.bytes(), input.text->trusted());
}

constexpr FilterRow kFilters[] = {
    {"capitalize", CaseFilter<'c'>},
    {"center", Center},
    {"e", Escape},
    {"escape", Escape},
    {"format", Format},
    {"from_json", FromJson},
    {"indent", Indent},
    {"lower", CaseFilter<'l'>},
    {"replace", Replace},
    {"safe", Safe},
    {"string", ToString},
    {"title", Title},
    {"tojson", ToJson},
    {"trim", Trim},
    {"upper", CaseFilter<'u'>},
};

}  // namespace

absl::Span<const FilterRow> TextFilters() { return kFilters; }

Value Cased(Work* work, const Value& text, absl::string_view how) {
  const std::string& bytes = text.bytes();
  if (!work->StepBytes(4 * bytes.size())) return {};
  Marked out;
  char32_t before = ' ';
  for (size_t at = 0; at < bytes.size();) {
    const size_t from = at;
    const char32_t c = Next(bytes, &at);
    const bool begins = how == "title" ? !IsUpper(before) && !IsLower(before) : from == 0;
    const Case to = how == "upper"              ? Case::kUpper
                    : how == "lower" || !begins ? Case::kLower
                                                : Case::kTitle;
    std::string cased;
    size_t after = at;
    const bool ends = at == bytes.size() || !IsLetter(Next(bytes, &after));
    if (to == Case::kLower && c == 0x3A3 && IsLetter(before) && ends) {
      cased = "\u03C2";  // the sigma at a word's end
    } else {
      AppendCased(c, to, &cased);
    }
    out.Append(cased, text.text->TrustedAt(from));
    before = c;
  }
  return work->String(std::move(out));
}

Value Stripped(Work* work, const Value& text, bool left, bool right, const Value& characters) {
  if (!characters.Is(Value::kString) && !characters.Is(Value::kNone)) {
    return work->Wrong(absl::StrCat("characters to strip are a ", TypeName(characters)));
  }
  absl::string_view of;
  if (characters.Is(Value::kString)) of = characters.bytes();
  if (!work->Step(static_cast<int64_t>(of.size()) * static_cast<int64_t>(text.text->size()) / 16)) {
    return {};
  }
  const Range range =
      Strip(text.bytes(), left, right, characters.Is(Value::kString) ? &of : nullptr);
  Value stripped = work->String(text.text->Slice(range.begin, range.end));
  stripped.safe = text.safe && stripped.Is(Value::kString);
  return stripped;
}

Value Replaced(Work* work, const Marked& text, const Marked& from, const Marked& to, int64_t most) {
  Marked out;
  size_t begin = 0;
  const std::string& bytes = text.bytes();
  for (size_t at = 0; most != 0 && work->StepBytes(1); --most) {
    const size_t found = Find(bytes, from.bytes(), at);
    if (found == absl::string_view::npos) break;
    if (!work->Charge(static_cast<int64_t>(to.size()))) return {};
    out.AppendSlice(text, begin, found);
    out.Append(to);
    begin = found + from.size();
    at = begin;
    if (!from.empty()) continue;
    if (at == bytes.size()) break;
    Next(bytes, &at);  // between all code points, for an empty text
  }
  out.AppendSlice(text, begin, bytes.size());
  return work->String(std::move(out));
}

Value Padded(Work* work, const Marked& text, int64_t width, char align, const Marked& fill) {
  const int64_t count = CountCodePoints(text.bytes());
  const int64_t missing = width > count ? width - count : 0;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(missing, static_cast<int64_t>(fill.size()), &bytes)) bytes = missing;
  if (!work->Charge(bytes)) return {};
  // Python's str.center puts the odd one to the left only if the width is odd too.
  const int64_t left = align == '<'   ? 0
                       : align == '>' ? missing
                       : align == '=' ? missing / 2
                                      : missing / 2 + (missing & width & 1);
  Marked out;
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(text);
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return work->String(std::move(out));
}

std::vector<Marked> LinesOf(Work* work, const Marked& text, bool keep_ends) {
  std::vector<Marked> lines;
  const std::string& bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = at;
    const char32_t c = Next(bytes, &at);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    if (!work->Charge(sizeof(Marked)) || !work->Step()) return lines;
    lines.push_back(text.Slice(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

}  // namespace athanor::jinja
