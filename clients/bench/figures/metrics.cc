#include "clients/bench/figures/metrics.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace athanor::bench {
namespace {

std::optional<double> OfServer(int64_t us) {
  if (us < 0) return std::nullopt;
  return static_cast<double>(us) / 1e3;
}

double Ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// Times of the first and the last chunk with tokens. REQUIRES: an answered call of kTokens.
int64_t FirstNs(const CallRecord& r) { return r.tokens->chunk_ns.front(); }
int64_t LastNs(const CallRecord& r) { return r.tokens->chunk_ns.back(); }

constexpr Metric kMetrics[] = {
    {"ttft", "first chunk with tokens received - due; due as in e2el", MetricOf::kTokens,
     [](const CallRecord& r) -> std::optional<double> { return Ms(FirstNs(r) - r.due_ns); }},
    {"tpot",
     "(e2el - ttft) / (output tokens - 1); a call with one token has none, and meets a service "
     "level",
     MetricOf::kTokens,
     [](const CallRecord& r) -> std::optional<double> {
       if (r.tokens->output_tokens < 2) return std::nullopt;
       return Ms(LastNs(r) - FirstNs(r)) / static_cast<double>(r.tokens->output_tokens - 1);
     },
     nullptr, /*none_meets=*/true},
    {"itl",
     "time from a chunk with tokens to the next one of its call; pooled over all calls, not "
     "divided by the tokens of a chunk (see tokens_per_chunk)",
     MetricOf::kTokens, nullptr,
     [](const CallRecord& r, std::vector<double>* ms) {
       const std::vector<int64_t>& at = r.tokens->chunk_ns;
       for (size_t i = 1; i < at.size(); ++i) ms->push_back(Ms(at[i] - at[i - 1]));
     }},
    {"e2el",
     "reply, or last chunk with tokens, received - due; in open loop a call is due by the "
     "schedule, in a closed loop when its caller's previous call has ended",
     MetricOf::kBoth,
     [](const CallRecord& r) -> std::optional<double> { return Ms(r.done_ns - r.due_ns); }},
    {"late",
     "sent - due: the delay that this generator, or its limit of outstanding calls, added to e2el",
     MetricOf::kBoth,
     [](const CallRecord& r) -> std::optional<double> { return Ms(r.sent_ns - r.due_ns); }},
    {"queue", "the reply's queue_us / 1000: from the request's arrival until it ran",
     MetricOf::kBoth, [](const CallRecord& r) { return OfServer(r.queue_us); }},
    {"batch", "the reply's batch_us / 1000: waiting for others to run with", MetricOf::kTensors,
     [](const CallRecord& r) { return OfServer(r.batch_us); }},
    {"exec", "the reply's exec_us / 1000: running the plan", MetricOf::kTensors,
     [](const CallRecord& r) { return OfServer(r.exec_us); }},
    {"rest",
     "reply received - sent - queue - batch - exec: network, gRPC and messages on both sides",
     MetricOf::kTensors,
     [](const CallRecord& r) -> std::optional<double> {
       if (r.queue_us < 0 && r.exec_us < 0) return std::nullopt;
       const int64_t server = std::max<int64_t>(r.queue_us, 0) + std::max<int64_t>(r.batch_us, 0) +
                              std::max<int64_t>(r.exec_us, 0);
       return Ms(r.done_ns - r.sent_ns) - static_cast<double>(server) / 1e3;
     }},
};

// Returns the metrics that may be service levels: "e2el, late".
std::string LevelNames(Answers answers) {
  std::vector<absl::string_view> names;
  for (const Metric& metric : kMetrics) {
    if (metric.each == nullptr && IsOf(metric, answers)) names.push_back(metric.name);
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::Span<const Metric> Metrics() { return kMetrics; }

bool IsOf(const Metric& metric, Answers answers) {
  return (static_cast<uint8_t>(metric.of) & static_cast<uint8_t>(answers)) != 0;
}

void AppendValues(const Metric& metric, const CallRecord& record, std::vector<double>* ms) {
  if (metric.each != nullptr) return metric.each(record, ms);
  if (const std::optional<double> value = metric.ms(record)) ms->push_back(*value);
}

const Metric* FindMetric(absl::string_view name) {
  for (const Metric& metric : kMetrics) {
    if (metric.name == name) return &metric;
  }
  return nullptr;
}

absl::StatusOr<std::vector<Slo>> ParseSlos(absl::string_view text, Answers answers) {
  std::vector<Slo> slos;
  if (text.empty()) return slos;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(part, absl::MaxSplits(':', 1));
    Slo slo{parts.first, 0};
    const Metric* metric = FindMetric(slo.metric);
    if (metric == nullptr || metric->each != nullptr || !IsOf(*metric, answers) ||
        !absl::SimpleAtod(parts.second, &slo.ms) || !(slo.ms > 0 && slo.ms < 1e9)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--slo ", part.empty() ? text : part,
                       ": must be a metric and milliseconds above 0, such as e2el:5; metrics are ",
                       LevelNames(answers)));
    }
    slos.push_back(std::move(slo));
  }
  return slos;
}

bool MeetsAll(const CallRecord& record, absl::Span<const Slo> slos) {
  return record.answered() && std::all_of(slos.begin(), slos.end(), [&](const Slo& slo) {
           const Metric& metric = *FindMetric(slo.metric);
           const std::optional<double> ms = metric.ms(record);
           return ms.has_value() ? *ms <= slo.ms : metric.none_meets;
         });
}

}  // namespace athanor::bench
