// What a run finds: facts and answers as rows of JSON, each written when it is known; answers are
// held against what was predicted before any device was seen.
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
// The expect.json that this program was built with.
absl::string_view ExpectJson();

// Used by one thread. Several processes may append to one file: a row is one write.
class GpuReport {
 public:
  static absl::StatusOr<GpuReport> Open(const std::string& path, std::vector<Question> questions);
  GpuReport(GpuReport&& other) noexcept;
  ~GpuReport();

  const std::vector<Question>& questions() const { return questions_; }

  // A finding that no prediction is about.
  void Fact(absl::string_view part, absl::string_view what, Json values);
  // REQUIRES: a question of this name
  void Answer(absl::string_view question, const Median& value, Json details = Json::object());
  void Answer(absl::string_view question, double value, Json details = Json::object());
  // A part, or one of its questions, that did not come to an answer.
  void Failed(absl::string_view name, absl::string_view why);

 private:
  GpuReport(int fd, std::vector<Question> questions)
      : fd_(fd), questions_(std::move(questions)), begin_(std::chrono::steady_clock::now()) {}
  void Write(Json row);

  int fd_;
  std::vector<Question> questions_;
  std::chrono::steady_clock::time_point begin_;
};

// Returns the rows of a file; what is no row of JSON is left out.
std::vector<Json> ReadRows(const std::string& path);

// Returns the last answer to a question among `rows`; nullptr if there is none.
const Json* FindAnswer(const Question& question, const std::vector<Json>& rows);

// Every question with its answer in `rows`, or that it has none; then what failed, and the sums.
std::string Table(const std::vector<Question>& questions, const std::vector<Json>& rows);

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_REPORT_H_
