#include "clients/bench/figures/report.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/bench/figures/svg.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Checks XML's rules for a page: every opened tag is closed in order, and text is escaped.
std::string Unbalanced(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return "unclosed <";
    const std::string tag = html.substr(at + 1, end - at - 1);
    at = end;
    if (tag[0] == '!' || tag.back() == '/') continue;
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (name[0] != '/') {
      open.push_back(name);
    } else if (open.empty() || open.back() != name.substr(1)) {
      return "</" + name + " closes " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "open: " + open.back();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

json Summary(const std::string& label) {
  return {{"model_id", "m"},
          {"label", label},
          {"arrival", "poisson"},
          {"completed", 10},
          {"p99_e2el_ms", 4.5},
          {"ci95", {{"p99_e2el_ms", {4.0, 5.0}}}},
          {"formula", {{"p99_e2el_ms", "percentile 99"}}},
          {"generator", {{"kept_up", true}}},
          {"errors", json::array()},
          {"series",
           {{"t", {0.5, 1.5, 2.5}},
            {"due", {4, 3, 3}},
            {"completed", {4, 3, 3}},
            {"p50", {1.0, nullptr, 2.0}},
            {"p99", {4.0, nullptr, 5.0}}}},
          {"cdf", {{"e2el", {{"share", {0.0, 0.5, 0.9}}, {"ms", {1.0, 2.0, 5.0}}}}}}};
}

TEST(SvgTest, TicksAreRoundAndInside) {
  EXPECT_THAT(Ticks(0, 10, Scale::kLinear, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(Ticks(0, 0.7, Scale::kLinear, 4).size(), 4u);
  EXPECT_THAT(Ticks(1, 100, Scale::kLog, 7), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(Ticks(0.01, 1000, Scale::kLog, 7).size(), 6u);
  EXPECT_THAT(Ticks(0, 0.99, Scale::kNines, 5), ElementsAre(0, 0.5, 0.9, 0.99));
}

TEST(SvgTest, LinesAreBrokenWhereNothingWasMeasured) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const Plot plot{"p", {"s"}, {"ms"}, {{"run", {0, 1, 2, 3, 4}, {1, 2, none, 2, 1}}}};
  const std::string svg = PlotSvg(plot);
  const size_t path = svg.find("<path");
  const std::string line = svg.substr(path, svg.find("/>", path) - path);
  EXPECT_EQ(Count(line, "M"), 2);
  EXPECT_EQ(Count(line, "L"), 2);
  EXPECT_EQ(Count(svg, "<circle"), 4);
  EXPECT_EQ(Count(svg, "alone"), 0);
  EXPECT_EQ(Unbalanced(svg), "");
  // The value 1 is half of 2, so it lies half way between the axis and the top.
  EXPECT_THAT(svg, HasSubstr("M64.0 126.0L204.0 36.0"));
}

TEST(SvgTest, NothingOnePointAndValuesWithoutALogarithmAreDrawn) {
  EXPECT_THAT(PlotSvg({"p", {"s"}, {"ms"}, {}}), HasSubstr("nothing was measured"));
  const std::string one = PlotSvg({"p", {"s"}, {"ms"}, {{"run", {0}, {5}}}});
  EXPECT_EQ(Count(one, "alone"), 1);
  EXPECT_THAT(one, Not(HasSubstr("nan")));
  EXPECT_THAT(one, Not(HasSubstr("inf")));
  const std::string log =
      PlotSvg({"p", {"ms", Scale::kLog}, {"of", Scale::kNines}, {{"run", {0, 3}, {0.5, 1}}}});
  EXPECT_EQ(Count(log, "<circle"), 1);
  EXPECT_THAT(log, Not(HasSubstr("nan")));
  EXPECT_EQ(Unbalanced(log), "");
}

TEST(ReportTest, AReportHasItsFiguresFormulasAndPlots) {
  const json comparison = {
      {"method", "median"},
      {"ratios",
       {{"p99_e2el_ms", {{"value", 0.8}, {"q1", 0.7}, {"q3", 0.9}, {"ci95", {0.6, 1.0}}}}}}};
  const std::string html = ReportHtml({Summary("off"), Summary("on")}, {comparison});
  EXPECT_EQ(Unbalanced(html), "");
  EXPECT_EQ(Count(html, "<svg"), 4);
  for (const char* part : {"4.5 [4, 5]", "percentile 99", "1: off, m", "2: on, m", "0.6 to 1",
                           "prefers-color-scheme: dark", "0.7 to 0.9"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  // The page loads nothing.
  for (const char* part : {"src=", "href=", "@import", "url("})
    EXPECT_THAT(html, Not(HasSubstr(part)));
}

TEST(ReportTest, ComparisonsAreOfTheRunsThatTheyName) {
  std::vector<json> runs = {Summary("a"), Summary("b"), Summary("c")};
  for (int i = 0; i < 3; ++i) runs[i]["id"] = 10 * (i + 1);
  const json one = {{"first", 10}, {"second", 30}, {"ratios", {{"p50_e2el_ms", {{"value", 2}}}}}};
  const json gone = {{"first", 10},
                     {"second", 77},
                     {"ratios", json::object()},
                     {"warnings", {"answered <nothing>"}}};
  const std::string html = ReportHtml(runs, {one, gone});
  EXPECT_THAT(html, HasSubstr("Compared: 30: c, m over 10: a, m<"));
  EXPECT_THAT(html, HasSubstr("Compared: 77 over 10: a, m<"));
  EXPECT_THAT(html, HasSubstr("answered &lt;nothing&gt;"));
  EXPECT_EQ(Unbalanced(html), "");
}

TEST(ReportTest, TextFromOutsideStaysText) {
  json summary = Summary("<script>alert(1)</script>");
  summary["errors"] = {{{"code", "UNAVAILABLE"}, {"calls", 3}, {"message", "a < b & \"c\"\x01"}}};
  summary["metadata"] = {{"<b>", "</table>"}};
  const std::string html = ReportHtml({summary}, {});
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(html, HasSubstr("a &lt; b &amp; &quot;c&quot;\xef\xbf\xbd"));
  EXPECT_EQ(Unbalanced(html), "");
}

TEST(ReportTest, WhatASummaryLacksIsLeftOut) {
  for (const json& summary :
       {json::object(), json{{"series", 5}, {"cdf", "x"}, {"ci95", 1}},
        json{{"phases", {1, 2}}, {"plans", json::array()}, {"errors", {1}}}}) {
    EXPECT_EQ(Unbalanced(ReportHtml({summary}, {})), "");
  }
  EXPECT_THAT(ReportHtml({}, {}), HasSubstr("There are no runs"));
}

TEST(ReportTest, OfManyRunsTheLastAreDrawn) {
  std::vector<json> runs;
  for (int i = 0; i < 9; ++i) runs.push_back(Summary("run" + std::to_string(i)));
  const std::string html = ReportHtml(runs, {});
  EXPECT_THAT(html, HasSubstr("The last 6 runs; the tables have all 9."));
  EXPECT_EQ(Count(html, "--s5)\"></i>"), 1);
  EXPECT_THAT(html, HasSubstr("1: run0"));
  EXPECT_EQ(Unbalanced(html), "");
}

TEST(ReportTest, DoubtfulRunsAreMarked) {
  json summary = Summary("late");
  summary["generator"] = {{"kept_up", false}, {"reason", "too slow"}};
  EXPECT_THAT(ReportHtml({summary}, {}), HasSubstr("did not keep up: too slow"));
}

json SweepPoint(const std::string& sweep, int callers, double tokens) {
  json summary = Summary(absl::StrCat("concurrency ", callers));
  summary["sweep"] = sweep;
  summary["max_concurrency"] = callers;
  summary["output_throughput"] = tokens;
  summary["median_tpot_ms"] = callers * 10;
  return summary;
}

TEST(ReportTest, ASweepIsDrawnOverItsCallers) {
  const std::string page = ReportHtml({SweepPoint("a & b", 1, 50), SweepPoint("other", 1, 60),
                                       SweepPoint("a & b", 4, 120), SweepPoint("other", 4, 90)},
                                      {});
  EXPECT_EQ(Unbalanced(page), "");
  EXPECT_THAT(page, HasSubstr("Sweep of callers"));
  EXPECT_THAT(page, HasSubstr("Output tokens over callers"));
  EXPECT_THAT(page, HasSubstr("Output tokens against median TPOT"));
  EXPECT_THAT(page, HasSubstr("a &amp; b: 120 tokens/s at 4"));
  EXPECT_THAT(page, HasSubstr("other: 90 tokens/s at 4"));
  EXPECT_THAT(page, Not(HasSubstr("TTFT over callers")));  // no run has any
  EXPECT_THAT(ReportHtml({Summary("one")}, {}), Not(HasSubstr("Sweep of callers")));
  EXPECT_THAT(page, Not(HasSubstr("Sweep of rates")));
}

TEST(ReportTest, AKneesCurveIsDrawnOverItsRates) {
  json slow = SweepPoint("a", 10'000, 50), fast = SweepPoint("a", 10'000, 60);
  slow["request_rate"] = 2;
  fast["request_rate"] = 2.5;
  slow["request_goodput"] = 1.9;
  fast["request_goodput"] = 1.2;
  const std::string page = ReportHtml({slow, fast}, {});
  EXPECT_EQ(Unbalanced(page), "");
  EXPECT_THAT(page, HasSubstr("Sweep of rates"));
  EXPECT_THAT(page, HasSubstr("Goodput over rate"));
  EXPECT_THAT(page, HasSubstr("a: 1.2 calls/s at 2.5"));
  EXPECT_THAT(page, Not(HasSubstr("Sweep of callers")));
}

}  // namespace
}  // namespace athanor::bench
