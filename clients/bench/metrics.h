// The metrics of a call, one row each. Summaries, service levels and reports are derived from this
// table.
//
//   for (const Metric& metric : Metrics()) std::optional<double> ms = metric.ms(record);
//
// Pure and thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_METRICS_H_
#define ATHANOR_CLIENTS_BENCH_METRICS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "clients/bench/load.h"

namespace athanor::bench {

struct Metric {
  absl::string_view name;     // "e2el"
  absl::string_view formula;  // formula of one call's value, as text
  // Returns milliseconds for an answered call; nullopt when its reply does not report them.
  std::optional<double> (*ms)(const CallRecord& record);
};

absl::Span<const Metric> Metrics();
const Metric* FindMetric(absl::string_view name);

// A service level: a call meets it if it was answered and `metric` is at most `ms`.
struct Slo {
  std::string metric;
  double ms = 0;
};

// Parses "e2el:5,queue:2"; "" is no level. INVALID_ARGUMENT names the part that is wrong.
absl::StatusOr<std::vector<Slo>> ParseSlos(absl::string_view text);
bool MeetsAll(const CallRecord& record, absl::Span<const Slo> slos);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_METRICS_H_
