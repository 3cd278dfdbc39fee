// Explains why a plan was found or not: the nearest rows in the file, and what searches of its
// graph leave out.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "compiler/cache/cache.h"
#include "compiler/cache/cache_reader.h"
#include "compiler/cache/rows.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {
namespace {

constexpr int64_t kFailuresShown = 5;
constexpr int64_t kMinute = int64_t{60} * 1000 * 1000;

struct Nearest {
  std::string plan_id;
  std::vector<KeyDifference> differences;
  int64_t gates = 0;  // number of differences that gate
  std::string kernel_keys;

  bool NearerThan(const Nearest& other) const {
    return std::pair(gates, differences.size()) < std::pair(other.gates, other.differences.size());
  }
};

Nearest NearnessOf(const RowView& row, const KeyFields& wanted) {
  Nearest found{.plan_id = std::string(row.Text("plan_id")),
                .differences = Differences(wanted, row.Fields(wanted)),
                .kernel_keys = std::string(row.Text("kernel_keys"))};
  found.gates = std::count_if(found.differences.begin(), found.differences.end(),
                              [](const KeyDifference& d) { return d.gates; });
  return found;
}

}  // namespace

v1::BucketExplanation Cache::Explain(const PlanKey& key) {
  v1::BucketExplanation explanation = ExplainPlan(key);
  ExplainFailures(key.graph_hash, &explanation);
  return explanation;
}

void Cache::ExplainFailures(const std::string& graph_hash, v1::BucketExplanation* explanation) {
  const int64_t now = WallMicroseconds();
  int64_t rows = 0;
  std::vector<std::string> shown;
  reader_->Select(
      Tier::kFailures,
      "about LIKE ?1 AND expires_us > ?2 AND created_us <= ?2 ORDER BY created_us DESC",
      {FailureAbout(graph_hash, "%"), now}, [&](const RowView& row) {
        if (++rows > kFailuresShown) return true;
        const auto code = static_cast<absl::StatusCode>(row.Int("code"));
        const int64_t minutes = (row.Int("expires_us") - now) / kMinute + 1;
        shown.push_back(absl::StrCat(
            "failed: ", absl::StripPrefix(row.Text("about"), FailureAbout(graph_hash, "")), ": ",
            row.Text("kind"), ", ", absl::StatusCodeToString(code), ": ", row.Text("message"),
            "; not tried for ", minutes, minutes == 1 ? " minute" : " minutes"));
        return true;
      });
  if (rows == 0) return;
  explanation->add_steps(absl::StrCat("failures: ", rows, " remembered of searches of this graph",
                                      rows > kFailuresShown ? ", the latest are" : ""));
  for (std::string& line : shown) explanation->add_steps(std::move(line));
}

v1::BucketExplanation Cache::ExplainPlan(const PlanKey& key) {
  v1::BucketExplanation explanation;
  const KeyFields wanted = key.Fields();
  if (std::optional<PlanRow> row = FindPlan(key)) {
    explanation.set_hit(true);
    explanation.set_plan_id(row->stored.plan().plan_id());
  }
  std::optional<Nearest> nearest;
  int64_t rows = 0;
  const CacheReader::Outcome outcome = reader_->Select(
      Tier::kPlans, "graph_hash = ?1 AND (?2 = '' OR plan_id = ?2) ORDER BY created_us DESC",
      {key.graph_hash, explanation.plan_id()}, [&](const RowView& row) {
        ++rows;
        Nearest found = NearnessOf(row, wanted);
        if (!nearest || found.NearerThan(*nearest)) nearest = std::move(found);
        return true;
      });
  const std::string graph = absl::StrCat("graph ", key.graph_hash.substr(0, 16));
  if (!outcome.readable) {
    explanation.add_steps(absl::StrCat("plans: ", MissReasonName(outcome.Reason())));
    return explanation;
  }
  if (outcome.bad > 0) explanation.add_steps(absl::StrCat("plans: ", outcome.bad, " bad rows"));
  if (!nearest) {
    explanation.add_steps(absl::StrCat(
        "plans: ", explanation.hit() ? "found in the queue of writes" : "none", " of ", graph));
    return explanation;
  }
  for (const KeyDifference& difference : nearest->differences) {
    auto& out = *explanation.add_differences();
    out.set_column(difference.column);
    out.set_wanted(difference.wanted);
    out.set_found(difference.found);
    out.set_gates(difference.gates);
  }
  explanation.add_steps(
      explanation.hit()
          ? absl::StrCat("plans: found ", nearest->plan_id,
                         nearest->differences.empty() ? "" : ", made under other conditions")
          : absl::StrCat("plans: ", rows, " of ", graph, ", the nearest is ", nearest->plan_id));
  int64_t present = 0;
  const size_t kernels = nearest->kernel_keys.size() / kSha256Bytes;
  for (size_t i = 0; i < kernels; ++i) {
    const Bytes kernel{nearest->kernel_keys.substr(i * kSha256Bytes, kSha256Bytes)};
    present += reader_->Exists("SELECT 1 FROM kernels WHERE key = ?", {kernel}) ? 1 : 0;
  }
  explanation.add_steps(absl::StrCat("kernels: ", present, " of the plan's ", kernels));
  return explanation;
}

}  // namespace athanor
