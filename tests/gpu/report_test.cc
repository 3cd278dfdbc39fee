#include "tests/gpu/report.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTwo[] = R"([
  {"question": "graph.node_us", "asks": "A node?", "predicted": "1.3", "unit": "us",
   "reach": {"at_most": 1.5}, "decision": "record", "otherwise": "fuse"},
  {"question": "sticky.reset", "asks": "A reset?", "predicted": "0", "unit": "",
   "reach": {"at_least": 0, "at_most": 0}, "decision": "restart", "otherwise": "reset"}])";

std::string Output(const char* name) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::remove(path.c_str());
  return path;
}

TEST(QuestionsTest, Parse) {
  const absl::StatusOr<std::vector<Question>> questions = ParseQuestions(kTwo);
  ASSERT_TRUE(questions.ok()) << questions.status();
  ASSERT_EQ(questions->size(), 2);
  const Question &node = (*questions)[0], &reset = (*questions)[1];
  EXPECT_EQ(node.part(), "graph");
  EXPECT_EQ(node.Reach(), "at most 1.5 us");
  EXPECT_TRUE(node.Holds(1.5));
  EXPECT_FALSE(node.Holds(1.6));
  EXPECT_FALSE(node.Holds(NAN));
  EXPECT_EQ(reset.Reach(), "0");
  EXPECT_TRUE(reset.Holds(0));
  EXPECT_FALSE(reset.Holds(0.5));
  EXPECT_FALSE(reset.Holds(-1));
}

TEST(QuestionsTest, WrongRowsAreNamed) {
  struct Case {
    const char *from, *to, *message;
  };
  for (const Case& one : {
           Case{"\"asks\": \"A node?\", ", "", "graph.node_us: \"asks\" has to be a text"},
           Case{"\"A reset?\"", "3", "sticky.reset: \"asks\" has to be a text"},
           Case{"\"A reset?\"", "\"\"", "sticky.reset: \"asks\" is empty"},
           Case{"\"unit\": \"us\"", "\"units\": \"us\"", "\"unit\" has to be a text"},
           Case{"\"asks\"", "\"why\": 1, \"asks\"", "graph.node_us: has an unknown \"why\""},
           Case{"{\"at_most\": 1.5}", "{}", "graph.node_us: \"reach\" has to be"},
           Case{"\"at_most\": 1.5", "\"below\": 1.5", "\"reach\" has \"below\": 1.5"},
           Case{"1.5", "\"1.5\"", "\"reach\" has \"at_most\": \"1.5\""},
           Case{"sticky.reset", "graph.node_us", "graph.node_us: is asked twice"},
           Case{"sticky.reset", "sticky", "sticky: is not named PART.WHAT"},
           Case{"[", "", "no list of questions"},
       }) {
    std::string text = kTwo;
    const size_t at = text.find(one.from);
    ASSERT_NE(at, text.npos) << one.from;
    text.replace(at, std::strlen(one.from), one.to);
    const absl::Status status = ParseQuestions(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.to;
    EXPECT_THAT(status.message(), HasSubstr(one.message));
  }
}

TEST(ReportTest, RowsHoldAnswersAgainstPredictions) {
  const std::string path = Output("rows.jsonl");
  absl::StatusOr<GpuReport> report = GpuReport::Open(path, ParseQuestions(kTwo).value());
  ASSERT_TRUE(report.ok()) << report.status();
  report->Fact("environment", "device", {{"name", "a card"}});
  report->Answer("graph.node_us", Median{1.23456, 1.2, 1.3, 15}, {{"nodes", 1000}});
  // Each row is there when it is known.
  EXPECT_EQ(ReadRows(path).size(), 2);
  report->Answer("sticky.reset", 1);
  report->Answer("graph.unknown", 1);
  report->Failed("graph", "a \xff byte");
  const std::vector<Json> rows = ReadRows(path);
  ASSERT_EQ(rows.size(), 5);
  EXPECT_EQ(rows[0]["fact"], "device");
  EXPECT_EQ(rows[1]["part"], "graph");
  EXPECT_EQ(rows[1]["value"], 1.235);
  EXPECT_EQ(rows[1]["low"], 1.2);
  EXPECT_EQ(rows[1]["samples"], 15);
  EXPECT_EQ(rows[1]["held"], true);
  EXPECT_EQ(rows[1]["decision"], "record");
  EXPECT_EQ(rows[1]["details"]["nodes"], 1000);
  EXPECT_EQ(rows[2]["held"], false);
  EXPECT_EQ(rows[2]["decision"], "reset");
  EXPECT_EQ(rows[3]["failed"], "graph.unknown");
  EXPECT_EQ(rows[4]["failed"], "graph");
  EXPECT_FALSE(GpuReport::Open("/no/such/folder/x", {}).ok());
}

TEST(ReportTest, RowsCountFromTheRunsBegin) {
  const std::string path = Output("begin.jsonl");
  const auto begin = std::chrono::steady_clock::now() - std::chrono::seconds(100);
  GpuReport::Open(path, ParseQuestions(kTwo).value(), begin)->Answer("graph.node_us", 1);
  EXPECT_GE(ReadRows(path).at(0)["after_s"], 100);
}

TEST(ReportTest, WholeNumbersArePrintedAsSuch) {
  const std::vector<Question> questions = ParseQuestions(kTwo).value();
  const std::string path = Output("whole.jsonl");
  GpuReport report = GpuReport::Open(path, questions).value();
  report.Answer("graph.node_us", 13012);
  report.Answer("sticky.reset", 12345.678);
  const std::string table = Table(questions, ReadRows(path));
  EXPECT_THAT(table, HasSubstr(" 13012 us "));
  EXPECT_THAT(table, HasSubstr(" 12350 "));
}

TEST(ReportTest, TheTableTellsEveryQuestion) {
  const std::vector<Question> questions = ParseQuestions(kTwo).value();
  const std::string path = Output("table.jsonl");
  {
    GpuReport report = GpuReport::Open(path, questions).value();
    report.Answer("graph.node_us", 9);
    report.Answer("graph.node_us", 2);
    report.Failed("sticky", "its process ended by signal 11");
  }
  std::ofstream(path, std::ios::app)
      << "cut off {\n{\"question\": 3, \"held\": 7}\n{\"part\": []}\n";
  const std::string table = Table(questions, ReadRows(path));
  EXPECT_THAT(table, HasSubstr("graph.node_us           2 us       NOT as predicted  at most 1.5"));
  EXPECT_THAT(table, HasSubstr("us: fuse\n"));
  EXPECT_THAT(table, HasSubstr("sticky.reset   no answer (reach: 0)\n"));
  EXPECT_THAT(table, HasSubstr("sticky: its process ended by signal 11\n"));
  EXPECT_THAT(table, HasSubstr("0 as predicted, 1 not, 1 without an answer\n"));
}

}  // namespace
}  // namespace athanor
