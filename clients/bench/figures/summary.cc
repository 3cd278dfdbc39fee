#include "clients/bench/figures/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/bench/figures/statistics.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

struct Quantile {
  absl::string_view name;
  double share;
};
constexpr Quantile kQuantiles[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}};
constexpr absl::string_view kStatistics[] = {"mean", "median", "std", "p50",
                                             "p90",  "p95",    "p99", "p999"};
constexpr double kBlockSeconds = 1;
// Runs are cut into at least kFewestBlocks blocks of time; long runs into at most kMostBlocks
// longer ones.
constexpr int kFewestBlocks = 10, kMostBlocks = 3600;
constexpr int kFewestFilled = 5;  // fewest non-empty blocks that give an interval
constexpr uint64_t kBootstrapSeed = 1;
constexpr int kWindows = 3;
constexpr double kSteady = 1.10;

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// NaN and infinity become null.
json Number(double value) { return std::isfinite(value) ? json(value) : json(); }

std::string CodeName(int32_t code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

// Cuts a run's calls into blocks of time by when they were due.
class Blocks {
 public:
  explicit Blocks(const LoadResult& result)
      : count_(std::clamp(static_cast<int>(result.seconds / kBlockSeconds), kFewestBlocks,
                          kMostBlocks)),
        seconds_(result.seconds / count_),
        resamples_(Filled(result) < kFewestFilled ? 1 : count_, RoundsFor(result.calls.size()),
                   kBootstrapSeed) {}

  int count() const { return count_; }
  double seconds() const { return seconds_; }
  const Resamples& resamples() const { return resamples_; }
  int Of(const CallRecord& record) const {
    return std::clamp(static_cast<int>(Seconds(record.due_ns) / seconds_), 0, count_ - 1);
  }
  // Rate per second of `count(record)`, summed over the calls; scaled so that its value is the sum
  // / `duration`.
  template <typename Count>
  Interval Rate(const LoadResult& result, double duration, Count count) const {
    std::vector<double> sums(count_), seconds(count_, seconds_);
    double total = 0;
    for (const CallRecord& record : result.calls) {
      const double value = static_cast<double>(count(record));
      sums[Of(record)] += value;
      total += value;
    }
    Interval rate = RatioOfSums(sums, seconds, resamples_);
    const double scale = rate.value > 0 ? total / duration / rate.value : 1;
    return {rate.value * scale, rate.low * scale, rate.high * scale};
  }

 private:
  int Filled(const LoadResult& result) const {
    std::vector<bool> filled(count_);
    for (const CallRecord& record : result.calls)
      filled[Of(record)] = filled[Of(record)] || record.answered();
    return static_cast<int>(std::count(filled.begin(), filled.end(), true));
  }

  const int count_;
  const double seconds_;
  const Resamples resamples_;
};

class Summary {
 public:
  Summary(const LoadResult& result, const LoadOptions& options, absl::Span<const Slo> slos)
      : result_(result), options_(options), slos_(slos), blocks_(result) {
    for (const CallRecord& record : result.calls) {
      answered_ += record.answered();
      end_ns_ = std::max(end_ns_, record.done_ns);
    }
    for (int64_t not_sent : result.not_sent) not_sent_ += not_sent;
    duration_ = result.calls.empty() ? result.seconds : Seconds(end_ns_);
  }

  json Make() {
    AddRun();
    AddRates();
    if (options_.answers == Answers::kTokens) AddTokens();
    for (const Metric& metric : Metrics()) {
      if (IsOf(metric, options_.answers)) AddMetric(metric);
    }
    AddSlos();
    AddErrors();
    AddPlans();
    AddGenerator();
    AddSteady();
    AddPhases();
    AddSeries();
    out_["confidence"] = {{"level", 0.95},
                          {"method", "bootstrap over blocks of time"},
                          {"block_seconds", blocks_.seconds()},
                          {"blocks", blocks_.count()},
                          {"rounds", blocks_.resamples().rounds()}};
    return std::move(out_);
  }

 private:
  void Put(const std::string& key, const Interval& interval, std::string formula) {
    out_[key] = Number(interval.value);
    out_["formula"][key] = std::move(formula);
    if (!std::isnan(interval.low)) out_["ci95"][key] = {interval.low, interval.high};
  }
  template <typename T>
  void PutCount(const std::string& key, T count, std::string formula) {
    out_[key] = count;
    out_["formula"][key] = std::move(formula);
  }

  void AddRun() {
    const bool closed = options_.arrival == Arrival::kClosed;
    int callers = 0;
    for (const Phase& phase : options_.phases) callers = std::max(callers, phase.concurrency);
    out_["ci95"] = json::object();
    out_["model_id"] = options_.model;
    out_["arrival"] = std::string(ArrivalName(options_.arrival));
    out_["burstiness"] = options_.arrival == Arrival::kGamma ? json(options_.burstiness) : json();
    out_["seed"] = options_.seed;
    out_["connections"] = options_.connections;
    out_["warmups"] = options_.warmups;
    const int64_t due = static_cast<int64_t>(result_.calls.size()) + not_sent_;
    PutCount("request_rate", closed ? json() : json(static_cast<double>(due) / result_.seconds),
             "calls due / seconds they were due in; null in a closed loop");
    PutCount("max_concurrency", closed ? callers : options_.most_outstanding,
             "closed loop: callers, at most; open loop: the limit of outstanding calls");
    PutCount("num_prompts", due, "calls due = completed + failed + not_sent");
  }

  void AddRates() {
    PutCount("duration", duration_, "s, from the beginning of the run to the last answer or error");
    PutCount("completed", answered_, "calls that were answered");
    PutCount("failed", static_cast<int64_t>(result_.calls.size()) - answered_,
             "calls that ended with an error");
    PutCount("not_sent", not_sent_, "calls that were due and that the generator did not get to");
    PutCount("max_concurrent_requests", result_.most_outstanding, "most calls out at one time");
    out_["full"] = result_.full;
    Put("request_throughput",
        blocks_.Rate(result_, duration_, [](const CallRecord& r) { return r.answered(); }),
        "completed / duration, calls per second");
    Put("request_goodput",
        slos_.empty() ? Interval{}
                      : blocks_.Rate(result_, duration_,
                                     [&](const CallRecord& r) { return MeetsAll(r, slos_); }),
        "calls that meet every service level / duration, calls per second; null without one");
  }

  void AddTokens() {
    int64_t input = 0, output = 0, cached = 0, chunks = 0;
    for (const CallRecord& record : result_.calls) {
      if (!record.answered()) continue;
      input += record.tokens->input_tokens;
      cached += record.tokens->cached_tokens;
      output += record.tokens->output_tokens;
      chunks += static_cast<int64_t>(record.tokens->chunk_ns.size());
    }
    out_["tokenizer_id"] = json();
    PutCount("total_input_tokens", input, "tokens of the prompts of answered calls");
    PutCount("total_cached_tokens", cached, "of those, tokens that the server had computed before");
    PutCount("total_output_tokens", output, "tokens that answered calls brought");
    const auto rate = [&](int of_input, int of_output) {
      return blocks_.Rate(result_, duration_, [=](const CallRecord& r) {
        return r.answered()
                   ? of_input * r.tokens->input_tokens + of_output * r.tokens->output_tokens
                   : 0;
      });
    };
    Put("input_throughput", rate(1, 0), "total_input_tokens / duration, tokens per second");
    Put("output_throughput", rate(0, 1), "total_output_tokens / duration, tokens per second");
    Put("total_token_throughput", rate(1, 1),
        "(total_input_tokens + total_output_tokens) / duration, tokens per second");
    PutCount("max_output_tokens_per_s", MostTokensOfASecond(),
             "most output tokens that came within a second of the run, seconds counted from its "
             "beginning; tokens of chunks that do not tell theirs are shared evenly");
    PutCount("tokens_per_chunk",
             chunks == 0 ? json() : json(static_cast<double>(output) / static_cast<double>(chunks)),
             "total_output_tokens / chunks with tokens");
  }

  // Calls `use(ns, tokens)` for each chunk of each answered call.
  template <typename Use>
  void EachChunk(Use use) const {
    for (const CallRecord& record : result_.calls) {
      if (record.tokens == nullptr) continue;
      const TokenStream& stream = *record.tokens;
      const size_t chunks = stream.chunk_ns.size();
      const double share = static_cast<double>(stream.output_tokens) / static_cast<double>(chunks);
      for (size_t i = 0; i < chunks; ++i) {
        use(stream.chunk_ns[i], stream.chunk_tokens.empty() ? share : stream.chunk_tokens[i]);
      }
    }
  }

  double MostTokensOfASecond() const {
    std::map<int64_t, double> tokens;
    EachChunk([&](int64_t ns, double count) { tokens[ns / 1'000'000'000] += count; });
    double most = 0;
    for (const auto& [second, count] : tokens) most = std::max(most, count);
    return most;
  }

  void AddMetric(const Metric& metric) {
    std::vector<Sample> samples;
    std::vector<double> values, sums(blocks_.count()), counts(blocks_.count());
    for (const CallRecord& record : result_.calls) {
      if (!record.answered()) continue;
      const size_t before = values.size();
      AppendValues(metric, record, &values);
      const int block = blocks_.Of(record);
      for (size_t i = before; i < values.size(); ++i) {
        samples.push_back({values[i], block});
        sums[block] += values[i];
        ++counts[block];
      }
    }
    std::sort(samples.begin(), samples.end(),
              [](const Sample& a, const Sample& b) { return a.value < b.value; });
    std::vector<double> shares;
    for (const Quantile& quantile : kQuantiles) shares.push_back(quantile.share);
    const std::vector<Interval> quantiles = Percentiles(samples, shares, blocks_.resamples());
    const std::string of =
        absl::StrCat(", ms, of answered calls; ", metric.name, " = ", metric.formula);
    Put(FigureKey("mean", metric.name), RatioOfSums(sums, counts, blocks_.resamples()),
        absl::StrCat("sum / number", of));
    Put(FigureKey("median", metric.name), quantiles[0], absl::StrCat("the 50th percentile", of));
    Put(FigureKey("std", metric.name), {StandardDeviation(values), kNone, kNone},
        absl::StrCat("square root of the sum of squared distances from the mean / (number - 1)",
                     of));
    for (size_t i = 0; i < shares.size(); ++i) {
      Put(FigureKey(kQuantiles[i].name, metric.name), quantiles[i],
          absl::StrCat("percentile ", shares[i] * 100,
                       " (position p (n - 1) of the sorted values, linear between two)", of));
    }
    AddCdf(metric, samples);
  }

  // Adds points at equal steps of nines, as long as calls lie beyond them.
  void AddCdf(const Metric& metric, absl::Span<const Sample> sorted) {
    if (sorted.empty()) return;
    json shares = json::array(), ms = json::array();
    for (int step = 0; step <= 100; ++step) {
      const double beyond = std::pow(10, -step / 20.0);
      if (beyond * static_cast<double>(sorted.size()) < 1) break;
      const size_t at = static_cast<size_t>((1 - beyond) * static_cast<double>(sorted.size() - 1));
      shares.push_back(1 - beyond);
      ms.push_back(sorted[at].value);
    }
    out_["cdf"][std::string(metric.name)] = {{"share", shares}, {"ms", ms}};
  }

  void AddSlos() {
    out_["slo"] = json::array();
    for (const Slo& slo : slos_) out_["slo"].push_back({{"metric", slo.metric}, {"ms", slo.ms}});
    int64_t met = 0;
    for (const CallRecord& record : result_.calls) met += MeetsAll(record, slos_);
    const int64_t due = static_cast<int64_t>(result_.calls.size()) + not_sent_;
    PutCount("slo_share",
             slos_.empty() || due == 0 ? json()
                                       : json(static_cast<double>(met) / static_cast<double>(due)),
             "calls that meet every service level / calls due (failed and not sent ones included)");
  }

  void AddErrors() {
    std::map<int32_t, int64_t> calls;
    for (const CallRecord& record : result_.calls) {
      if (!record.answered()) ++calls[record.code];
    }
    out_["errors"] = json::array();
    for (const auto& [code, count] : calls) {
      const auto message = result_.messages.find(code);
      out_["errors"].push_back(
          {{"code", CodeName(code)},
           {"calls", count},
           {"message", message == result_.messages.end() ? "" : message->second}});
    }
  }

  void AddPlans() {
    std::vector<int64_t> calls(result_.plan_ids.size());
    for (const CallRecord& record : result_.calls) {
      if (record.answered() && record.plan >= 0) ++calls[record.plan];
    }
    out_["plans"] = json::array();
    for (size_t i = 0; i < calls.size(); ++i) {
      out_["plans"].push_back({{"plan_id", result_.plan_ids[i]}, {"calls", calls[i]}});
    }
  }

  void AddGenerator() {
    int64_t late = 0;
    for (const CallRecord& record : result_.calls) {
      late += static_cast<double>(record.sent_ns - record.due_ns) / 1e6 > kLateMs;
    }
    const double due = static_cast<double>(result_.calls.size()) + static_cast<double>(not_sent_);
    const bool kept_up = not_sent_ == 0 && static_cast<double>(late) <= kLateShare * due;
    std::string reason;
    if (!kept_up) {
      reason = absl::StrFormat(
          "%d of %.0f calls were sent more than %g ms after they were due, %d "
          "not at all: ",
          late, due, kLateMs, not_sent_);
      const bool limited = options_.arrival != Arrival::kClosed &&
                           result_.most_outstanding >= options_.most_outstanding;
      absl::StrAppend(&reason,
                      limited
                          ? "they waited for the limit of outstanding calls"
                          : "this generator, or the machine it runs on, was too slow for the rate");
    }
    PutCount("late_calls", late, "calls sent more than 1 ms after they were due");
    out_["generator"] = {{"kept_up", kept_up}, {"reason", reason}};
  }

  // Compares the thirds of the run; only for a load that is constant over time.
  void AddSteady() {
    out_["steady"] = json();
    const Phase& phase = options_.phases[0];
    if (options_.phases.size() > 1 || phase.rate != phase.rate_end ||
        options_.arrival == Arrival::kTrace || answered_ < kWindows) {
      return;
    }
    const auto window = [&](int64_t ns) {
      return std::clamp(static_cast<int>(Seconds(ns) / result_.seconds * kWindows), 0,
                        kWindows - 1);
    };
    std::vector<double> calls(kWindows), counts(kWindows), ms(kWindows);
    for (const CallRecord& record : result_.calls) {
      if (!record.answered()) continue;
      AddWindow(record, window, &calls, &counts, &ms);
    }
    for (int i = 0; i < kWindows; ++i) {
      if (counts[i] > 0) ms[i] /= counts[i];
    }
    const auto spread = [](const std::vector<double>& values) {
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      return *low > 0 ? *high / *low : kNone;
    };
    const double of_calls = spread(calls), of_ms = spread(ms);
    out_["steady"] = {{"windows", kWindows},
                      {"throughput_spread", Number(of_calls)},
                      {"latency_spread", Number(of_ms)},
                      {"steady", of_calls <= kSteady && of_ms <= kSteady}};
    out_["formula"]["steady"] =
        options_.answers == Answers::kTokens
            ? "largest / smallest of three equal windows, of output tokens and of mean itl: both "
              "<= 1.10"
            : "largest / smallest of three equal windows, of completed calls and of mean e2el: "
              "both <= 1.10";
  }

  // Adds a call to the windows of AddSteady. Calls with tokens differ in length, so these count
  // tokens and gaps where they fall; none of what comes once no more calls are due.
  template <typename Window>
  void AddWindow(const CallRecord& record, Window window, std::vector<double>* throughput,
                 std::vector<double>* counts, std::vector<double>* ms) const {
    if (record.tokens == nullptr) {
      ++(*throughput)[window(record.due_ns)];
      ++(*counts)[window(record.due_ns)];
      (*ms)[window(record.due_ns)] += Seconds(record.done_ns - record.due_ns) * 1e3;
      return;
    }
    const std::vector<int64_t>& at = record.tokens->chunk_ns;
    const double tokens =
        static_cast<double>(record.tokens->output_tokens) / static_cast<double>(at.size());
    for (size_t i = 0; i < at.size() && Seconds(at[i]) <= result_.seconds; ++i) {
      (*throughput)[window(at[i])] += tokens;
      if (i == 0) continue;
      ++(*counts)[window(at[i])];
      (*ms)[window(at[i])] += Seconds(at[i] - at[i - 1]) * 1e3;
    }
  }

  void AddPhases() {
    out_["phases"] = json::array();
    for (size_t i = 0; i < options_.phases.size(); ++i) {
      const Phase& phase = options_.phases[i];
      std::vector<double> ms;
      int64_t failed = 0;
      for (const CallRecord& record : result_.calls) {
        if (record.phase != static_cast<int32_t>(i)) continue;
        if (record.answered()) ms.push_back(Seconds(record.done_ns - record.due_ns) * 1e3);
        failed += !record.answered();
      }
      std::sort(ms.begin(), ms.end());
      // A single phase is the run: it may have ended early, after a number of calls, and its last
      // answers came after it.
      const double seconds = options_.phases.size() == 1 ? duration_ : phase.seconds;
      json row = {{"seconds", seconds},
                  {"completed", ms.size()},
                  {"failed", failed},
                  {"not_sent", i < result_.not_sent.size() ? result_.not_sent[i] : 0},
                  {"request_throughput", static_cast<double>(ms.size()) / seconds},
                  {"median_e2el_ms", Number(Percentile(ms, 0.5))},
                  {"p99_e2el_ms", Number(Percentile(ms, 0.99))}};
      if (options_.arrival == Arrival::kClosed) {
        row["concurrency"] = phase.concurrency;
      } else {
        row["rate"] = phase.rate;
        row["rate_end"] = phase.rate_end;
      }
      out_["phases"].push_back(std::move(row));
    }
  }

  // Adds series over time for the plots: calls due, answered and failed per second, and latencies.
  void AddSeries() {
    const double length = std::max(result_.seconds, duration_);
    const int bins = std::clamp(static_cast<int>(length / 0.1), 1, 120);
    const double width = length / bins;
    const auto bin = [&](int64_t ns) {
      return std::clamp(static_cast<int>(Seconds(ns) / width), 0, bins - 1);
    };
    std::vector<double> due(bins), completed(bins), failed(bins);
    std::vector<std::vector<double>> ms(bins);
    for (const CallRecord& record : result_.calls) {
      due[bin(record.due_ns)] += 1 / width;
      (record.answered() ? completed : failed)[bin(record.done_ns)] += 1 / width;
      if (record.answered())
        ms[bin(record.due_ns)].push_back(Seconds(record.done_ns - record.due_ns) * 1e3);
    }
    json t = json::array(), p50 = json::array(), p99 = json::array();
    for (int i = 0; i < bins; ++i) {
      t.push_back((i + 0.5) * width);
      std::sort(ms[i].begin(), ms[i].end());
      p50.push_back(Number(Percentile(ms[i], 0.5)));
      p99.push_back(Number(Percentile(ms[i], 0.99)));
    }
    out_["series"] = {{"t", t},           {"due", due}, {"completed", completed},
                      {"failed", failed}, {"p50", p50}, {"p99", p99}};
    if (options_.answers != Answers::kTokens) return;
    std::vector<double> tokens(bins);
    EachChunk([&](int64_t ns, double count) { tokens[bin(ns)] += count / width; });
    out_["series"]["tokens"] = tokens;
  }

  const LoadResult& result_;
  const LoadOptions& options_;
  const absl::Span<const Slo> slos_;
  const Blocks blocks_;
  int64_t answered_ = 0, not_sent_ = 0, end_ns_ = 0;
  double duration_ = 0;
  json out_;
};

}  // namespace

absl::Span<const absl::string_view> StatisticNames() { return kStatistics; }

std::string FigureKey(absl::string_view statistic, absl::string_view metric) {
  return absl::StrCat(statistic, "_", metric, "_ms");
}

json Summarise(const LoadResult& result, const LoadOptions& options, absl::Span<const Slo> slos) {
  return Summary(result, options, slos).Make();
}

}  // namespace athanor::bench
