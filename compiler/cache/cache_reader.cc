#include "compiler/cache/cache_reader.h"

#include <sqlite3.h>

#include <utility>
#include <vector>

namespace athanor {

CacheReader::CacheReader(std::string path, CacheWriter* writer, SqliteFile::Report report)
    : writer_(*writer), file_(std::move(path), CacheSchema(), std::move(report)) {
  MutexLock lock(mu_);
  Readable();
}

bool CacheReader::Readable() {
  if (!writer_.usable() || file_.state() == FileState::kReadOnly) writer_.TryAgain();
  if (const int64_t opened = writer_.opened(); opened != opened_) {
    opened_ = opened;
    file_.Open();
  } else {
    file_.Refresh();
  }
  return file_.db() != nullptr;
}

MissReason CacheReader::Outcome::Reason() const {
  if (busy) return MissReason::kBusy;
  if (!readable) return MissReason::kNoCache;
  return bad > 0 ? MissReason::kBadRow : MissReason::kAbsent;
}

CacheReader::Outcome CacheReader::Select(Tier tier, absl::string_view where,
                                         absl::Span<const Value> bound,
                                         absl::FunctionRef<bool(const RowView&)> take) {
  Outcome outcome;
  std::vector<BadRow> bad;
  {
    MutexLock lock(mu_);
    if (!Readable()) return outcome;
    const int code = SelectRows(file_, tier, where, bound, [&](const RowView& row) {
      if (!row.ChecksumFits()) {
        bad.push_back(BadRowOf(tier, row, "its checksum does not fit"));
        return true;
      }
      writer_.Used(tier, row.rowid(), row.used_us());
      return take(row);
    });
    outcome.readable = code == SQLITE_DONE;
    if (!outcome.readable) outcome.busy = absl::IsUnavailable(file_.Failed(code, "read"));
  }
  outcome.bad = static_cast<int64_t>(bad.size());
  counts_[static_cast<size_t>(tier)].bad_rows += outcome.bad;
  // Without the lock: Quarantine waits while the queue of writes is full.
  for (BadRow& row : bad) writer_.Quarantine(std::move(row));
  return outcome;
}

CacheReader::Outcome CacheReader::Read(absl::string_view sql, absl::Span<const Value> bound,
                                       absl::FunctionRef<void(const Statement&)> take) {
  Outcome outcome;
  MutexLock lock(mu_);
  file_.Refresh();
  if (file_.db() == nullptr) return outcome;
  int code = SQLITE_DONE;
  {
    Statement statement(file_.db(), sql);
    for (const Value& value : bound) BindValue(statement, value);
    while ((code = statement.Step()) == SQLITE_ROW) take(statement);
  }
  outcome.readable = code == SQLITE_DONE;
  if (!outcome.readable) outcome.busy = absl::IsUnavailable(file_.Failed(code, "read"));
  return outcome;
}

std::optional<int64_t> CacheReader::Integer(absl::string_view sql, absl::Span<const Value> bound) {
  MutexLock lock(mu_);
  if (!Readable()) return std::nullopt;
  Statement statement(file_.db(), sql);
  for (const Value& value : bound) BindValue(statement, value);
  const int code = statement.Step();
  if (code == SQLITE_ROW) return statement.IntAt(0);
  if (code != SQLITE_DONE) file_.Failed(code, "read").IgnoreError();
  return std::nullopt;
}

bool CacheReader::Exists(absl::string_view sql, absl::Span<const Value> bound) {
  return Integer(sql, bound).has_value();
}

void CacheReader::CountHit(Tier tier) { ++counts_[static_cast<size_t>(tier)].hits; }

void CacheReader::CountMiss(Tier tier, MissReason reason, MissReason* why) {
  ++counts_[static_cast<size_t>(tier)].misses[static_cast<size_t>(reason)];
  if (why != nullptr) *why = reason;
}

void CacheReader::CountBad(Tier tier, int64_t rows) {
  counts_[static_cast<size_t>(tier)].bad_rows += rows;
}

void CacheReader::AddCounts(Tier tier, v1::CacheStat::TierStat* stat) const {
  const Counts& counts = counts_[static_cast<size_t>(tier)];
  stat->set_hits(counts.hits);
  stat->set_bad_rows(counts.bad_rows);
  for (int i = 0; i < kMissReasonCount; ++i) {
    const int64_t misses = counts.misses[i];
    if (misses == 0) continue;
    stat->set_misses(stat->misses() + misses);
    (*stat->mutable_misses_by_reason())[std::string(MissReasonName(static_cast<MissReason>(i)))] =
        misses;
  }
}

CacheCounts::Tier CacheReader::TierCounts(Tier tier) const {
  const Counts& counted = counts_[static_cast<size_t>(tier)];
  CacheCounts::Tier counts{.name = TierName(tier), .hits = counted.hits};
  for (int i = 0; i < kMissReasonCount; ++i) counts.misses[i] = counted.misses[i];
  return counts;
}

int64_t CacheReader::data_version() {
  MutexLock lock(mu_);
  file_.Refresh();
  return file_.data_version();
}

absl::Status CacheReader::Execute(const std::string& sql) {
  MutexLock lock(mu_);
  if (file_.db() == nullptr) return file_.Failed(0, "execute");
  return file_.Execute(sql);
}

}  // namespace athanor
