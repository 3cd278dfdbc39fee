#include "clients/bench/figures/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "clients/bench/figures/metrics.h"
#include "clients/bench/figures/summary.h"
#include "clients/bench/figures/summary_text.h"
#include "clients/bench/figures/svg.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr absl::string_view kStyle = R"(
:root { color-scheme: light dark;
  --page: #fcfcfb; --ink: #1b1b1a; --quiet: #5c5b57; --grid: #e4e3df; --warn: #8a3b00;
  --s0: #2a78d6; --s1: #d95926; --s2: #188a66; --s3: #8a63d2; --s4: #b3338a; --s5: #8a6d00; }
@media (prefers-color-scheme: dark) { :root {
  --page: #1a1a19; --ink: #f0efec; --quiet: #b0afa9; --grid: #363633; --warn: #ffb37a;
  --s0: #5598e7; --s1: #ee8355; --s2: #35b58a; --s3: #a98be8; --s4: #e06bb8; --s5: #c9a227; } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 1360px; margin: 0 auto; padding: 24px 16px; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 28px 0 8px; }
p { margin: 4px 0; } .quiet { color: var(--quiet); } .warn { color: var(--warn); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 14px 3px 0; border-bottom: 1px solid var(--grid);
  white-space: nowrap; vertical-align: top; }
th { color: var(--quiet); font-weight: 500; }
th:first-child, td:first-child { text-align: left; }
td.text { text-align: left; white-space: normal; max-width: 800px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr));
  gap: 16px; }
.key { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 8px 0; }
.key i { display: inline-block; width: 18px; height: 0; border-top: 3px solid; margin-right: 7px;
  vertical-align: middle; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--quiet); font: 12px system-ui, sans-serif; }
svg text.title { fill: var(--ink); font-size: 14px; }
@media (max-width: 560px) {
  .plots { overflow-x: auto; }
  .plots svg { min-width: 520px; }
  svg text { font-size: 14px; } svg text.title { font-size: 16px; }
}
.grid { stroke: var(--grid); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dashed { stroke-dasharray: 3 4; stroke-width: 1.5; opacity: 0.8; }
.point { stroke: none; opacity: 0; } .point.alone, .point:hover { opacity: 1; }
.line.s0 { stroke: var(--s0); } .line.s1 { stroke: var(--s1); } .line.s2 { stroke: var(--s2); }
.line.s3 { stroke: var(--s3); } .line.s4 { stroke: var(--s4); } .line.s5 { stroke: var(--s5); }
.point.s0 { fill: var(--s0); } .point.s1 { fill: var(--s1); } .point.s2 { fill: var(--s2); }
.point.s3 { fill: var(--s3); } .point.s4 { fill: var(--s4); } .point.s5 { fill: var(--s5); }
)";

