#include "clients/bench/metrics.h"

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

constexpr Metric kMetrics[] = {
    {"e2el",
     "reply received - due; in open loop a call is due by the schedule, in a closed loop when its "
     "caller's previous call has ended",
     [](const CallRecord& r) -> std::optional<double> { return Ms(r.done_ns - r.due_ns); }},
    {"late",
     "sent - due: the delay that this generator, or its limit of outstanding calls, added to e2el",
     [](const CallRecord& r) -> std::optional<double> { return Ms(r.sent_ns - r.due_ns); }},
    {"queue", "the reply's queue_us / 1000: from the request's arrival until it ran",
     [](const CallRecord& r) { return OfServer(r.queue_us); }},
    {"batch", "the reply's batch_us / 1000: waiting for others to run with",
     [](const CallRecord& r) { return OfServer(r.batch_us); }},
    {"exec", "the reply's exec_us / 1000: running the plan",
     [](const CallRecord& r) { return OfServer(r.exec_us); }},
    {"rest",
     "reply received - sent - queue - batch - exec: network, gRPC and messages on both sides",
     [](const CallRecord& r) -> std::optional<double> {
       if (r.queue_us < 0 && r.exec_us < 0) return std::nullopt;
       const int64_t server = std::max<int64_t>(r.queue_us, 0) + std::max<int64_t>(r.batch_us, 0) +
                              std::max<int64_t>(r.exec_us, 0);
       return Ms(r.done_ns - r.sent_ns) - static_cast<double>(server) / 1e3;
     }},
};

}  // namespace

absl::Span<const Metric> Metrics() { return kMetrics; }

const Metric* FindMetric(absl::string_view name) {
  for (const Metric& metric : kMetrics) {
    if (metric.name == name) return &metric;
  }
  return nullptr;
}

absl::StatusOr<std::vector<Slo>> ParseSlos(absl::string_view text) {
  std::vector<Slo> slos;
  if (text.empty()) return slos;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(part, absl::MaxSplits(':', 1));
    Slo slo{parts.first, 0};
    if (FindMetric(slo.metric) == nullptr || !absl::SimpleAtod(parts.second, &slo.ms) ||
        !(slo.ms > 0 && slo.ms < 1e9)) {
      const std::string names = absl::StrJoin(
          Metrics(), ", ",
          [](std::string* out, const Metric& metric) { absl::StrAppend(out, metric.name); });
      return absl::InvalidArgumentError(absl::StrCat(
          "--slo ", part.empty() ? text : part,
          ": must be a metric and milliseconds above 0, such as e2el:5; ", "metrics are ", names));
    }
    slos.push_back(std::move(slo));
  }
  return slos;
}

bool MeetsAll(const CallRecord& record, absl::Span<const Slo> slos) {
  return record.answered() && std::all_of(slos.begin(), slos.end(), [&](const Slo& slo) {
           const std::optional<double> ms = FindMetric(slo.metric)->ms(record);
           return ms.has_value() && *ms <= slo.ms;
         });
}

}  // namespace athanor::bench
