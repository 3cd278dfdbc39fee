// Plans: rows are added by plan id; each key and conditions has one incumbent.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/plan_records.h"
#include "compiler/cache/rows.h"
#include "compiler/cache/tiers.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {
namespace {

constexpr std::chrono::seconds kQuarantineWait{10};  // to wait for the writer thread

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

// Makes a row from the columns that Heads reads.
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
    for (const auto& queued : writer.Pending(Tier::kPlans, hash)) {
      const RowView view(*queued);
      const std::pair plan(std::string(view.Text("conditions")), std::string(view.Text("plan_id")));
      if (view.incumbent()) incumbents_.insert(plan);
      std::optional<PlanRow> row = PlanRowOf(view, conditions);
      if (!row || !places_.emplace(plan, rows_.size()).second) continue;
      rows_.push_back(*std::move(row));
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

std::vector<PlanRow> PlanTier::Read(const PlanKey& key, absl::string_view plan_id, size_t most,
                                    MissReason* why) {
  const KeyFields fields = key.Fields();
  const std::string hash = GateHash(fields);
  const std::string conditions = ConditionHash(fields);
  Queued queued(file_.writer, hash, conditions);
  size_t read = 0;
  // Reads one more row for each queued row, as that may replace one.
  const size_t most_read = most == SIZE_MAX ? most : most + queued.rows().size();
  const CacheReader::Outcome outcome = file_.reader.Select(
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
    file_.reader.CountHit(Tier::kPlans);
    return rows;
  }
  file_.reader.CountMiss(Tier::kPlans, outcome.Reason(), why, {"graph_hash", key.graph_hash});
  return rows;
}

std::optional<PlanRow> PlanTier::Find(const PlanKey& key, MissReason* why) {
  std::vector<PlanRow> rows = Read(key, "", 1, why);
  if (rows.empty()) return std::nullopt;
  return std::move(rows.front());
}

std::optional<PlanRow> PlanTier::FindById(const PlanKey& key, absl::string_view plan_id) {
  std::vector<PlanRow> rows = Read(key, plan_id, 1, nullptr);
  if (rows.empty()) return std::nullopt;
  return std::move(rows.front());
}

std::vector<PlanRow> PlanTier::All(const PlanKey& key) { return Read(key, "", SIZE_MAX, nullptr); }

std::vector<PlanRow> PlanTier::Heads(const PlanKey& key) {
  const KeyFields fields = key.Fields();
  const std::string hash = GateHash(fields);
  const std::string conditions = ConditionHash(fields);
  Queued queued(file_.writer, hash, conditions);
  file_.reader.Read(
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

absl::Status PlanTier::Quarantine(const PlanKey& key, absl::string_view plan_id,
                                  absl::string_view why) {
  // Rows still queued would be written after the quarantine. Rows that cannot be written do no
  // harm.
  file_.writer.Flush(kQuarantineWait).IgnoreError();
  std::vector<BadRow> bad;
  const CacheReader::Outcome outcome = file_.reader.Select(
      Tier::kPlans, "key = ? AND plan_id = ?",
      {Bytes{GateHash(key.Fields())}, std::string(plan_id)}, [&](const auto& view) {
        bad.push_back(BadRowOf(Tier::kPlans, view, why));
        return true;
      });
  if (!outcome.readable) {
    return absl::UnavailableError(absl::StrCat("cache ", file_.path, ": it cannot be read"));
  }
  file_.reader.CountBad(Tier::kPlans, static_cast<int64_t>(bad.size()));
  for (BadRow& row : bad) file_.writer.Quarantine(std::move(row));
  return file_.writer.Flush(kQuarantineWait);
}

void PlanTier::Put(const PlanKey& key, const PlanRow& row) {
  file_.writer.Put(PlanCacheRow(key.Fields(), row));
}

}  // namespace athanor
