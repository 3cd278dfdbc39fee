#include "tests/gpu/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr char kExpect[] =
#include "tests/gpu/expect.inc"
    ;

absl::Status Bad(absl::string_view row, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("expect.json: ", row, ": ", what));
}

// A row's text or number under a name; rows may be of another program's making.
std::string Text(const Json& row, const char* name) {
  const auto at = row.find(name);
  return at != row.end() && at->is_string() ? at->get<std::string>() : "";
}
double Number(const Json& row, const char* name) {
  const auto at = row.find(name);
  return at != row.end() && at->is_number() ? at->get<double>() : NAN;
}

struct TextField {
  const char* name;
  std::string Question::* to;
  bool may_be_empty;
};
constexpr TextField kTexts[] = {
    {"question", &Question::name, false},       {"asks", &Question::asks, false},
    {"predicted", &Question::predicted, false}, {"unit", &Question::unit, true},
    {"decision", &Question::decision, false},   {"otherwise", &Question::otherwise, false},
};

absl::StatusOr<Question> ParseQuestion(const Json& row) {
  const std::string label = Text(row, "question").empty() ? row.dump() : Text(row, "question");
  if (!row.is_object()) return Bad(label, "is no object");
  Question question;
  std::set<std::string> unknown;
  for (const auto& [name, value] : row.items()) unknown.insert(name);
  for (const TextField& field : kTexts) {
    unknown.erase(field.name);
    const auto at = row.find(field.name);
    if (at == row.end() || !at->is_string() || (!field.may_be_empty && at->empty())) {
      return Bad(label, absl::StrCat("\"", field.name, "\" has to be a text"));
    }
    question.*field.to = *at;
    if (!field.may_be_empty && (question.*field.to).empty()) {
      return Bad(label, absl::StrCat("\"", field.name, "\" is empty"));
    }
  }
  unknown.erase("reach");
  const auto reach = row.find("reach");
  if (reach == row.end() || !reach->is_object() || reach->empty()) {
    return Bad(label, "\"reach\" has to be {\"at_least\": number, \"at_most\": number} or one");
  }
  for (const auto& [name, value] : reach->items()) {
    if ((name != "at_least" && name != "at_most") || !value.is_number()) {
      return Bad(label, absl::StrCat("\"reach\" has \"", name, "\": ", value.dump()));
    }
    (name == "at_least" ? question.at_least : question.at_most) = value.get<double>();
  }
  if (!unknown.empty())
    return Bad(label, absl::StrCat("has an unknown \"", *unknown.begin(), "\""));
  if (!absl::StrContains(question.name, '.')) return Bad(label, "is not named PART.WHAT");
  return question;
}

// Keeps four digits, more than any of these measurements is good for; whole numbers are counts.
double Rounded(double value) {
  if (!std::isfinite(value) || value == std::round(value)) return value;
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

}  // namespace

std::string Question::Reach() const {
  const std::string tail = unit.empty() ? "" : " " + unit;
  if (at_least && at_most && *at_least == *at_most) return absl::StrCat(*at_least, tail);
  return absl::StrCat(at_least ? absl::StrCat("at least ", *at_least) : "",
                      at_least && at_most ? ", " : "",
                      at_most ? absl::StrCat("at most ", *at_most) : "", tail);
}

absl::string_view ExpectJson() { return kExpect; }

absl::StatusOr<std::vector<Question>> ParseQuestions(absl::string_view json) {
  const Json rows = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!rows.is_array()) return absl::InvalidArgumentError("expect.json is no list of questions");
  std::vector<Question> questions;
  std::set<std::string> names;
  for (const Json& row : rows) {
    ASSIGN_OR_RETURN(Question question, ParseQuestion(row));
    if (!names.insert(question.name).second) return Bad(question.name, "is asked twice");
    questions.push_back(std::move(question));
  }
  return questions;
}

absl::StatusOr<GpuReport> GpuReport::Open(const std::string& path, std::vector<Question> questions,
                                          std::chrono::steady_clock::time_point begin) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--output ", path, " cannot be written: ", std::strerror(errno)));
  }
  return GpuReport(fd, std::move(questions), begin);
}

GpuReport::GpuReport(GpuReport&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      questions_(std::move(other.questions_)),
      begin_(other.begin_) {}

GpuReport::~GpuReport() {
  if (fd_ >= 0) close(fd_);
}

void GpuReport::Fact(absl::string_view part, absl::string_view what, Json values) {
  Json row = {{"part", std::string(part)}, {"fact", std::string(what)}};
  row.update(values);
  Write(std::move(row));
}

void GpuReport::Answer(absl::string_view question, double value, Json details) {
  Answer(question, Median{value, value, value, 1}, std::move(details));
}

void GpuReport::Answer(absl::string_view name, const Median& value, Json details) {
  const auto question = std::find_if(questions_.begin(), questions_.end(),
                                     [&](const Question& q) { return q.name == name; });
  if (question == questions_.end()) {
    return Failed(name, "expect.json does not ask this");
  }
  const bool held = question->Holds(value.value);
  Write({{"part", std::string(question->part())},
         {"question", question->name},
         {"value", Rounded(value.value)},
         {"low", Rounded(value.low)},
         {"high", Rounded(value.high)},
         {"samples", value.samples},
         {"unit", question->unit},
         {"predicted", question->predicted},
         {"reach", question->Reach()},
         {"held", held},
         {"decision", held ? question->decision : question->otherwise},
         {"details", std::move(details)}});
}

void GpuReport::Failed(absl::string_view name, absl::string_view why) {
  Write({{"failed", std::string(name)}, {"why", std::string(why)}});
}

void GpuReport::Write(Json row) {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin_;
  row["after_s"] = Rounded(since.count());
  const std::string line = row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    done += n;
  }
}

std::vector<Json> ReadRows(const std::string& path) {
  std::vector<Json> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object()) rows.push_back(std::move(row));
  }
  return rows;
}

const Json* FindAnswer(const Question& question, const std::vector<Json>& rows) {
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (Text(*row, "question") == question.name) return &*row;
  }
  return nullptr;
}

std::string Table(const std::vector<Question>& questions, const std::vector<Json>& rows) {
  size_t width = 0, held = 0, missed = 0, open = 0;
  for (const Question& question : questions) width = std::max(width, question.name.size());
  std::string text;
  for (const Question& question : questions) {
    const Json* const answer = FindAnswer(question, rows);
    absl::StrAppendFormat(&text, "%-*s  ", static_cast<int>(width), question.name);
    if (answer == nullptr) {
      ++open;
      absl::StrAppend(&text, "no answer (reach: ", question.Reach(), ")\n");
      continue;
    }
    const bool holds = answer->contains("held") && (*answer)["held"] == true;
    ++(holds ? held : missed);
    const double value = Number(*answer, "value");
    const bool whole = value == std::round(value) && std::fabs(value) < 1e10;
    absl::StrAppendFormat(&text, "%10.*g %-8s %s  %s: %s\n", whole ? 10 : 4, value, question.unit,
                          holds ? "as predicted" : "NOT as predicted", question.Reach(),
                          Text(*answer, "decision"));
  }
  for (const Json& row : rows) {
    if (row.contains("failed")) {
      absl::StrAppend(&text, Text(row, "failed"), ": ", Text(row, "why"), "\n");
    }
  }
  absl::StrAppend(&text, held, " as predicted, ", missed, " not, ", open, " without an answer\n");
  return text;
}

}  // namespace athanor
