// Plans: rows are added by plan id; each key and conditions has one incumbent.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/cache/cache.h"
#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/plan_records.h"
#include "compiler/cache/rows.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {
namespace {

constexpr std::chrono::seconds kQuarantineWait{10};  // to wait for the writer thread

struct QueuedPlan {
  std::string conditions;
  PlanRow row;
};

std::optional<PlanRow> PlanRowOf(const RowView& view, absl::string_view conditions) {
  PlanRow row;
  const absl::string_view body = view.Text("body");
  if (!row.stored.ParseFromArray(body.data(), static_cast<int>(body.size()))) return std::nullopt;
  row.incumbent = view.incumbent();
  row.share_of_baseline = view.Real("share_of_baseline");
  row.low = view.Real("low");
  row.high = view.Real("high");
  row.compared_with = std::string(view.Text("compared_with"));
  row.conditions_equal = view.Text("conditions") == conditions;
  return row;
}

// Makes a row from the columns that PlanHeads reads.
PlanRow HeadOf(const Statement& at, absl::string_view conditions) {
  PlanRow row;
  row.stored.mutable_plan()->set_plan_id(at.ValueAt(1));
  row.stored.mutable_plan()->set_kind(at.ValueAt(3));
  for (absl::string_view rule : absl::StrSplit(at.BytesAt(4), ',', absl::SkipEmpty())) {
    row.stored.mutable_how()->add_disabled_rules(std::string(rule));
  }
  row.share_of_baseline = at.RealAt(5);
  const absl::string_view keys = at.BytesAt(6);
  for (size_t i = 0; i + kSha256Bytes <= keys.size(); i += kSha256Bytes) {
    row.stored.add_kernel_keys(std::string(keys.substr(i, kSha256Bytes)));
  }
  row.conditions_equal = at.BytesAt(0) == conditions;
  return row;
}

// Sorts rows by equal conditions, then incumbents first; the order among equals stays.
void InOrder(std::vector<PlanRow>& rows) {
  std::multimap<std::pair<bool, bool>, PlanRow, std::greater<>> ordered;
  for (PlanRow& row : rows) {
    ordered.emplace(std::pair(row.conditions_equal, row.incumbent), std::move(row));
  }
  rows.clear();
  for (auto& [rank, row] : ordered) rows.push_back(std::move(row));
}

// Queued plans, newest first, as they will be in the file: the newest incumbent of each key and
// conditions stays incumbent, even if it is put again without the mark.
class Queued {
 public:
  Queued(CacheWriter& writer, absl::string_view hash, absl::string_view conditions) {
    for (const auto& row : writer.Pending(Tier::kPlans, hash)) {
      const auto& plan = std::any_cast<const QueuedPlan&>(row->value);
      const std::string& id = plan.row.stored.plan().plan_id();
      if (plan.row.incumbent) incumbents_.emplace(plan.conditions, id);
      if (!places_.emplace(std::pair(plan.conditions, id), rows_.size()).second) continue;
      rows_.push_back(plan.row);
      rows_.back().conditions_equal = plan.conditions == conditions;
    }
    for (const auto& [plan, place] : places_) {
      const auto incumbent = incumbents_.find(plan.first);
      rows_[place].incumbent = incumbent != incumbents_.end() && incumbent->second == plan.second;
    }
  }

  // Adds a plan that the file holds, unless a queued row replaces it. `make` returns nullopt for a
  // row that is no plan.
  void Add(std::string made_under, std::string plan_id, bool incumbent,
           absl::FunctionRef<std::optional<PlanRow>()> make) {
    incumbent = incumbent && !incumbents_.contains(made_under);
    const auto place = places_.find({std::move(made_under), std::move(plan_id)});
    if (place != places_.end()) {
      rows_[place->second].incumbent |= incumbent;
    } else if (std::optional<PlanRow> row = make()) {
      row->incumbent = incumbent;
      rows_.push_back(*std::move(row));
    }
  }

  std::vector<PlanRow>& rows() { return rows_; }

 private:
  std::vector<PlanRow> rows_;
  std::map<std::pair<std::string, std::string>, size_t> places_;  // by conditions and plan id
  std::map<std::string, std::string> incumbents_;                 // plan ids by conditions
};

}  // namespace

