#include "clients/bench/compare.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "clients/bench/statistics.h"
#include "clients/bench/summary.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr int kFewestPairs = 5;  // for an interval
constexpr int kRounds = 1000;
constexpr double kNormal = 1.959964;  // 97.5 % of the normal distribution lie below

double FigureAt(const json& summary, const std::string& key) {
  const auto found = summary.find(key);
  return found == summary.end() || !found->is_number() ? kNone : found->get<double>();
}

bool IsRatio(double a, double b) { return a > 0 && b > 0 && std::isfinite(a) && std::isfinite(b); }

// The standard error of the figure's logarithm; NaN without an interval.
double LogError(const json& summary, const std::string& key) {
  const auto intervals = summary.find("ci95");
  if (intervals == summary.end() || !intervals->is_object()) return kNone;
  const auto ci = intervals->find(key);
  if (ci == intervals->end() || !ci->is_array() || ci->size() != 2 || !(*ci)[0].is_number() ||
      !(*ci)[1].is_number()) {
    return kNone;
  }
  const double low = (*ci)[0], high = (*ci)[1];
  return IsRatio(low, high) ? std::log(high / low) / (2 * kNormal) : kNone;
}

json RatioOfPairs(const std::vector<double>& ratios) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < ratios.size(); ++i) samples.push_back({ratios[i], static_cast<int>(i)});
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.value < b.value; });
  const int pairs = static_cast<int>(ratios.size());
  const Resamples resamples(pairs < kFewestPairs ? 1 : pairs, kRounds, /*seed=*/1);
  const std::vector<Interval> figures = Percentiles(samples, {0.25, 0.5, 0.75}, resamples);
  json ratio = {{"value", figures[1].value},
                {"q1", figures[0].value},
                {"q3", figures[2].value},
                {"pairs", pairs}};
  if (!std::isnan(figures[1].low)) ratio["ci95"] = {figures[1].low, figures[1].high};
  return ratio;
}

}  // namespace

Interleaved RunInterleaved(Load* first, Load* second, const Turns& turns) {
  Interleaved slices{turns};
  for (int pair = 0; pair < turns.pairs; ++pair) {
    const uint64_t seed = first->options().seed + static_cast<uint64_t>(pair);
    const auto run = [&](Load* load, std::vector<LoadResult>* results) {
      results->push_back(load->Run({turns.slice}, seed));
    };
    if (pair % 2 == 0) run(first, &slices.first);
    run(second, &slices.second);
    if (pair % 2 == 1) run(first, &slices.first);
  }
  return slices;
}

LoadResult Join(absl::Span<const LoadResult> slices) {
  LoadResult joined;
  joined.not_sent = {0};
  for (const LoadResult& slice : slices) {
    const int64_t shift = static_cast<int64_t>(std::llround(joined.seconds * 1e9));
    std::vector<int32_t> plans;
    for (const std::string& plan_id : slice.plan_ids) {
      auto found = std::find(joined.plan_ids.begin(), joined.plan_ids.end(), plan_id);
      if (found == joined.plan_ids.end()) found = joined.plan_ids.insert(found, plan_id);
      plans.push_back(static_cast<int32_t>(found - joined.plan_ids.begin()));
    }
    for (CallRecord record : slice.calls) {
      record.due_ns += shift;
      record.sent_ns += shift;
      record.done_ns += shift;
      if (record.plan >= 0) record.plan = plans[record.plan];
      joined.calls.push_back(record);
    }
    for (int64_t not_sent : slice.not_sent) joined.not_sent[0] += not_sent;
    joined.messages.insert(slice.messages.begin(), slice.messages.end());
    joined.most_outstanding = std::max(joined.most_outstanding, slice.most_outstanding);
    joined.seconds += slice.seconds;
    joined.full = joined.full || slice.full;
  }
  return joined;
}

std::vector<std::string> ComparedKeys() {
  std::vector<std::string> keys = {"request_throughput", "request_goodput"};
  for (absl::string_view metric : {"e2el", "queue", "exec"}) {
    for (absl::string_view statistic : {"mean", "p50", "p90", "p99"}) {
      keys.push_back(FigureKey(statistic, metric));
    }
  }
  return keys;
}

json Compare(const Interleaved& slices, const LoadOptions& first, const LoadOptions& second,
             absl::Span<const Slo> slos) {
  std::map<std::string, std::vector<double>> ratios;
  const size_t pairs = std::min(slices.first.size(), slices.second.size());
  for (size_t i = 0; i < pairs; ++i) {
    LoadOptions of_slice = first;
    of_slice.phases = {slices.turns.slice};
    const json a = Summarise(slices.first[i], of_slice, slos);
    of_slice = second;
    of_slice.phases = {slices.turns.slice};
    const json b = Summarise(slices.second[i], of_slice, slos);
    for (const std::string& key : ComparedKeys()) {
      const double over = FigureAt(b, key), under = FigureAt(a, key);
      if (IsRatio(under, over)) ratios[key].push_back(over / under);
    }
  }
  json comparison = {{"interleaved", true},
                     {"slice_seconds", slices.turns.slice.seconds},
                     {"method", "median over pairs of slices, in turns A B B A"},
                     {"ratios", json::object()}};
  for (const auto& [key, values] : ratios) comparison["ratios"][key] = RatioOfPairs(values);
  return comparison;
}

json CompareSummaries(const json& first, const json& second) {
  json comparison = {{"interleaved", false},
                     {"method",
                      "runs at different times, so what drifted between them is in the ratio; "
                      "intervals from both runs' own, independent and normal in the logarithm"},
                     {"ratios", json::object()}};
  for (const std::string& key : ComparedKeys()) {
    const double a = FigureAt(first, key), b = FigureAt(second, key);
    if (!IsRatio(a, b)) continue;
    json ratio = {{"value", b / a}};
    const double error = std::hypot(LogError(first, key), LogError(second, key));
    if (std::isfinite(error)) {
      ratio["ci95"] = {b / a * std::exp(-kNormal * error), b / a * std::exp(kNormal * error)};
    }
    comparison["ratios"][key] = std::move(ratio);
  }
  return comparison;
}

}  // namespace athanor::bench
