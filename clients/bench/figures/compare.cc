#include "clients/bench/figures/compare.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/bench/figures/statistics.h"
#include "clients/bench/figures/summary.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr int kFewestPairs = 5;  // fewest pairs that give an interval
constexpr int kRounds = 1000;
constexpr double kNormal = 1.959964;  // 97.5 % quantile of the normal distribution
// Figures for which 0 is an ordinary value: no call was answered, or none in time.
constexpr absl::string_view kRates[] = {"request_throughput", "request_goodput",
                                        "output_throughput", "total_token_throughput"};

double FigureAt(const json& summary, const std::string& key) {
  const auto found = summary.find(key);
  return found == summary.end() || !found->is_number() ? kNone : found->get<double>();
}

bool IsRate(absl::string_view key) { return absl::c_linear_search(kRates, key); }

bool IsRatio(double a, double b) { return a > 0 && b > 0 && std::isfinite(a) && std::isfinite(b); }

// Returns the standard error of the figure's logarithm; NaN without an interval.
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

// The figures to compare, by key, from the pairs of slices that have them.
struct Compared {
  struct Figure {
    std::vector<double> first, second;
  };
  std::map<std::string, Figure> figures;
  std::map<std::string, int> left_out;  // pairs that were answered but have no ratio
  int pairs = 0;
  int first_silent = 0, second_silent = 0;  // slices without an answer
};

void AddPair(const json& first, const json& second, Compared* compared) {
  const bool first_silent = FigureAt(first, "completed") == 0;
  const bool second_silent = FigureAt(second, "completed") == 0;
  ++compared->pairs;
  compared->first_silent += first_silent;
  compared->second_silent += second_silent;
  for (const std::string& key : ComparedKeys()) {
    const double under = FigureAt(first, key), over = FigureAt(second, key);
    if (IsRate(key) ? under >= 0 && over >= 0 : IsRatio(under, over)) {
      Compared::Figure& figure = compared->figures[key];
      figure.first.push_back(under);
      figure.second.push_back(over);
    } else if (!first_silent && !second_silent && !(std::isnan(under) && std::isnan(over))) {
      ++compared->left_out[key];
    }
  }
}

// JSON has no infinity, so it becomes null.
json Number(double value) { return std::isfinite(value) ? json(value) : json(); }

Resamples DrawsOf(size_t pairs) {
  const int blocks = pairs < kFewestPairs ? 1 : static_cast<int>(pairs);
  return Resamples(blocks, kRounds, /*seed=*/1);
}

json RatioOfPairs(const Compared::Figure& figure) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < figure.first.size(); ++i) {
    samples.push_back({figure.second[i] / figure.first[i], static_cast<int>(i)});
  }
  absl::c_sort(samples, [](const Sample& a, const Sample& b) { return a.value < b.value; });
  const std::vector<Interval> shares =
      Percentiles(samples, {0.25, 0.5, 0.75}, DrawsOf(samples.size()));
  json ratio = {{"value", shares[1].value},
                {"q1", shares[0].value},
                {"q3", shares[2].value},
                {"pairs", samples.size()}};
  if (!std::isnan(shares[1].low)) ratio["ci95"] = {shares[1].low, shares[1].high};
  return ratio;
}

// Divides the sums: the median over pairs would be 1 for a server that was dead for a third of
// them.
json RatioOfRates(const Compared::Figure& figure) {
  std::vector<double> ratios;
  for (size_t i = 0; i < figure.first.size(); ++i) {
    const double under = figure.first[i], over = figure.second[i];
    if (under > 0) ratios.push_back(over / under);
    if (under == 0 && over > 0) ratios.push_back(kInfinity);
  }
  absl::c_sort(ratios);
  const size_t pairs = figure.first.size();
  const Interval interval = RatioOfSums(figure.second, figure.first, DrawsOf(pairs));
  json ratio = {{"value", Number(interval.value)},
                {"q1", Number(Percentile(ratios, 0.25))},
                {"q3", Number(Percentile(ratios, 0.75))},
                {"pairs", pairs}};
  if (!std::isnan(interval.low)) ratio["ci95"] = {interval.low, interval.high};
  return ratio;
}

// Returns a sentence about each thing that the ratios leave out.
json LeftOut(const Compared& compared) {
  json warnings = json::array();
  for (const auto& [side, slices] :
       {std::pair("first", compared.first_silent), std::pair("second", compared.second_silent)}) {
    if (slices == 0) continue;
    warnings.push_back(absl::StrCat(
        "the ", side, " server answered nothing in ", slices, " of its ", compared.pairs,
        " slices: throughput and goodput count them as 0, latencies leave those pairs out"));
  }
  if (!compared.left_out.empty()) {
    const auto key = [](std::string* out, const std::pair<const std::string, int>& left_out) {
      absl::StrAppend(out, left_out.first, " (", left_out.second, ")");
    };
    warnings.push_back(
        absl::StrCat("left out because a side has 0 or no value, of ", compared.pairs,
                     " pairs of slices: ", absl::StrJoin(compared.left_out, ", ", key)));
  }
  return warnings;
}

std::string NoRatio(absl::string_view key, absl::string_view why) {
  return absl::StrCat(key, " has no ratio: ", why);
}

}  // namespace