std::string ValueText(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<double> Numbers(const json& values) {
  std::vector<double> numbers;
  if (!values.is_array()) return numbers;
  for (const json& value : values) {
    numbers.push_back(value.is_number() ? value.get<double>()
                                        : std::numeric_limits<double>::quiet_NaN());
  }
  return numbers;
}

// Names a run: "3: batch-on, mlp".
std::string RunName(const json& run, size_t index) {
  std::string name = At(run, "id").is_number() ? ValueText(At(run, "id")) : absl::StrCat(index + 1);
  for (const char* key : {"label", "model_id"}) {
    const json& text = At(run, key);
    if (text.is_string() && !text.get<std::string>().empty()) {
      absl::StrAppend(&name, name.find(':') == std::string::npos ? ": " : ", ",
                      text.get<std::string>());
    }
  }
  return name;
}

class Report {
 public:
  Report(const std::vector<json>& runs, const std::vector<json>& comparisons)
      : runs_(runs), comparisons_(comparisons) {
    for (size_t i = 0; i < runs.size(); ++i) names_.push_back(RunName(runs[i], i));
    first_drawn_ = runs.size() > kColors ? runs.size() - kColors : 0;
  }

  std::string Make() {
    absl::StrAppend(&out_,
                    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                    "<title>athanor-bench</title>\n<style>",
                    kStyle, "</style>\n</head>\n<body>\n<h1>athanor-bench</h1>\n");
    AddHeads();
    for (const json& comparison : comparisons_) AddComparison(comparison);
    AddSweeps();
    AddPlots();
    AddFigures();
    AddPhases();
    AddFormulas();
    AddDetails();
    return absl::StrCat(out_, "</body>\n</html>\n");
  }

 private:
  void AddHeads() {
    if (runs_.empty()) absl::StrAppend(&out_, "<p>There are no runs.</p>\n");
    for (size_t i = 0; i < runs_.size(); ++i) {
      const json& environment = At(runs_[i], "environment");
      absl::StrAppend(&out_, "<p>", Escape(names_[i]));
      for (const json* part : {&At(runs_[i], "date"), &At(runs_[i], "server"),
                               &At(runs_[i], "arrival"), &At(environment, "cpu")}) {
        if (part->is_string()) {
          absl::StrAppend(&out_, " <span class=\"quiet\">· ", Escape(part->get<std::string>()),
                          "</span>");
        }
      }
      absl::StrAppend(&out_, "</p>\n");
      for (const std::string& warning : Warnings(runs_[i])) {
        absl::StrAppend(&out_, "<p class=\"warn\">", Escape(warning), "</p>\n");
      }
      for (const json& error : At(runs_[i], "errors")) {
        absl::StrAppend(&out_, "<p class=\"warn\">", Escape(ValueText(At(error, "calls"))),
                        " calls: ", Escape(ValueText(At(error, "code"))), ", ",
                        Escape(ValueText(At(error, "message"))), "</p>\n");
      }
    }
  }

  // Returns "4: on, m" for the run with this id; "second" if the comparison has no ids.
  std::string SideName(const json& comparison, const std::string& side) const {
    const json& id = At(comparison, side);
    if (id.is_string()) return id.get<std::string>();
    if (!id.is_number()) return side;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (At(runs_[i], "id") == id) return names_[i];
    }
    return ValueText(id);
  }

  void AddComparison(const json& comparison) {
    const json& ratios = At(comparison, "ratios");
    const std::vector<std::string> warnings = ComparisonWarnings(comparison);
    if (!ratios.is_object() || (ratios.empty() && warnings.empty())) return;
    absl::StrAppend(&out_, "<h2>Compared: ", Escape(SideName(comparison, "second")), " over ",
                    Escape(SideName(comparison, "first")), "</h2>\n<p class=\"quiet\">",
                    Escape(ValueText(At(comparison, "method"))), "</p>\n");
    for (const std::string& warning : warnings) {
      absl::StrAppend(&out_, "<p class=\"warn\">", Escape(warning), "</p>\n");
    }
    absl::StrAppend(&out_,
                    "<div class=\"wide\"><table>\n<tr><th>figure</th><th>ratio</th>"
                    "<th>95 % interval</th><th>quartiles</th><th>pairs</th></tr>\n");
    for (const auto& [key, ratio] : ratios.items()) {
      const std::vector<double> ci = Numbers(At(ratio, "ci95"));
      const std::string quartiles = QuartilesText(ratio);
      absl::StrAppend(&out_, "<tr><td>", Escape(key), "</td><td>", FigureText(ratio, "value"),
                      "</td><td>",
                      ci.size() == 2 ? absl::StrFormat("%.4g to %.4g", ci[0], ci[1]) : "-",
                      "</td><td>", quartiles.empty() ? "-" : quartiles, "</td><td>",
                      FigureText(ratio, "pairs"), "</td></tr>\n");
    }
    absl::StrAppend(&out_, "</table></div>\n");
  }

  // Draws each figure of a sweep's runs over their callers, or over their rates: a line per sweep.
  void AddSweeps() {
    AddSweeps("callers", "max_concurrency");
    AddSweeps("rate", "request_rate");
  }

  void AddSweeps(const std::string& over, const char* x) {
    std::vector<std::pair<std::string, std::vector<const json*>>> sweeps;
    for (const json& run : runs_) {
      const json& name = At(run, "sweep");
      const bool open = At(run, "request_rate").is_number();
      if (!name.is_string() || !At(run, x).is_number() || open != (over == "rate")) continue;
      const auto found = std::find_if(sweeps.begin(), sweeps.end(), [&](const auto& sweep) {
        return sweep.first == name.get<std::string>();
      });
      if (found != sweeps.end()) {
        found->second.push_back(&run);
      } else if (sweeps.size() < kColors) {
        sweeps.push_back({name.get<std::string>(), {&run}});
      }
    }
    if (sweeps.empty()) return;
    absl::StrAppend(&out_, "<h2>Sweep of ", over, over == "rate" ? "s" : "",
                    "</h2>\n<div class=\"key\">");
    for (size_t i = 0; i < sweeps.size(); ++i) {
      absl::StrAppend(&out_, "<span><i style=\"border-color: var(--s", i, ")\"></i>",
                      Escape(sweeps[i].first), "</span>");
    }
    absl::StrAppend(&out_, "</div>\n<div class=\"plots\">\n");
    const std::string unit_of_x = over == "rate" ? "rate, calls/s" : over;
    const auto draw = [&](const std::string& what, const char* unit, const char* key,
                          const char* dashed) {
      const std::string title =
          absl::StrCat(what, " over ", over, dashed == nullptr ? "" : ": median (dashed: p99)");
      Plot plot{title, {unit_of_x, Scale::kLog}, {unit}};
      for (size_t i = 0; i < sweeps.size(); ++i) {
        AddCurve(sweeps[i], x, key, static_cast<int>(i), &plot);
        if (dashed == nullptr) continue;
        AddCurve(sweeps[i], x, dashed, static_cast<int>(i), &plot);
        plot.series.back().dashed = true;
        absl::StrAppend(&plot.series.back().name, ", p99");
      }
      if (HasPoints(plot)) absl::StrAppend(&out_, PlotSvg(plot));
    };
    draw("Output tokens", "tokens/s", "output_throughput", nullptr);
    draw("Calls", "calls/s", "request_throughput", nullptr);
    draw("Goodput", "calls/s", "request_goodput", nullptr);
    draw("TTFT", "ms", "median_ttft_ms", "p99_ttft_ms");
    draw("TPOT", "ms", "median_tpot_ms", "p99_tpot_ms");
    draw("e2el", "ms", "median_e2el_ms", "p99_e2el_ms");
    Plot trade{"Output tokens against median TPOT", {"TPOT, ms"}, {"tokens/s"}};
    for (size_t i = 0; i < sweeps.size(); ++i) {
      AddCurve(sweeps[i], "median_tpot_ms", "output_throughput", static_cast<int>(i), &trade);
    }
    if (HasPoints(trade)) absl::StrAppend(&out_, PlotSvg(trade));
    absl::StrAppend(&out_, "</div>\n");
  }

  static void AddCurve(const std::pair<std::string, std::vector<const json*>>& sweep, const char* x,
                       const char* y, int color, Plot* plot) {
    json xs = json::array(), ys = json::array();
    for (const json* run : sweep.second) {
      xs.push_back(At(*run, x));
      ys.push_back(At(*run, y));
    }
    plot->series.push_back({sweep.first, Numbers(xs), Numbers(ys), color});
  }

  static bool HasPoints(const Plot& plot) {
    for (const Series& series : plot.series) {
      for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
        if (std::isfinite(series.x[i]) && std::isfinite(series.y[i])) return true;
      }
    }
    return false;
  }

  Series Line(size_t run, const char* x, const char* y) const {
    const json& series = At(runs_[run], "series");
    return {names_[run], Numbers(At(series, x)), Numbers(At(series, y)),
            static_cast<int>(run - first_drawn_)};
  }

  void AddPlots() {
    Plot p50{"Latency over time: median", {"s"}, {"ms"}};
    Plot p99{"Latency over time: 99th percentile", {"s"}, {"ms"}};
    Plot rate{"Throughput over time (dashed: due)", {"s"}, {"calls/s"}};
    Plot cdf{"Share of calls answered within", {"ms", Scale::kLog}, {"of calls", Scale::kNines}};
    Plot tokens{"Output tokens over time", {"s"}, {"tokens/s"}};
    Plot ttft{
        "Share of calls with a token within", {"ms", Scale::kLog}, {"of calls", Scale::kNines}};
    Plot itl{
        "Share of gaps between chunks within", {"ms", Scale::kLog}, {"of gaps", Scale::kNines}};
    for (size_t run = first_drawn_; run < runs_.size(); ++run) {
      p50.series.push_back(Line(run, "t", "p50"));
      p99.series.push_back(Line(run, "t", "p99"));
      rate.series.push_back(Line(run, "t", "completed"));
      if (At(runs_[run], "arrival") != json("closed")) {
        rate.series.push_back(Line(run, "t", "due"));
        rate.series.back().dashed = true;
        absl::StrAppend(&rate.series.back().name, ", due");
      }
      tokens.series.push_back(Line(run, "t", "tokens"));
      for (const auto& [metric, plot] :
           {std::pair("e2el", &cdf), std::pair("ttft", &ttft), std::pair("itl", &itl)}) {
        const json& points = At(At(runs_[run], "cdf"), metric);
        plot->series.push_back({names_[run], Numbers(At(points, "ms")),
                                Numbers(At(points, "share")),
                                static_cast<int>(run - first_drawn_)});
      }
    }
    absl::StrAppend(&out_, "<h2>Plots</h2>\n");
    if (first_drawn_ > 0) {
      absl::StrAppend(&out_, "<p class=\"quiet\">The last ", kColors, " runs; the tables have all ",
                      runs_.size(), ".</p>\n");
    }
    absl::StrAppend(&out_, "<div class=\"key\">");
    for (size_t run = first_drawn_; run < runs_.size(); ++run) {
      absl::StrAppend(&out_, "<span><i style=\"border-color: var(--s", run - first_drawn_,
                      ")\"></i>", Escape(names_[run]), "</span>");
    }
    absl::StrAppend(&out_, "</div>\n<div class=\"plots\">\n", PlotSvg(p50), PlotSvg(p99),
                    PlotSvg(cdf), PlotSvg(rate));
    for (const Plot* plot : {&tokens, &ttft, &itl}) {
      if (HasPoints(*plot)) absl::StrAppend(&out_, PlotSvg(*plot));
    }
    absl::StrAppend(&out_, "</div>\n");
  }

  void Row(absl::string_view name, const std::string& key) {
    const bool any = std::any_of(runs_.begin(), runs_.end(),
                                 [&](const json& run) { return At(run, key).is_number(); });
    if (!any) return;
    absl::StrAppend(&out_, "<tr><td>", name, "</td>");
    for (const json& run : runs_) {
      absl::StrAppend(&out_, "<td>", Escape(FigureText(run, key)), "</td>");
    }
    absl::StrAppend(&out_, "</tr>\n");
  }

  void AddFigures() {
    absl::StrAppend(&out_,
                    "<h2>Figures</h2>\n<p class=\"quiet\">With 95 % intervals where a run is "
                    "long enough.</p>\n<div class=\"wide\"><table>\n<tr><th></th>");
    for (const std::string& name : names_) absl::StrAppend(&out_, "<th>", Escape(name), "</th>");
    absl::StrAppend(&out_, "</tr>\n");
    for (const char* key : {"request_rate",
                            "max_concurrency",
                            "num_prompts",
                            "completed",
                            "failed",
                            "not_sent",
                            "late_calls",
                            "max_concurrent_requests",
                            "duration",
                            "request_throughput",
                            "request_goodput",
                            "slo_share",
                            "total_input_tokens",
                            "total_cached_tokens",
                            "total_output_tokens",
                            "input_throughput",
                            "output_throughput",
                            "total_token_throughput",
                            "max_output_tokens_per_s",
                            "tokens_per_chunk"}) {
      Row(key, key);
    }
    for (const Metric& metric : Metrics()) {
      for (absl::string_view statistic : StatisticNames()) {
        if (statistic == "p50") continue;  // p50 is the median
        const std::string key = FigureKey(statistic, metric.name);
        Row(key, key);
      }
    }
    absl::StrAppend(&out_, "</table></div>\n");
  }

  void AddPhases() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      const json& phases = At(runs_[i], "phases");
      if (!phases.is_array() || phases.size() < 2) continue;
      constexpr const char* kKeys[] = {
          "seconds", "rate",     "rate_end",           "concurrency",    "completed",
          "failed",  "not_sent", "request_throughput", "median_e2el_ms", "p99_e2el_ms"};
      absl::StrAppend(&out_, "<h2>Phases of ", Escape(names_[i]),
                      "</h2>\n<div class=\"wide\"><table>\n<tr><th>phase</th>");
      for (const char* key : kKeys) absl::StrAppend(&out_, "<th>", key, "</th>");
      absl::StrAppend(&out_, "</tr>\n");
      for (size_t phase = 0; phase < phases.size(); ++phase) {
        absl::StrAppend(&out_, "<tr><td>", phase + 1, "</td>");
        for (const char* key : kKeys) {
          absl::StrAppend(&out_, "<td>", FigureText(phases[phase], key), "</td>");
        }
        absl::StrAppend(&out_, "</tr>\n");
      }
      absl::StrAppend(&out_, "</table></div>\n");
    }
  }

  void AddTable(absl::string_view title, const json& values) {
    if (!values.is_object() || values.empty()) return;
    absl::StrAppend(&out_, "<details><summary>", Escape(title),
                    "</summary>\n<div class=\"wide\"><table>\n");
    for (const auto& [key, value] : values.items()) {
      absl::StrAppend(&out_, "<tr><td>", Escape(key), "</td><td class=\"text\">",
                      Escape(ValueText(value)), "</td></tr>\n");
    }
    absl::StrAppend(&out_, "</table></div></details>\n");
  }

  void AddFormulas() {
    absl::StrAppend(&out_, "<h2>How the figures come about</h2>\n");
    for (size_t i = 0; i < runs_.size(); ++i) {
      // Runs with equal formulas share a table; runs of one version always have equal ones.
      if (i > 0 && At(runs_[i], "formula") == At(runs_[0], "formula")) continue;
      AddTable(absl::StrCat("formulas of ", names_[i]), At(runs_[i], "formula"));
    }
  }

  void AddDetails() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      json details = json::object();
      for (const char* key :
           {"options", "environment", "metadata", "confidence", "steady", "generator", "plans"}) {
        if (!At(runs_[i], key).is_null()) details[key] = At(runs_[i], key);
      }
      AddTable(absl::StrCat("machine and options of ", names_[i]), details);
    }
  }

  const std::vector<json>& runs_;
  const std::vector<json>& comparisons_;
  std::vector<std::string> names_;
  size_t first_drawn_ = 0;
  std::string out_;
};

}  // namespace

std::string ReportHtml(const std::vector<json>& runs, const std::vector<json>& comparisons) {
  return Report(runs, comparisons).Make();
}

}  // namespace athanor::bench
