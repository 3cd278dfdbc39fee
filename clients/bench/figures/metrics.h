// The metrics of a call, one row each. Summaries, service levels and reports are derived from this
// table.
//
//   for (const Metric& metric : Metrics()) {
//     if (IsOf(metric, Answers::kTokens)) AppendValues(metric, record, &ms);
//   }
//
// Pure and thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_FIGURES_METRICS_H_
#define ATHANOR_CLIENTS_BENCH_FIGURES_METRICS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "clients/bench/load/load.h"

namespace athanor::bench {

// Combination of the values of Answers.
enum class MetricOf : uint8_t { kTensors = 1, kTokens = 2, kBoth = 3 };

struct Metric {
  absl::string_view name;     // "e2el"
  absl::string_view formula;  // formula of one call's value, as text
  MetricOf of;
  // Returns milliseconds for an answered call; nullopt when it has no such value.
  std::optional<double> (*ms)(const CallRecord& record);
  // Set instead of `ms` if a call has any number of values, which are pooled: no service level.
  void (*each)(const CallRecord& record, std::vector<double>* ms) = nullptr;
  bool none_meets = false;  // an answered call without a value meets a service level
};

absl::Span<const Metric> Metrics();
bool IsOf(const Metric& metric, Answers answers);
// Appends the values, in milliseconds, that an answered call has.
void AppendValues(const Metric& metric, const CallRecord& record, std::vector<double>* ms);
const Metric* FindMetric(absl::string_view name);

// A service level: a call meets it if it was answered and `metric` is at most `ms`.
struct Slo {
  std::string metric;
  double ms = 0;
};

// Parses "e2el:5,queue:2"; "" is no level. INVALID_ARGUMENT names the part that is wrong.
absl::StatusOr<std::vector<Slo>> ParseSlos(absl::string_view text,
                                           Answers answers = Answers::kTensors);
bool MeetsAll(const CallRecord& record, absl::Span<const Slo> slos);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_FIGURES_METRICS_H_
