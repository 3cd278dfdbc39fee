// Python's two ways to format text: "%5.1f" % value and "{:>5}".format(value).
#include <algorithm>
#include <cctype>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/text/jinja/builtins.h"
#include "server/text/jinja/characters.h"
#include "server/text/jinja/operators.h"
#include "server/text/jinja/print.h"

namespace athanor::jinja {
namespace {

constexpr int kMostDigits = 300;  // of a float behind its point
constexpr int64_t kMostWidth = 10'000;

// A conversion of either way.
struct Spec {
  bool trusted = true;  // whether the authors wrote the format
  Marked fill = Marked(" ", true);
  char align = 0;  // < > ^ or 0 for the type's own
  char sign = '-';
  bool zero = false;
  bool alternate = false;
  bool comma = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// Reads a number at `*at`; false if it is beyond what is served.
bool ReadNumber(absl::string_view text, size_t* at, int64_t* number) {
  *number = 0;
  while (*at < text.size() && std::isdigit(static_cast<uint8_t>(text[*at])) != 0) {
    *number = *number * 10 + (text[(*at)++] - '0');
    if (*number > kMostWidth) return false;
  }
  return true;
}

std::string WithCommas(std::string digits) {
  const size_t point = std::min(digits.find('.'), digits.size());
  for (size_t at = point; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

// The digits of a number without its sign.
std::string DigitsOf(Work* work, const Value& value, const Spec& spec) {
  if (spec.precision > kMostDigits) {
    work->Lacks("so many digits of a number");
    return "";
  }
  const int digits = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const double real = std::fabs(value.AsDouble());
  switch (spec.type) {
    case 'f':
      return absl::StrFormat("%.*f", digits, real);
    case 'e':
      return absl::StrFormat("%.*e", digits, real);
    case '%':
      return absl::StrFormat("%.*f%%", digits, real * 100);
    case 'd': {
      const int64_t integer = value.AsInt();
      std::string text = absl::StrCat(integer < 0 ? 0 - static_cast<uint64_t>(integer)
                                                  : static_cast<uint64_t>(integer));
      if (spec.precision > static_cast<int64_t>(text.size())) {
        text.insert(0, static_cast<size_t>(spec.precision) - text.size(), '0');
      }
      return text;
    }
    default:
      work->Lacks(absl::StrCat("the format \"", std::string(1, spec.type), "\""));
      return "";
  }
}

// `spec.type` is one of d, f, e, %.
void AppendNumber(Work* work, const Value& value, const Spec& spec, Marked* out) {
  if (value.Is(Value::kFloat) && !std::isfinite(value.real)) {
    work->Lacks("a format of what is not finite");
    return;
  }
  std::string digits = DigitsOf(work, value, spec);
  if (spec.comma) digits = WithCommas(std::move(digits));
  const bool negative = value.IsInteger() ? value.AsInt() < 0 : std::signbit(value.real);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const int64_t missing =
      spec.width - static_cast<int64_t>(sign.size()) - static_cast<int64_t>(digits.size());
  if (spec.zero && spec.align == 0 && missing > 0) {
    if (spec.comma) {
      work->Lacks("a format with zeros and commas");
      return;
    }
    digits.insert(0, static_cast<size_t>(missing), '0');
  }
  const Value text = Padded(work, Marked(sign + digits, value.trusted && spec.trusted), spec.width,
                            spec.align == 0     ? '>'
                            : spec.align == '^' ? '='
                                                : spec.align,
                            spec.fill);
  if (!work->failed()) AppendStr(work, text, out);
}

void AppendPadded(Work* work, const Marked& text, const Spec& spec, Marked* out) {
  const size_t end = spec.precision < 0 ? text.size() : ByteOf(text.bytes(), spec.precision);
  const Value padded = Padded(work, text.Slice(0, end), spec.width,
                              spec.align == 0     ? '<'
                              : spec.align == '^' ? '='
                                                  : spec.align,
                              spec.fill);
  if (!work->failed()) AppendStr(work, padded, out);
}

class Percent {
 public:
  Percent(Work* work, const Marked& format, const Value& value)
      : work_(work), format_(format), text_(format.bytes()), value_(value) {
    is_tuple_ = value.Is(Value::kSequence) && value.sequence->form == Sequence::kTuple;
  }

  // Python takes whatever has [] for a mapping, of which a format may use nothing.
  bool MayBeUnused() const {
    if (!value_.Is(Value::kSequence))
      return value_.Is(Value::kDict) || value_.Is(Value::kUndefined);
    const Sequence::Form form = value_.sequence->form;
    return form == Sequence::kList || form == Sequence::kRange;
  }

  Value Run() {
    while (at_ < text_.size() && !work_->failed()) {
      const size_t sign = std::min(text_.find('%', at_), text_.size());
      out_.AppendSlice(format_, at_, sign);
      at_ = sign;
      if (at_ < text_.size()) Convert();
    }
    const size_t count = is_tuple_ ? value_.sequence->items.size() : 1;
    if (used_ < count && !(used_ == 0 && MayBeUnused())) {
      work_->Wrong("not all values are formatted");
    }
    return work_->String(std::move(out_));
  }

 private:
  Value Take() {
    const size_t index = used_++;
    if (!is_tuple_ && index == 0) return value_;
    if (is_tuple_ && index < value_.sequence->items.size()) return value_.sequence->items[index];
    return work_->Wrong("too few values for a format");
  }

  void Convert() {
    Spec spec;
    spec.trusted = format_.TrustedAt(at_);
    spec.fill = Marked(" ", spec.trusted);
    ++at_;
    bool left = false;
    if (at_ < text_.size() && text_[at_] == '(') {
      work_->Lacks("names in a format with %");
      return;
    }
    for (; at_ < text_.size() &&
           absl::string_view("-+ 0#").find(text_[at_]) != absl::string_view::npos;
         ++at_) {
      left = left || text_[at_] == '-';
      spec.zero = spec.zero || text_[at_] == '0';
      spec.alternate = spec.alternate || text_[at_] == '#';
      if (text_[at_] == '+' || (text_[at_] == ' ' && spec.sign != '+')) spec.sign = text_[at_];
    }
    bool fits = ReadNumber(text_, &at_, &spec.width);
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      fits = fits && ReadNumber(text_, &at_, &spec.precision);
    }
    if (left) spec.align = '<';
    const char type = at_ < text_.size() ? text_[at_++] : 0;
    if (!fits || spec.alternate || type == '*') {
      work_->Lacks("a format's width, precision or \"#\"");
      return;
    }
    Append(type, spec);
  }

  void Append(char type, Spec spec) {
    if (type == '%') return out_.Append("%", spec.trusted);
    const Value value = Take();
    if (work_->failed()) return;
    if (type == 's' || type == 'r') {
      Marked text;
      type == 's' ? AppendStr(work_, value, &text) : AppendRepr(work_, value, &text);
      if (spec.align == 0) spec.align = '>';
      return AppendPadded(work_, text, spec, &out_);
    }
    const bool whole = type == 'd' || type == 'i' || type == 'u';
    if (!whole && type != 'f' && type != 'e' && type != 'F') {
      type == 0 || absl::string_view("gGxXocEa").find(type) == absl::string_view::npos
          ? work_->Wrong("a format that is none")
          : work_->Lacks(absl::StrCat("the format %", std::string(1, type)));
      return;
    }
    if (!value.IsNumber()) {
      work_->Wrong(absl::StrCat("a number's format of a ", TypeName(value)));
      return;
    }
    spec.type = whole ? 'd' : type == 'F' ? 'f' : type;
    if (!whole || value.IsInteger()) return AppendNumber(work_, value, spec, &out_);
    if (!(std::fabs(value.real) < 9.2e18)) {
      work_->Lacks("an integer of more than 64 bits");
      return;
    }
    Value integer = Value::Int(static_cast<int64_t>(value.real));
    integer.trusted = value.trusted;
    AppendNumber(work_, integer, spec, &out_);
  }

  Work* const work_;
  const Marked& format_;
  const std::string& text_;
  const Value value_;
  bool is_tuple_ = false;
  size_t at_ = 0;
  size_t used_ = 0;
  Marked out_;
};

class Braces {
 public:
  Braces(Work* work, const Marked& format, const Arguments& arguments)
      : work_(work), format_(format), text_(format.bytes()), arguments_(arguments) {}

  Value Run() {
    while (at_ < text_.size() && !work_->failed()) {
      const size_t brace = std::min(text_.find_first_of("{}", at_), text_.size());
      out_.AppendSlice(format_, at_, brace);
      at_ = brace;
      if (at_ >= text_.size()) break;
      if (at_ + 1 < text_.size() && text_[at_ + 1] == text_[at_]) {
        out_.AppendSlice(format_, at_, at_ + 1);
        at_ += 2;
      } else if (text_[at_] == '}') {
        return work_->Wrong("a format with a single \"}\"");
      } else {
        Field();
      }
    }
    return work_->String(std::move(out_));
  }

 private:
  void Field() {
    const size_t end = text_.find_first_of("{}", at_ + 1);
    if (end == std::string::npos) {
      work_->Wrong("a format with a single \"{\"");
      return;
    }
    if (text_[end] == '{') {
      work_->Lacks("a field inside a format's field");
      return;
    }
    std::string field = text_.substr(at_ + 1, end - at_ - 1);
    Marked spec;
    const size_t begin = at_ + 1;
    at_ = end + 1;
    if (const size_t colon = field.find(':'); colon != std::string::npos) {
      spec = format_.Slice(begin + colon + 1, end);
      field.resize(colon);
    }
    char conversion = 0;
    if (const size_t mark = field.find('!'); mark != std::string::npos) {
      conversion = mark + 2 == field.size() ? field.back() : '?';
      field.resize(mark);
    }
    Value value = Lookup(field);
    if (work_->failed()) return;
    if (conversion == 's') value = Str(work_, value);
    if (conversion == 'r') {
      Marked text;
      AppendRepr(work_, value, &text);
      value = work_->String(std::move(text));
    }
    if (conversion == 'a' || conversion == '?') work_->Lacks("a format's conversion");
    if (!work_->failed()) Append(value, spec);
  }

  Value Lookup(const std::string& field) {
    const bool number = field.find_first_not_of("0123456789") == std::string::npos;
    if (!number) {
      for (const auto& [name, value] : arguments_.named) {
        if (name == field) return value;
      }
      return field.find_first_of(".[") == std::string::npos
                 ? work_->Wrong(absl::StrCat("a format's field \"", field, "\" has no argument"))
                 : work_->Lacks("a part of a value in a format");
    }
    size_t index = next_;
    if (field.empty() ? next_ == kNumbered : next_ > 0 && next_ != kNumbered) {
      return work_->Wrong("a format with numbered and other fields");
    }
    if (field.empty()) {
      ++next_;
    } else {
      next_ = kNumbered;
      index = field.size() > 6 ? kNumbered : std::stoul(field);
    }
    if (index < arguments_.values.size()) return arguments_.values[index];
    return work_->Wrong("too few values for a format");
  }

  bool ReadSpec(const Marked& format, Spec* spec) {
    const std::string& text = format.bytes();
    spec->trusted = format.trusted();
    spec->fill = Marked(" ", spec->trusted);
    size_t at = 0;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (!text.empty()) {
      size_t after = 0;
      Next(text, &after);
      if (after < text.size() && is_align(text[after])) {
        spec->fill = format.Slice(0, after);
        spec->align = text[after];
        at = after + 1;
      } else if (is_align(text[0])) {
        spec->align = text[0];
        at = 1;
        if (text.substr(at, 1) == "0") spec->fill = Marked("0", spec->trusted);
      }
    }
    const auto skip = [&](char c) {
      const bool is = at < text.size() && text[at] == c;
      at += is ? 1 : 0;
      return is;
    };
    if (skip('+'))
      spec->sign = '+';
    else if (skip(' '))
      spec->sign = ' ';
    else
      skip('-');
    if (skip('0')) spec->zero = true;
    bool fits = ReadNumber(text, &at, &spec->width);
    if (skip(',')) spec->comma = true;
    if (skip('.')) {
      fits = fits && at < text.size() && std::isdigit(static_cast<uint8_t>(text[at])) != 0 &&
             ReadNumber(text, &at, &spec->precision);
    }
    if (at < text.size()) spec->type = text[at++];
    return fits && at == text.size() && spec->align != '=';
  }

  void Append(const Value& value, const Marked& format) {
    const std::string& text = format.bytes();
    if (text.empty()) return AppendStr(work_, value, &out_);
    Spec spec;
    if (!ReadSpec(format, &spec)) {
      work_->Lacks(absl::StrCat("the format \"", text.substr(0, 40), "\""));
      return;
    }
    if (value.Is(Value::kString)) {
      if (spec.type == 0 || spec.type == 's') {
        if (!spec.zero && !spec.comma && spec.sign == '-') {
          return AppendPadded(work_, *value.text, spec, &out_);
        }
      }
    } else if (value.Is(Value::kInt) && spec.type == 0) {
      spec.type = 'd';
    }
    const bool whole = spec.type == 'd' && value.IsInteger() && spec.precision < 0;
    const bool real = spec.type == 'f' || spec.type == 'e' || spec.type == '%';
    if (value.IsNumber() && (whole || real)) return AppendNumber(work_, value, spec, &out_);
    work_->Lacks(absl::StrCat("the format \"", text.substr(0, 40), "\" of a ", TypeName(value)));
  }

  static constexpr size_t kNumbered = 1'000'000'000;

  Work* const work_;
  const Marked& format_;
  const std::string& text_;
  const Arguments& arguments_;
  size_t at_ = 0;
  size_t next_ = 0;
  Marked out_;
};

}  // namespace

Value FormatPercent(Work* work, const Marked& format, const Value& value) {
  return Percent(work, format, value).Run();
}

Value FormatBraces(Work* work, const Marked& format, const Arguments& arguments) {
  return Braces(work, format, arguments).Run();
}

}  // namespace athanor::jinja
