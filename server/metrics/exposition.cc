#include "server/metrics/exposition.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace athanor {
namespace {

std::string Escaped(absl::string_view value) {
  return absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

std::string EscapedHelp(absl::string_view help) {
  return absl::StrReplaceAll(help, {{"\\", "\\\\"}, {"\n", "\\n"}});
}

// Returns the text of a bound or a sum, in the unit of the cells.
std::string ObservedText(const MetricRow& row, int64_t value) {
  return row.unit == "seconds" ? SecondsText(value) : absl::StrCat(value);
}

// Returns the shortest text that parses to the same number.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

}  // namespace

std::vector<absl::string_view> LabelNames(const MetricRow& row) {
  std::vector<absl::string_view> names;
  if (row.scope == MetricScope::kVersion) names = {"model", "version"};
  names.insert(names.end(), row.labels.begin(), row.labels.end());
  return names;
}

std::string SecondsText(int64_t nanoseconds) {
  constexpr int64_t kSecond = 1'000'000'000;
  std::string text =
      absl::StrFormat("%s%d.%09d", nanoseconds < 0 ? "-" : "", std::abs(nanoseconds / kSecond),
                      std::abs(nanoseconds % kSecond));
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

void Exposition::Begin(const MetricRow& row) {
  absl::StrAppend(&text_, "# HELP ", row.name, " ", EscapedHelp(row.help), "\n# TYPE ", row.name,
                  " ", MetricTypeName(row.type), "\n");
}

void Exposition::AddName(const MetricRow& row, absl::string_view suffix, const Labels& labels,
                         absl::string_view le) {
  absl::StrAppend(&text_, row.name, suffix);
  const std::vector<absl::string_view> names = LabelNames(row);
  char separator = '{';
  for (size_t i = 0; i < names.size() && i < labels.size(); ++i) {
    absl::StrAppend(&text_, std::string(1, separator), names[i], "=\"", Escaped(labels[i]), "\"");
    separator = ',';
  }
  if (!le.empty()) {
    absl::StrAppend(&text_, std::string(1, separator), "le=\"", le, "\"");
    separator = ',';
  }
  absl::StrAppend(&text_, separator == '{' ? " " : "} ");
}

void Exposition::AddCounter(const MetricRow& row, const Labels& labels, int64_t value) {
  AddName(row, "", labels);
  absl::StrAppend(&text_, value, "\n");
}

void Exposition::AddValue(const MetricRow& row, const Labels& labels, double value) {
  AddName(row, "", labels);
  absl::StrAppend(&text_, NumberText(value), "\n");
}

void Exposition::AddHistogram(const MetricRow& row, const Labels& labels,
                              const HistogramCounts& counts) {
  int64_t below = 0;
  for (size_t i = 0; i < counts.buckets.size(); ++i) {
    below += counts.buckets[i];
    AddName(row, "_bucket", labels,
            i < row.bounds.size() ? ObservedText(row, row.bounds[i]) : "+Inf");
    absl::StrAppend(&text_, below, "\n");
  }
  AddName(row, "_sum", labels);
  absl::StrAppend(&text_, ObservedText(row, counts.sum), "\n");
  AddName(row, "_count", labels);
  absl::StrAppend(&text_, below, "\n");
}

}  // namespace athanor
