// A strict parser of Prometheus' text format 0.0.4. It is stricter than Prometheus itself, so any
// other parser accepts what it accepts.
//
//   Families families = ParseExposition(metrics.Text()).value();
//   families.at("athanor_calls").Value({{"model", "digits"}});
#ifndef ATHANOR_SERVER_METRICS_EXPOSITION_TESTING_H_
#define ATHANOR_SERVER_METRICS_EXPOSITION_TESTING_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

using LabelSet = std::map<std::string, std::string>;

struct Family {
  std::string type;
  std::string help;
  // Samples by name ("..._bucket" of a histogram), then by labels.
  std::map<std::string, std::map<LabelSet, double>> samples;

  // Returns the value of the sample with exactly these labels, nullopt if there is none. `suffix`:
  // "_count", ...
  std::optional<double> Value(const LabelSet& labels, const std::string& suffix = "") const;
};
using Families = std::map<std::string, Family>;

// Parses `text`. Returns INVALID_ARGUMENT naming the bad line. Beside the grammar of each line,
// checks that every family has HELP, then TYPE, then its samples, once and in one piece; that no
// series appears twice; that counters are whole (times, `_seconds_total`, need not be) and not
// negative; and that buckets ascend, do not fall, and end with +Inf, which equals the count.
absl::StatusOr<Families> ParseExposition(absl::string_view text);

}  // namespace athanor

#endif  // ATHANOR_SERVER_METRICS_EXPOSITION_TESTING_H_