std::vector<PlanRow> Cache::ReadPlans(const PlanKey& key, absl::string_view plan_id, size_t most,
                                      MissReason* why) {
  const KeyFields fields = key.Fields();
  const std::string hash = GateHash(fields);
  const std::string conditions = ConditionHash(fields);
  Queued queued(*writer_, hash, conditions);
  size_t read = 0;
  // Reads one more row for each queued row, as that may replace one.
  const size_t most_read = most == SIZE_MAX ? most : most + queued.rows().size();
  const CacheReader::Outcome outcome = reader_->Select(
      Tier::kPlans,
      "key = ?1 AND (?2 = '' OR plan_id = ?2)"
      " ORDER BY conditions = ?3 DESC, incumbent DESC, created_us DESC",
      {Bytes{hash}, std::string(plan_id), Bytes{conditions}}, [&](const RowView& view) {
        queued.Add(std::string(view.Text("conditions")), std::string(view.Text("plan_id")),
                   view.incumbent(), [&] { return PlanRowOf(view, conditions); });
        return ++read < most_read;
      });
  std::vector<PlanRow> rows = std::move(queued.rows());
  if (!plan_id.empty()) {
    std::erase_if(rows, [&](const PlanRow& row) { return row.stored.plan().plan_id() != plan_id; });
  }
  InOrder(rows);
  if (rows.size() > most) rows.resize(most);
  if (!rows.empty()) {
    reader_->CountHit(Tier::kPlans);
    return rows;
  }
  MissReason reason = outcome.Reason();
  if (reason == MissReason::kAbsent &&
      reader_->Exists("SELECT 1 FROM plans WHERE graph_hash = ? LIMIT 1", {key.graph_hash})) {
    reason = MissReason::kGate;
  }
  reader_->CountMiss(Tier::kPlans, reason, why);
  return rows;
}

std::optional<PlanRow> Cache::FindPlan(const PlanKey& key, MissReason* why) {
  std::vector<PlanRow> rows = ReadPlans(key, "", 1, why);
  if (rows.empty()) return std::nullopt;
  return std::move(rows.front());
}

std::optional<PlanRow> Cache::FindPlanById(const PlanKey& key, absl::string_view plan_id) {
  std::vector<PlanRow> rows = ReadPlans(key, plan_id, 1, nullptr);
  if (rows.empty()) return std::nullopt;
  return std::move(rows.front());
}

std::vector<PlanRow> Cache::Plans(const PlanKey& key) {
  return ReadPlans(key, "", SIZE_MAX, nullptr);
}

std::vector<PlanRow> Cache::PlanHeads(const PlanKey& key) {
  const KeyFields fields = key.Fields();
  const std::string hash = GateHash(fields);
  const std::string conditions = ConditionHash(fields);
  Queued queued(*writer_, hash, conditions);
  reader_->Read(
      "SELECT conditions, plan_id, incumbent, kind, disabled_rules, share_of_baseline, kernel_keys"
      " FROM plans WHERE key = ?1 ORDER BY conditions = ?2 DESC, incumbent DESC, created_us DESC",
      {Bytes{hash}, Bytes{conditions}}, [&](const Statement& at) {
        queued.Add(at.ValueAt(0), at.ValueAt(1), at.IntAt(2) != 0,
                   [&] { return std::optional(HeadOf(at, conditions)); });
      });
  std::vector<PlanRow> rows = std::move(queued.rows());
  InOrder(rows);
  return rows;
}

absl::Status Cache::QuarantinePlan(const PlanKey& key, absl::string_view plan_id,
                                   absl::string_view why) {
  // Rows still queued would be written after the quarantine. Rows that cannot be written do no
  // harm.
  Flush(kQuarantineWait).IgnoreError();
  std::vector<BadRow> bad;
  const CacheReader::Outcome outcome =
      reader_->Select(Tier::kPlans, "key = ? AND plan_id = ?",
                      {Bytes{GateHash(key.Fields())}, std::string(plan_id)}, [&](const auto& view) {
                        bad.push_back(BadRowOf(Tier::kPlans, view, why));
                        return true;
                      });
  if (!outcome.readable) {
    return absl::UnavailableError(absl::StrCat("cache ", options_.path, ": it cannot be read"));
  }
  reader_->CountBad(Tier::kPlans, static_cast<int64_t>(bad.size()));
  for (BadRow& row : bad) writer_->Quarantine(std::move(row));
  return Flush(kQuarantineWait);
}

void Cache::PutPlan(const PlanKey& key, const PlanRow& row) {
  const KeyFields fields = key.Fields();
  CacheRow out = PlanCacheRow(fields, row);
  out.value = QueuedPlan{ConditionHash(fields), row};
  writer_->Put(std::make_shared<const CacheRow>(std::move(out)));
}

}  // namespace athanor
