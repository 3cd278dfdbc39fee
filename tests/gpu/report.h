// Writes a run's facts and answers as rows of JSON, each when it is known, and holds answers
// against predictions that were made before any device was seen.
//
//   ASSIGN_OR_RETURN(std::vector<Question> questions, ParseQuestions(ExpectJson()));
//   ASSIGN_OR_RETURN(GpuReport report, GpuReport::Open("result.jsonl", questions));
//   report.Answer("graph.node_us", MedianOf(samples), {{"nodes", 1000}});
//   puts(Table(ReadRows("result.jsonl")).c_str());
#ifndef ATHANOR_TESTS_GPU_REPORT_H_
#define ATHANOR_TESTS_GPU_REPORT_H_

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/tuner/measure/median.h"

namespace athanor {

using Json = nlohmann::ordered_json;

// A row of expect.json.
struct Question {
  absl::string_view part() const { return absl::string_view(name).substr(0, name.find('.')); }
  bool Holds(double value) const {
    return (!at_least || value >= *at_least) && (!at_most || value <= *at_most);
  }
  std::string Reach() const;  // "at most 1.3 us"

  std::string name;  // PART.WHAT
  std::string asks;
  std::string predicted;
  std::string unit;  // "" for numbers without one
  std::optional<double> at_least, at_most;
  std::string decision;   // if the prediction holds
  std::string otherwise;  // if not
};

// INVALID_ARGUMENT names the row and the field that is missing, unknown or of another kind.
absl::StatusOr<std::vector<Question>> ParseQuestions(absl::string_view json);
// Returns the expect.json that this program was built with.
absl::string_view ExpectJson();

// Used by one thread. Several processes may append to one file: a row is one write.
class GpuReport {
 public:
  // Rows say how long after `begin` they were written.
  static absl::StatusOr<GpuReport> Open(
      const std::string& path, std::vector<Question> questions,
      std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now());
  GpuReport(GpuReport&& other) noexcept;
  ~GpuReport();

  const std::vector<Question>& questions() const { return questions_; }

  // Writes a finding that no prediction is about.
  void Fact(absl::string_view part, absl::string_view what, Json values);
  // REQUIRES: a question of this name
  void Answer(absl::string_view question, const Median& value, Json details = Json::object());
  void Answer(absl::string_view question, double value, Json details = Json::object());
  // Writes why a part, or one of its questions, did not come to an answer.
  void Failed(absl::string_view name, absl::string_view why);

 private:
  GpuReport(int fd, std::vector<Question> questions, std::chrono::steady_clock::time_point begin)
      : fd_(fd), questions_(std::move(questions)), begin_(begin) {}
  void Write(Json row);

  int fd_;
  std::vector<Question> questions_;
  std::chrono::steady_clock::time_point begin_;
};

// Returns the rows of a file without lines that are no JSON.
std::vector<Json> ReadRows(const std::string& path);

// Returns the last answer to a question among `rows`; nullptr if there is none.
const Json* FindAnswer(const Question& question, const std::vector<Json>& rows);

// Returns a line for each question with its answer in `rows`, if any; then failures, and the sums.
std::string Table(const std::vector<Question>& questions, const std::vector<Json>& rows);

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_REPORT_H_
