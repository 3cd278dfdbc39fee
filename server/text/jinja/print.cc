#include "server/text/jinja/print.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/text/jinja/characters.h"
#include "server/text/jinja/operators.h"

namespace athanor::jinja {
namespace {

// Appends text in quotes, as repr() does.
void AppendQuoted(Work* work, const Marked& text, Marked* out) {
  const std::string& bytes = text.bytes();
  if (!work->StepBytes(bytes.size()) || !work->Charge(static_cast<int64_t>(bytes.size()))) return;
  const bool twice = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
  const char quote = twice ? '"' : '\'';
  out->Append(std::string(1, quote), false);
  for (size_t at = 0; at < bytes.size();) {
    const size_t from = at;
    const char32_t c = Next(bytes, &at);
    std::string escaped;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      escaped = absl::StrCat("\\", std::string(1, static_cast<char>(c)));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      escaped = c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (!IsPrintable(c)) {
      escaped = c < 0x100     ? absl::StrFormat("\\x%02x", static_cast<uint32_t>(c))
                : c < 0x10000 ? absl::StrFormat("\\u%04x", static_cast<uint32_t>(c))
                              : absl::StrFormat("\\U%08x", static_cast<uint32_t>(c));
    }
    if (escaped.empty()) {
      out->AppendSlice(text, from, at);
    } else {
      out->Append(escaped, text.TrustedAt(from));
    }
  }
  out->Append(std::string(1, quote), false);
}

void AppendItems(Work* work, const Dict& dict, Marked* out) {
  bool first = true;
  out->Append("{", false);
  for (const auto& [key, value] : dict.rows) {
    if (!first) out->Append(", ", false);
    first = false;
    AppendRepr(work, key, out);
    out->Append(": ", false);
    AppendRepr(work, value, out);
    if (work->failed()) return;
  }
  out->Append("}", false);
}

void AppendSequence(Work* work, const Sequence& sequence, Marked* out) {
  static constexpr std::array<absl::string_view, 6> kOpen = {
      "[", "(", "range(", "dict_keys([", "dict_values([", "dict_items(["};
  static constexpr std::array<absl::string_view, 6> kClose = {"]", ")", ")", "])", "])", "])"};
  if (sequence.form == Sequence::kGenerator || sequence.form == Sequence::kRange) {
    work->Lacks(sequence.form == Sequence::kRange
                    ? "a range as text; |list makes a list of it"
                    : "what a filter yields as text; |list makes a list of it");
    return;
  }
  out->Append(kOpen[sequence.form], false);
  bool first = true;
  for (const Value& item : sequence.items) {
    if (!first) out->Append(", ", false);
    first = false;
    AppendRepr(work, item, out);
    if (work->failed()) return;
  }
  if (sequence.form == Sequence::kTuple && sequence.items.size() == 1) out->Append(",", false);
  out->Append(kClose[sequence.form], false);
}

class Json {
 public:
  Json(Work* work, const JsonStyle& style, Marked* out) : work_(work), style_(style), out_(out) {}

  void Add(const Value& value);

 private:
  void AddText(const Marked& text);
  void AddRow(const std::pair<Value, Value>& row);
  void AddKey(const Value& key);
  void AddNumber(const Value& value);
  void NewLine() {
    if (!style_.indent.has_value()) return;
    out_->Append("\n", false);
    for (int i = 0; i < level_; ++i) out_->Append(*style_.indent, false);
    work_->Charge(1 + level_ * static_cast<int64_t>(style_.indent->size()));
  }
  template <typename Items, typename AddOne>
  void AddAll(char open, char close, const Items& items, AddOne add_one);

