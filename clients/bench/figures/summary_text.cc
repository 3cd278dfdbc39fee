#include "clients/bench/figures/summary_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/bench/figures/metrics.h"
#include "clients/bench/figures/summary.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

std::string TextAt(const json& object, const std::string& key) {
  const json& value = At(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

std::string CountAt(const json& object, const std::string& key) {
  const json& value = At(object, key);
  return value.is_number() ? absl::StrFormat("%.6g", value.get<double>()) : "-";
}

// Returns ", 37 % of in cached"; "" if nothing was.
std::string CachedText(const json& summary) {
  const json& cached = At(summary, "total_cached_tokens");
  const json& input = At(summary, "total_input_tokens");
  if (!cached.is_number() || !input.is_number() || cached.get<double>() <= 0) return "";
  return absl::StrFormat(", %.3g %% of in cached",
                         100 * cached.get<double>() / input.get<double>());
}

bool IsInterval(const json& ci) {
  return ci.is_array() && ci.size() == 2 && ci[0].is_number() && ci[1].is_number();
}

// Writes whole digits where they are read more easily than an exponent.
std::string NumberText(double value) {
  const double size = std::abs(value);
  if (size >= 1e3 && size < 1e12) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.4g", value);
}

}  // namespace

const json& At(const json& object, const std::string& key) {
  static const json& none = *new json();
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

std::string FigureText(const json& summary, const std::string& key) {
  const json& value = At(summary, key);
  if (!value.is_number()) return "-";
  std::string text = NumberText(value.get<double>());
  if (const json& ci = At(At(summary, "ci95"), key); IsInterval(ci)) {
    absl::StrAppend(&text, " [", NumberText(ci[0].get<double>()), ", ",
                    NumberText(ci[1].get<double>()), "]");
  }
  return text;
}

std::vector<std::string> Warnings(const json& summary) {
  std::vector<std::string> warnings;
  if (At(At(summary, "generator"), "kept_up") == json(false)) {
    warnings.push_back(absl::StrCat("the generator did not keep up: ",
                                    TextAt(At(summary, "generator"), "reason")));
  }
  if (At(At(summary, "steady"), "steady") == json(false)) {
    warnings.push_back("not steady: thirds of the run differ by more than 10 %");
  }
  if (At(summary, "full") == json(true)) {
    warnings.push_back("ended early: the number of calls reached the limit of kept calls");
  }
  return warnings;
}

std::string SummaryText(const json& summary) {
  std::string text;
  const std::string label = TextAt(summary, "label");
  absl::StrAppend(
      &text, label.empty() ? "" : absl::StrCat(label, ": "), TextAt(summary, "model_id"), ", ",
      TextAt(summary, "arrival"), ": ", CountAt(summary, "num_prompts"), " due, ",
      CountAt(summary, "completed"), " completed, ", CountAt(summary, "failed"), " failed, ",
      CountAt(summary, "not_sent"), " not sent in ", FigureText(summary, "duration"), " s\n");
  if (const json& errors = At(summary, "errors"); errors.is_array()) {
    for (const json& error : errors) {
      absl::StrAppend(&text, "  ", CountAt(error, "calls"), " ", TextAt(error, "code"), ": ",
                      TextAt(error, "message"), "\n");
    }
  }
  absl::StrAppend(&text, "  throughput ", FigureText(summary, "request_throughput"), " calls/s");
  if (const json& share = At(summary, "slo_share"); share.is_number()) {
    absl::StrAppend(&text, ", goodput ", FigureText(summary, "request_goodput"), " calls/s, ",
                    absl::StrFormat("%.4g", share.get<double>() * 100),
                    " % of the calls within the service levels");
  }
  absl::StrAppend(&text, "\n");
  if (At(summary, "output_throughput").is_number()) {
    absl::StrAppend(&text, "  tokens     ", FigureText(summary, "input_throughput"), " in/s, ",
                    FigureText(summary, "output_throughput"), " out/s, ",
                    FigureText(summary, "total_token_throughput"), " together/s, ",
                    FigureText(summary, "tokens_per_chunk"), " a chunk", CachedText(summary), "\n");
  }
  for (const Metric& metric : Metrics()) {
    if (!At(summary, FigureKey("mean", metric.name)).is_number()) continue;
    absl::StrAppend(&text, absl::StrFormat("  %-5s ms", metric.name));
    for (absl::string_view statistic : {"mean", "p50", "p90", "p99", "p999"}) {
      absl::StrAppend(&text, "  ", statistic, " ",
                      FigureText(summary, FigureKey(statistic, metric.name)));
    }
    absl::StrAppend(&text, "\n");
  }
  for (const std::string& warning : Warnings(summary)) absl::StrAppend(&text, "  ", warning, "\n");
  return text;
}

std::string SweepText(const std::vector<json>& summaries) {
  // A sweep has a rate, or callers.
  const bool open = !summaries.empty() && At(summaries[0], "request_rate").is_number();
  const std::pair<const char*, const char*> columns[] = {
      {open ? "rate/s" : "callers", open ? "request_rate" : "max_concurrency"},
      {"calls/s", "request_throughput"},
      {"good/s", "request_goodput"},
      {"good", "slo_share"},
      {"tokens/s", "output_throughput"},
      {"p50 ttft", "median_ttft_ms"},
      {"p99 ttft", "p99_ttft_ms"},
      {"p50 tpot", "median_tpot_ms"},
      {"p99 tpot", "p99_tpot_ms"},
      {"p50 e2el", "median_e2el_ms"},
      {"p99 e2el", "p99_e2el_ms"},
      {"failed", "failed"}};
  std::string text = "the sweep, in ms:\n";
  std::string heads;
  for (const auto& [head, key] : columns) absl::StrAppend(&heads, absl::StrFormat("%10s", head));
  absl::StrAppend(&text, heads, "  run\n");
  for (const json& summary : summaries) {
    for (const auto& [head, key] : columns) {
      const json& value = At(summary, key);
      absl::StrAppend(&text, value.is_number() ? absl::StrFormat("%10.4g", value.get<double>())
                                               : absl::StrFormat("%10s", "-"));
    }
    absl::StrAppend(&text, "  ", TextAt(summary, "label"), "\n");
  }
  return text;
}

std::string CurveText(const std::vector<json>& summaries) {
  constexpr int kBar = 20, kAxis = 41;
  const auto number = [](const json& summary, const char* key) {
    const json& value = At(summary, key);
    return value.is_number() ? value.get<double>() : 0.0;
  };
  const bool open = !summaries.empty() && At(summaries[0], "request_rate").is_number();
  const bool tokens = !summaries.empty() && At(summaries[0], "output_throughput").is_number();
  const char* speed = tokens ? "output_throughput" : "request_throughput";
  double fastest = 0, low = 0, high = 0;
  for (const json& summary : summaries) {
    const double p50 = number(summary, "median_e2el_ms"), p99 = number(summary, "p99_e2el_ms");
    if (!(p50 > 0) || !(p99 > 0)) continue;
    fastest = std::max(fastest, number(summary, speed));
    low = low == 0 ? p50 : std::min(low, p50);
    high = std::max(high, p99);
  }
  if (!(fastest > 0)) return "";
  const double decades = std::log10(high / low);
  const auto column = [&](double ms) {
    return decades > 0 ? static_cast<int>(std::log10(ms / low) / decades * (kAxis - 1)) : 0;
  };
  std::string text =
      absl::StrFormat("%10s  %-20s %12s  e2el from %.3g to %.3g ms: o p50, x p99\n",
                      open ? "rate/s" : "callers", "", tokens ? "tokens/s" : "calls/s", low, high);
  for (const json& summary : summaries) {
    const double p50 = number(summary, "median_e2el_ms"), p99 = number(summary, "p99_e2el_ms");
    std::string axis(kAxis, ' ');
    if (p50 > 0 && p99 > 0) {
      for (int i = column(p50); i < column(p99); ++i) axis[i] = '-';
      axis[column(p99)] = 'x';
      axis[column(p50)] = 'o';
    }
    absl::StripTrailingAsciiWhitespace(&axis);
    const double share = number(summary, speed) / fastest;
    const std::string bar(static_cast<size_t>(std::clamp(share, 0.0, 1.0) * kBar + 0.5), '#');
    absl::StrAppendFormat(&text, "%10.4g  %-20s %12.4g  %s\n",
                          number(summary, open ? "request_rate" : "max_concurrency"), bar,
                          number(summary, speed), axis);
  }
  return text;
}

std::vector<std::string> ComparisonWarnings(const json& comparison) {
  std::vector<std::string> warnings;
  const json& sentences = At(comparison, "warnings");
  if (!sentences.is_array()) return warnings;
  for (const json& sentence : sentences) {
    if (sentence.is_string()) warnings.push_back(sentence.get<std::string>());
  }
  return warnings;
}

std::string QuartilesText(const json& ratio) {
  if (!ratio.is_object() || !ratio.contains("q1") || !ratio.contains("q3")) return "";
  const auto text = [&](const char* key) {
    return At(ratio, key).is_null() ? "infinite" : FigureText(ratio, key);
  };
  return absl::StrCat(text("q1"), " to ", text("q3"));
}

std::string ComparisonText(const json& comparison) {
  const auto name = [&](const char* side) {
    if (At(comparison, side).is_number()) return absl::StrCat("run ", CountAt(comparison, side));
    const std::string label = TextAt(comparison, side);
    return label.empty() ? std::string(side) : label;
  };
  std::string text = absl::StrCat(name("second"), " over ", name("first"));
  absl::StrAppend(&text, ", ", TextAt(comparison, "method"), "\n");
  if (const json& ratios = At(comparison, "ratios"); ratios.is_object()) {
    for (const auto& [key, ratio] : ratios.items()) {
      absl::StrAppend(&text, absl::StrFormat("  %-22s ", key), CountAt(ratio, "value"));
      if (const json& ci = At(ratio, "ci95"); IsInterval(ci)) {
        absl::StrAppendFormat(&text, " [%.4g, %.4g]", ci[0].get<double>(), ci[1].get<double>());
      }
      const std::string quartiles = QuartilesText(ratio);
      absl::StrAppend(&text, quartiles.empty() ? "" : ", quartiles ", quartiles, "\n");
    }
  }
  for (const std::string& warning : ComparisonWarnings(comparison)) {
    absl::StrAppend(&text, "  ", warning, "\n");
  }
  return text;
}

}  // namespace athanor::bench
