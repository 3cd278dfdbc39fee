#include "server/http/pages/chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/http/pages/drawing.h"
#include "server/http/pages/latency_history.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

constexpr double kHeight = 100;  // of the drawing, which the page scales as it likes
constexpr auto kSteps = static_cast<double>(LatencyHistory::kSteps);

double Highest(const Json& series) {
  double highest = 0;
  for (const Json& value : series.at("p99")) {
    if (value.is_number()) highest = std::max(highest, value.get<double>());
  }
  return highest;
}

// Returns the least round number that is not below `value`: a scale's end, half of which is round.
double RoundUp(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (double step : {1.0, 2.0, 3.0, 4.0, 6.0, 8.0}) {
    if (value <= step * power * (1 + 1e-9)) return step * power;
  }
  return 10 * power;
}

// Draws a line through the steps that have calls. The newest step is at the right edge.
std::string Line(const Json& values, double top, const char* name) {
  std::string path;
  bool down = false;  // the pen
  const double first = kSteps - static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].is_number()) {
      down = false;
      continue;
    }
    const double x = first + static_cast<double>(i) + 0.5;
    const double y = kHeight - values[i].get<double>() / top * kHeight;
    // A step between two gaps is a dot: a line of no length with round ends.
    absl::StrAppendFormat(&path, "%s%g %.1f%s", down ? "L" : "M", x, y, down ? "" : "h.01");
    down = true;
  }
  return absl::StrCat("<path class=\"", name, "\" d=\"", path, "\"/>");
}

std::string Svg(const Json& series, double top, const std::string& label) {
  return absl::StrCat("<svg viewBox=\"0 0 ", kSteps, " ", kHeight,
                      "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", label, "\">",
                      Line(series.at("p99"), top, "p99"), Line(series.at("p50"), top, "p50"),
                      "</svg>");
}

std::string Label(const Json& series, double highest) {
  return absl::StrCat(Escaped(series.at("name").get<std::string>()),
                      ", last 10 minutes: p99 at most ", Shown(highest, "seconds"));
}

// Returns the numbers as a list, empty where there is none.
std::string List(const Json& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) absl::StrAppend(&text, ",");
    if (values[i].is_number_float()) {
      absl::StrAppendFormat(&text, "%.6g", values[i].get<double>());
    } else if (values[i].is_number()) {
      absl::StrAppend(&text, values[i].get<int64_t>());
    }
  }
  return text;
}

}  // namespace

std::string SmallChart(const Json& series) {
  const double highest = Highest(series);
  if (highest == 0) return "";
  return absl::StrCat("<div class=\"spark\">", Svg(series, highest, Label(series, highest)),
                      "</div>");
}

std::string LargeChart(const Json& series) {
  const std::string name = series.at("name").get<std::string>();
  const double highest = Highest(series), top = RoundUp(highest);
  std::string chart = absl::StrCat("<figure class=\"chart\"><figcaption>", Word(name),
                                   "<output class=\"quiet small\"></output></figcaption>");
  if (highest == 0) {
    return absl::StrCat(chart, "<p class=\"quiet small\">no calls in the last 10 minutes</p>",
                        "</figure>");
  }
  absl::StrAppend(&chart, "<div class=\"plot\" data-p50=\"", List(series.at("p50")),
                  "\" data-p99=\"", List(series.at("p99")), "\" data-calls=\"",
                  List(series.at("calls")), "\">", Svg(series, top, Label(series, highest)),
                  "<span class=\"top\">", Shown(top, "seconds"), "</span><span class=\"half\">",
                  Shown(top / 2, "seconds"), "</span></div>",
                  "<div class=\"axis quiet small\"><span>10 min ago</span><span>",
                  "<i class=\"p50\"></i>p50 <i class=\"p99\"></i>p99</span><span>now</span></div>");
  return absl::StrCat(chart, "</figure>");
}

}  // namespace athanor