  Work* const work_;
  const JsonStyle& style_;
  Marked* const out_;
  int level_ = 0;
};

template <typename Items, typename AddOne>
void Json::AddAll(char open, char close, const Items& items, AddOne add_one) {
  out_->Append(std::string(1, open), false);
  ++level_;
  bool first = true;
  for (const auto& item : items) {
    if (!first) {
      out_->Append(style_.item);
      work_->Charge(static_cast<int64_t>(style_.item.size()));
    }
    first = false;
    NewLine();
    add_one(item);
    if (work_->failed()) return;
  }
  --level_;
  if (!items.empty()) NewLine();
  out_->Append(std::string(1, close), false);
}

void Json::AddText(const Marked& text) {
  const std::string& bytes = text.bytes();
  if (!work_->StepBytes(bytes.size()) || !work_->Charge(static_cast<int64_t>(bytes.size()))) return;
  out_->Append("\"", false);
  for (size_t at = 0; at < bytes.size();) {
    const size_t from = at;
    const char32_t c = Next(bytes, &at);
    static constexpr absl::string_view kShort = "\"\\\n\r\t\f\b";
    static constexpr std::array<absl::string_view, 7> kShortAs = {"\\\"", "\\\\", "\\n", "\\r",
                                                                  "\\t",  "\\f",  "\\b"};
    const size_t place = c < 0x80 ? kShort.find(static_cast<char>(c)) : absl::string_view::npos;
    const auto code = static_cast<uint32_t>(c);
    if (place != absl::string_view::npos) {
      out_->Append(kShortAs[place], text.TrustedAt(from));
    } else if (c < 0x20 || (style_.ascii && c >= 0x7F && c < 0x10000)) {
      out_->Append(absl::StrFormat("\\u%04x", code), text.TrustedAt(from));
    } else if (style_.ascii && c >= 0x10000) {
      const uint32_t high = 0xD800 + ((code - 0x10000) >> 10);
      const uint32_t low = 0xDC00 + ((code - 0x10000) & 0x3FF);
      out_->Append(absl::StrFormat("\\u%04x\\u%04x", high, low), text.TrustedAt(from));
    } else {
      out_->AppendSlice(text, from, at);
    }
  }
  out_->Append("\"", false);
}

void Json::AddNumber(const Value& value) {
  if (value.Is(Value::kBool)) {
    out_->Append(value.flag ? "true" : "false", value.trusted);
  } else if (value.Is(Value::kInt)) {
    out_->Append(absl::StrCat(value.integer), value.trusted);
  } else if (std::isfinite(value.real)) {
    out_->Append(FloatRepr(value.real), value.trusted);
  } else {
    out_->Append(std::isnan(value.real) ? "NaN"
                 : value.real > 0       ? "Infinity"
                                        : "-Infinity",
                 value.trusted);
  }
}

void Json::AddKey(const Value& key) {
  if (key.Is(Value::kString)) return AddText(*key.text);
  if (!key.IsNumber() && !key.Is(Value::kNone)) {
    work_->Wrong(absl::StrCat("tojson: a key is a ", TypeName(key)));
    return;
  }
  out_->Append("\"", false);
  Add(key);
  out_->Append("\"", false);
}

void Json::AddRow(const std::pair<Value, Value>& row) {
  AddKey(row.first);
  out_->Append(style_.key);
  work_->Charge(static_cast<int64_t>(style_.key.size()));
  Add(row.second);
}

void Json::Add(const Value& value) {
  const Work::Depth in(work_);
  if (!in || !work_->Step() || !work_->Charge(8)) return;
  switch (value.kind) {
    case Value::kString:
      return AddText(*value.text);
    case Value::kBool:
    case Value::kInt:
    case Value::kFloat:
      return AddNumber(value);
    case Value::kNone:
      return out_->Append("null", value.trusted);
    case Value::kSequence:
      if (value.sequence->form > Sequence::kTuple) break;
      return AddAll('[', ']', value.sequence->items, [this](const Value& item) { Add(item); });
    case Value::kDict: {
      const auto add = [this](const auto& row) { AddRow(row); };
      if (!style_.sorted) return AddAll('{', '}', value.dict->rows, add);
      std::vector<Value> keys;
      for (const auto& [key, unused] : value.dict->rows) keys.push_back(key);
      std::vector<std::pair<Value, Value>> rows;
      for (const size_t place : SortedPlaces(work_, keys, false)) {
        rows.push_back(value.dict->rows[place]);
      }
      return AddAll('{', '}', rows, add);
    }
    default:
      break;
  }
  if (value.Is(Value::kUndefined)) {
    work_->Wrong(
        absl::StrCat("tojson of an undefined value",
                     value.name == nullptr ? "" : absl::StrCat(", \"", *value.name, "\"")));
  } else {
    work_->Wrong(absl::StrCat("tojson of a ", TypeName(value)));
  }
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) {
    return absl::StrFormat("%se%c%02d", text.substr(0, e), exponent < 0 ? '-' : '+',
                           std::abs(exponent));
  }
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  text.assign(buffer, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

void AppendRepr(Work* work, const Value& value, Marked* out) {
  const Work::Depth in(work);
  if (!in || !work->Step() || !work->Charge(8)) return;
  switch (value.kind) {
    case Value::kString:
      return AppendQuoted(work, *value.text, out);
    case Value::kUndefined:
      return out->Append("Undefined", false);
    case Value::kNamespace:
      out->Append("<Namespace ", false);
      AppendItems(work, *value.dict, out);
      return out->Append(">", false);
    case Value::kDict:
      return AppendItems(work, *value.dict, out);
    case Value::kSequence:
      return AppendSequence(work, *value.sequence, out);
    default:
      return AppendStr(work, value, out);
  }
}

void AppendStr(Work* work, const Value& value, Marked* out) {
  switch (value.kind) {
    case Value::kUndefined:
      return;
    case Value::kNone:
      return out->Append("None", value.trusted);
    case Value::kBool:
      return out->Append(value.flag ? "True" : "False", value.trusted);
    case Value::kInt:
      return out->Append(absl::StrCat(value.integer), value.trusted);
    case Value::kFloat:
      return out->Append(FloatRepr(value.real), value.trusted);
    case Value::kString:
      if (!work->StepBytes(value.text->size()) ||
          !work->Charge(static_cast<int64_t>(value.text->size()))) {
        return;
      }
      return out->Append(*value.text);
    case Value::kSequence:
    case Value::kDict:
    case Value::kNamespace:
      return AppendRepr(work, value, out);
    default:
      work->Lacks(absl::StrCat("a ", TypeName(value), " as text"));
  }
}

Value Str(Work* work, const Value& value) {
  if (value.Is(Value::kString)) return value;
  Marked text;
  AppendStr(work, value, &text);
  return work->String(std::move(text));
}

void AppendJson(Work* work, const Value& value, const JsonStyle& style, Marked* out) {
  Json(work, style, out).Add(value);
}

}  // namespace athanor::jinja
