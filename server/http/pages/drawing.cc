#include "server/http/pages/drawing.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "server/http/pages/words.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

std::string DurationText(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  if (s < 60) return absl::StrCat(s, " s");
  if (s < 3600) return absl::StrCat(s / 60, " min ", s % 60, " s");
  if (s < 86400) return absl::StrCat(s / 3600, " h ", s % 3600 / 60, " min");
  return absl::StrCat(s / 86400, " d ", s % 86400 / 3600, " h");
}

std::string SecondsText(double value) {
  if (value >= 60) return DurationText(value);
  if (value >= 1) return absl::StrFormat("%.2f s", value);
  if (value >= 1e-3) return absl::StrFormat("%.2f ms", value * 1e3);
  return absl::StrFormat("%.0f \u00b5s", value * 1e6);
}

std::string BytesText(double value) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  if (unit == 0 || value >= 100) return absl::StrCat(std::llround(value), " ", kUnits[unit]);
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

}  // namespace

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string Shown(const Json& value, absl::string_view as) {
  if (!value.is_number()) return kMissing;
  const double number = value.get<double>();
  if (as == "bytes") return BytesText(number);
  if (as == "share") return absl::StrFormat("%.1f %%", number * 100);
  if (as == "mean") return absl::StrFormat("%.1f", number);
  if (as == "seconds") return SecondsText(number);
  if (as == "duration") return DurationText(number);
  return value.is_number_float() ? absl::StrCat(number) : absl::StrCat(value.get<int64_t>());
}

std::string Spaced(absl::string_view name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", " "}});
}

std::string Word(absl::string_view word) {
  const absl::string_view meaning = MeaningOf(word);
  if (meaning.empty()) return Escaped(word);
  return absl::StrCat("<span class=\"word\" title=\"", Escaped(meaning), "\">", Escaped(word),
                      "</span>");
}

std::string Mark(absl::string_view text, absl::string_view kind) {
  return absl::StrCat("<span class=\"mark ", kind, "\">", Escaped(text), "</span> ");
}

const Json& Drawing::At(absl::string_view path) const {
  static const Json& null = *new Json();
  const Json* value = &status_;
  for (absl::string_view key : absl::StrSplit(path, '.')) {
    if (value->is_array()) {
      value = &value->at(std::stoul(std::string(key)));
      continue;
    }
    if (!value->is_object()) return null;
    const auto found = value->find(std::string(key));
    if (found == value->end()) return null;
    value = &*found;
  }
  return *value;
}

std::string Drawing::Text(absl::string_view path) const {
  const Json& value = At(path);
  return value.is_string() ? Escaped(value.get_ref<const std::string&>()) : std::string();
}

bool Drawing::Is(absl::string_view path) const {
  const Json& value = At(path);
  return value.is_boolean() && value.get<bool>();
}

std::string Drawing::Field(absl::string_view path, absl::string_view as) const {
  return absl::StrCat("<span data-path=\"", path, "\" data-as=\"", as, "\">",
                      Escaped(Shown(At(path), as)), "</span>");
}

std::string Drawing::Rate(absl::string_view path) {
  return absl::StrCat("<span data-rate=\"", path, "\">", kMissing, "</span>");
}

std::string Drawing::Bar(absl::string_view path, double max, absl::string_view label) const {
  const Json& value = At(path);
  return absl::StrCat("<progress max=\"", max > 0 ? max : 1, "\" value=\"",
                      value.is_number() ? value.get<double>() : 0, "\" data-path=\"", path,
                      "\" aria-label=\"", label, "\"></progress>");
}

std::string Drawing::Row(absl::string_view word, absl::string_view path,
                         absl::string_view as) const {
  return TextRow(word, Field(path, as));
}

std::string Drawing::TextRow(absl::string_view word, absl::string_view text) {
  return absl::StrCat("<dt>", Word(word), "</dt><dd>", text.empty() ? kMissing : text, "</dd>");
}

std::string Closed(absl::string_view key, absl::string_view summary, absl::string_view content) {
  return absl::StrCat("<details class=\"small\" data-key=\"", Escaped(key), "\"><summary>", summary,
                      "</summary>", content, "</details>");
}

}  // namespace athanor
