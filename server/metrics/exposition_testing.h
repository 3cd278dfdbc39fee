// A strict reader of Prometheus' text format 0.0.4: stricter than Prometheus itself, so that what
// it takes any other reader takes.
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
  // By sample name ("..._bucket" of a histogram), then by labels.
  std::map<std::string, std::map<LabelSet, double>> samples;

  // Of the sample with exactly these labels; nullopt if there is none. `suffix`: "_count", ...
  std::optional<double> Value(const LabelSet& labels, const std::string& suffix = "") const;
};
using Families = std::map<std::string, Family>;

// INVALID_ARGUMENT names the line. Checked, beside the grammar of each line: every family has HELP,
// then TYPE, then its samples, once and in one piece; no series twice; counters are whole and not
// negative; buckets ascend, do not fall, end with +Inf, and that equals the count.
absl::StatusOr<Families> ParseExposition(absl::string_view text);

}  // namespace athanor

#endif  // ATHANOR_SERVER_METRICS_EXPOSITION_TESTING_H_
