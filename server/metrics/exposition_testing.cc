#include "server/metrics/exposition_testing.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

bool IsName(absl::string_view name, bool colons) {
  if (name.empty() || absl::ascii_isdigit(name[0])) return false;
  for (char c : name) {
    if (!absl::ascii_isalnum(c) && c != '_' && !(colons && c == ':')) return false;
  }
  return true;
}

struct Sample {
  std::string name;
  LabelSet labels;
  double value = 0;
};

// Parses one sample line from left to right.
class SampleReader {
 public:
  explicit SampleReader(absl::string_view line) : rest_(line) {}

  absl::StatusOr<Sample> Read() {
    Sample sample;
    sample.name = std::string(Word(/*colons=*/true));
    if (!IsName(sample.name, true)) return Wrong("no metric name");
    if (absl::ConsumePrefix(&rest_, "{")) {
      RETURN_IF_ERROR(Labels(&sample.labels));
    }
    if (!absl::ConsumePrefix(&rest_, " ")) return Wrong("no space before the value");
    if (!Number(rest_, &sample.value)) return Wrong("no value");
    return sample;
  }

  static bool Number(absl::string_view text, double* value) {
    if (text == "+Inf" || text == "-Inf") {
      *value = (text[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
      return true;
    }
    // SimpleAtod would accept spaces, "inf" and more.
    return text.find_first_not_of("0123456789+-.eE") == absl::string_view::npos &&
           absl::SimpleAtod(text, value);
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(what, " at '", rest_, "'"));
  }

  absl::string_view Word(bool colons) {
    size_t end = 0;
    while (end < rest_.size() && IsName(rest_.substr(0, end + 1), colons)) ++end;
    const absl::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return word;
  }

  absl::Status Labels(LabelSet* labels) {
    while (true) {
      const std::string name(Word(/*colons=*/false));
      if (name.empty() || !absl::ConsumePrefix(&rest_, "=\"")) return Wrong("no label");
      std::string value;
      RETURN_IF_ERROR(Text(&value));
      if (!labels->emplace(name, value).second) return Wrong("a label twice");
      if (absl::ConsumePrefix(&rest_, "}")) return absl::OkStatus();
      if (!absl::ConsumePrefix(&rest_, ",")) return Wrong("no comma between labels");
    }
  }

  absl::Status Text(std::string* value) {
    while (!rest_.empty()) {
      const char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '"') return absl::OkStatus();
      if (c != '\\') {
        value->push_back(c);
        continue;
      }
      const char escaped = rest_.empty() ? '\0' : rest_[0];
      if (escaped != '\\' && escaped != '"' && escaped != 'n') return Wrong("unknown escape");
      value->push_back(escaped == 'n' ? '\n' : escaped);
      rest_.remove_prefix(1);
    }
    return Wrong("a label value without an end");
  }

  absl::string_view rest_;
};

class Parser {
 public:
  absl::Status Line(absl::string_view line) {
    if (absl::ConsumePrefix(&line, "# HELP ")) return Help(line);
    if (absl::ConsumePrefix(&line, "# TYPE ")) return Type(line);
    if (absl::StartsWith(line, "#")) return absl::InvalidArgumentError("an unknown comment");
    return Value(line);
  }

  absl::StatusOr<Families> Take() {
    for (const auto& [name, family] : families_) {
      if (family.type.empty()) return absl::InvalidArgumentError(name + ": no TYPE");
      if (family.type != "histogram") continue;
      RETURN_IF_ERROR(CheckHistogram(name, family));
    }
    return std::move(families_);
  }

 private:
  absl::Status Help(absl::string_view line) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (!IsName(parts.first, true)) return absl::InvalidArgumentError("HELP of no metric");
    if (!families_.try_emplace(parts.first).second) {
      return absl::InvalidArgumentError(parts.first + " comes twice");
    }
    current_ = parts.first;
    families_[current_].help = parts.second;
    return absl::OkStatus();
  }

  absl::Status Type(absl::string_view line) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, ' ');
    if (parts.first != current_) return absl::InvalidArgumentError("TYPE without its HELP before");
    static const std::set<std::string> kTypes = {"counter", "gauge", "histogram"};
    if (!kTypes.contains(parts.second)) return absl::InvalidArgumentError("no such type");
    Family& family = families_[current_];
    if (!family.type.empty()) return absl::InvalidArgumentError("TYPE twice");
    family.type = parts.second;
    return absl::OkStatus();
  }

  absl::Status Value(absl::string_view line) {
    ASSIGN_OR_RETURN(Sample sample, SampleReader(line).Read());
    absl::string_view suffix = sample.name;
    if (!absl::ConsumePrefix(&suffix, current_) || current_.empty()) {
      return absl::InvalidArgumentError("a sample outside its family");
    }
    Family& family = families_[current_];
    const bool histogram = family.type == "histogram";
    const bool parts = suffix == "_bucket" || suffix == "_sum" || suffix == "_count";
    if (histogram ? !parts : !suffix.empty()) {
      return absl::InvalidArgumentError("a sample name that its type does not have");
    }
    // Counters count, but for times.
    const bool whole = !absl::EndsWith(current_, "_seconds_total");
    if (family.type == "counter" &&
        (!(sample.value >= 0) || (whole && sample.value != std::floor(sample.value)))) {
      return absl::InvalidArgumentError("a counter that is no whole number");
    }
    if (!family.samples[sample.name].emplace(sample.labels, sample.value).second) {
      return absl::InvalidArgumentError("a series twice");
    }
    return absl::OkStatus();
  }

  static absl::Status CheckHistogram(const std::string& name, const Family& family) {
    std::map<LabelSet, std::map<double, double>> series;
    if (family.samples.contains(name + "_bucket")) {
      for (const auto& [labels, value] : family.samples.at(name + "_bucket")) {
        LabelSet others = labels;
        double le = 0;
        if (!labels.contains("le") || !SampleReader::Number(labels.at("le"), &le)) {
          return absl::InvalidArgumentError(name + ": a bucket without le");
        }
        others.erase("le");
        series[others][le] = value;
      }
    }
    for (const auto& [labels, buckets] : series) {
      double before = 0;
      for (const auto& [le, value] : buckets) {
        if (value < before) return absl::InvalidArgumentError(name + ": buckets fall");
        before = value;
      }
      if (!std::isinf(buckets.rbegin()->first) || family.Value(labels, "_count") != before ||
          !family.Value(labels, "_sum").has_value()) {
        return absl::InvalidArgumentError(name + ": +Inf, _count or _sum do not fit");
      }
    }
    return absl::OkStatus();
  }

  Families families_;
  std::string current_;
};

}  // namespace

std::optional<double> Family::Value(const LabelSet& labels, const std::string& suffix) const {
  for (const auto& [name, by_labels] : samples) {
    if (!absl::EndsWith(name, suffix)) continue;
    if (auto found = by_labels.find(labels); found != by_labels.end()) return found->second;
  }
  return std::nullopt;
}

absl::StatusOr<Families> ParseExposition(absl::string_view text) {
  if (!absl::EndsWith(text, "\n")) return absl::InvalidArgumentError("no line end at the end");
  text.remove_suffix(1);
  Parser parser;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::Status s = parser.Line(line); !s.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " '", line, "': ", s.message()));
    }
  }
  return parser.Take();
}

}  // namespace athanor