Interleaved RunInterleaved(Load* first, Load* second, const Turns& turns) {
  Interleaved slices{turns};
  slices.next_number = turns.first_number;
  for (int pair = 0; pair < turns.pairs; ++pair) {
    const uint64_t seed = turns.seed + static_cast<uint64_t>(pair);
    const auto run = [&](Load* load, std::vector<LoadResult>* results) {
      results->push_back(load->Run({turns.slice}, seed, slices.next_number));
    };
    if (pair % 2 == 0) run(first, &slices.first);
    run(second, &slices.second);
    if (pair % 2 == 1) run(first, &slices.first);
    // The same for both, however many calls each has made.
    slices.next_number += static_cast<int64_t>(
        std::max(slices.first.back().calls.size(), slices.second.back().calls.size()));
  }
  return slices;
}

LoadResult Join(absl::Span<const LoadResult> slices) {
  LoadResult joined;
  joined.not_sent = {0};
  for (const LoadResult& slice : slices) {
    const int64_t shift = static_cast<int64_t>(std::llround(joined.seconds * 1e9));
    double seconds = slice.seconds;
    std::vector<int32_t> plans;
    for (const std::string& plan_id : slice.plan_ids) {
      auto found = std::find(joined.plan_ids.begin(), joined.plan_ids.end(), plan_id);
      if (found == joined.plan_ids.end()) found = joined.plan_ids.insert(found, plan_id);
      plans.push_back(static_cast<int32_t>(found - joined.plan_ids.begin()));
    }
    for (CallRecord record : slice.calls) {
      seconds = std::max(seconds, static_cast<double>(record.done_ns) / 1e9);
      record.due_ns += shift;
      record.sent_ns += shift;
      record.done_ns += shift;
      if (record.plan >= 0) record.plan = plans[record.plan];
      if (record.tokens != nullptr) {
        auto stream = std::make_shared<TokenStream>(*record.tokens);
        for (int64_t& ns : stream->chunk_ns) ns += shift;
        record.tokens = std::move(stream);
      }
      joined.calls.push_back(record);
    }
    for (int64_t not_sent : slice.not_sent) joined.not_sent[0] += not_sent;
    joined.messages.insert(slice.messages.begin(), slice.messages.end());
    joined.most_outstanding = std::max(joined.most_outstanding, slice.most_outstanding);
    joined.seconds += seconds;
    joined.full = joined.full || slice.full;
  }
  return joined;
}

std::vector<std::string> ComparedKeys() {
  std::vector<std::string> keys(std::begin(kRates), std::end(kRates));
  for (absl::string_view metric : {"ttft", "tpot", "itl", "e2el", "queue", "exec"}) {
    for (absl::string_view statistic : {"mean", "p50", "p90", "p99"}) {
      keys.push_back(FigureKey(statistic, metric));
    }
  }
  return keys;
}

json Compare(const Interleaved& slices, const LoadOptions& first, const LoadOptions& second,
             absl::Span<const Slo> slos) {
  LoadOptions of_first = first, of_second = second;
  of_first.phases = of_second.phases = {slices.turns.slice};
  Compared compared;
  const size_t pairs = std::min(slices.first.size(), slices.second.size());
  for (size_t i = 0; i < pairs; ++i) {
    AddPair(Summarise(slices.first[i], of_first, slos),
            Summarise(slices.second[i], of_second, slos), &compared);
  }
  json comparison = {{"interleaved", true},
                     {"slice_seconds", slices.turns.slice.seconds},
                     {"method",
                      "in turns A B B A; latencies: the median over pairs of slices; throughput "
                      "and goodput: the sums over all slices"},
                     {"ratios", json::object()},
                     {"warnings", LeftOut(compared)}};
  for (const auto& [key, figure] : compared.figures) {
    json ratio = IsRate(key) ? RatioOfRates(figure) : RatioOfPairs(figure);
    if (ratio["value"].is_null()) {
      comparison["warnings"].push_back(NoRatio(key, "the first server's is 0 in every slice"));
    } else {
      comparison["ratios"][key] = std::move(ratio);
    }
  }
  return comparison;
}

json CompareSummaries(const json& first, const json& second) {
  json comparison = {
      {"interleaved", false},
      {"method",
       "the runs are from different times, so the ratio includes any drift between them; intervals "
       "from both runs' own, independent and normal in the logarithm"},
      {"ratios", json::object()},
      {"warnings", json::array()}};
  for (const std::string& key : ComparedKeys()) {
    const double a = FigureAt(first, key), b = FigureAt(second, key);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (!IsRatio(a, b) && !(IsRate(key) && a > 0 && b == 0)) {
      const bool of_first = std::isnan(a) || a <= 0;
      comparison["warnings"].push_back(NoRatio(
          key, absl::StrCat("the ", of_first ? "first" : "second", " run's is 0 or not known")));
      continue;
    }
    json ratio = {{"value", b / a}};
    const double error = std::hypot(LogError(first, key), LogError(second, key));
    if (b > 0 && std::isfinite(error)) {
      ratio["ci95"] = {b / a * std::exp(-kNormal * error), b / a * std::exp(kNormal * error)};
    }
    comparison["ratios"][key] = std::move(ratio);
  }
  return comparison;
}

}  // namespace athanor::bench
