#include "compiler/cache/garbage.h"

#include <sqlite3.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/cache/schema.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {
namespace {

struct Stage {
  Tier tier;
  const char* where;  // SQL: which rows may go, those used longest ago first
};

// Which kernels are still named is in temp.named, see NameKernels.
constexpr char kUnnamed[] = "key NOT IN (SELECT key FROM temp.named)";
constexpr Stage kBeforePlans[] = {
    {Tier::kTimings, "kernel NOT IN (SELECT source_hash FROM kernels)"},
    {Tier::kFailures, "1"},
    {Tier::kRecipes, "1"},
    {Tier::kKernels, kUnnamed},
    {Tier::kPlans, "incumbent = 0"},
};
constexpr Stage kRest[] = {
    {Tier::kKernels, kUnnamed}, {Tier::kTimings, "1"}, {Tier::kSearches, "1"},
    {Tier::kChecks, "1"},       {Tier::kTargets, "1"},
};
constexpr int kRowsAtOnce = 8;

// A tier's rows as DELETE sees them; checks have no rowid and no bytes of their own.
const char* IdOf(Tier tier) { return tier == Tier::kChecks ? "key" : "rowid"; }
const char* BytesOf(Tier tier) { return tier == Tier::kChecks ? "length(key) + 16" : "bytes"; }
const char* AgeOf(Tier tier) { return tier == Tier::kQuarantine ? "found_us" : "used_us"; }

// One run over a file. REQUIRES: inside a transaction.
class Collector {
 public:
  Collector(SqliteFile& file, const GarbageOptions& options) : file_(file), options_(options) {}

  absl::Status Run() {
    // Also those of a clock that was wrong.
    const std::string expired = options_.failures
                                    ? "1"
                                    : absl::StrCat("expires_us <= ", WallMicroseconds(),
                                                   " OR created_us > ", WallMicroseconds());
    absl::Status status = RemoveAll({Tier::kFailures, expired.c_str()});
    if (status.ok() && options_.quarantine) status = RemoveAll({Tier::kQuarantine, "1"});
    if (status.ok()) status = NameKernels();
    for (const Stage& stage : kBeforePlans) {
      if (status.ok()) status = Evict(stage);
    }
    if (status.ok()) status = NameKernels();
    for (const Stage& stage : kRest) {
      if (status.ok()) status = Evict(stage);
    }
    while (status.ok() && Over() && removed_ > 0) status = EvictServing();
    reply_.set_bytes_left(UsedBytes(file_));
    return status;
  }

  v1::CollectGarbageReply& reply() { return reply_; }

 private:
  bool Over() { return options_.limit_bytes > 0 && UsedBytes(file_) > options_.limit_bytes; }

  // Fills temp.named with what plans name.
  absl::Status NameKernels() {
    absl::Status created = file_.Execute(
        "CREATE TEMP TABLE IF NOT EXISTS named (key BLOB PRIMARY KEY NOT NULL) WITHOUT ROWID;"
        "DELETE FROM temp.named");
    if (!created.ok()) return created;
    Statement read(file_.db(), "SELECT kernel_keys FROM plans");
    Statement insert(file_.db(), "INSERT OR IGNORE INTO temp.named (key) VALUES (?)");
    int code = SQLITE_ROW;
    while ((code = read.Step()) == SQLITE_ROW) {
      const absl::string_view keys = read.BytesAt(0);
      for (size_t i = 0; i + kSha256Bytes <= keys.size(); i += kSha256Bytes) {
        insert.Reset();
        const int inserted = insert.Blob(keys.substr(i, kSha256Bytes)).Step();
        if (inserted != SQLITE_DONE) return file_.Failed(inserted, "name kernels");
      }
    }
    return code == SQLITE_DONE ? absl::OkStatus() : file_.Failed(code, "read plans");
  }

  absl::Status RemoveAll(const Stage& stage) {
    do {
      if (absl::Status s = Remove(stage); !s.ok()) return s;
    } while (removed_ > 0);
    return absl::OkStatus();
  }

  absl::Status Evict(const Stage& stage) {
    removed_ = 1;
    while (removed_ > 0 && Over()) {
      if (absl::Status s = Remove(stage); !s.ok()) return s;
    }
    removed_ = 1;
    return absl::OkStatus();
  }

  // The incumbent used longest ago, and the kernels only it named.
  absl::Status EvictServing() {
    absl::Status status = Remove({Tier::kPlans, "1"}, 1);
    const int64_t plans = removed_;
    if (status.ok()) status = NameKernels();
    if (status.ok()) status = RemoveAll({Tier::kKernels, kUnnamed});
    removed_ = plans;
    return status;
  }

  absl::Status Remove(const Stage& stage, int most = kRowsAtOnce) {
    const absl::string_view table = TierName(stage.tier);
    const char* id = IdOf(stage.tier);
    Statement remove(
        file_.db(), absl::StrCat("DELETE FROM ", table, " WHERE ", id, " IN (SELECT ", id, " FROM ",
                                 table, " WHERE ", stage.where, " ORDER BY ", AgeOf(stage.tier),
                                 " LIMIT ", most, ") RETURNING ", BytesOf(stage.tier)));
    removed_ = 0;
    int64_t bytes = 0;
    int code = SQLITE_ROW;
    while ((code = remove.Step()) == SQLITE_ROW) {
      ++removed_;
      bytes += remove.IntAt(0);
    }
    if (code != SQLITE_DONE) return file_.Failed(code, absl::StrCat("remove ", table));
    if (removed_ > 0) Count(table, bytes);
    return absl::OkStatus();
  }

  void Count(absl::string_view table, int64_t bytes) {
    reply_.set_rows(reply_.rows() + removed_);
    reply_.set_bytes(reply_.bytes() + bytes);
    v1::CollectGarbageReply::TierGarbage* tier = nullptr;
    for (auto& known : *reply_.mutable_tiers()) {
      if (known.tier() == table) tier = &known;
    }
    if (tier == nullptr) {
      tier = reply_.add_tiers();
      tier->set_tier(std::string(table));
    }
    tier->set_rows(tier->rows() + removed_);
    tier->set_bytes(tier->bytes() + bytes);
  }

  SqliteFile& file_;
  const GarbageOptions& options_;
  int64_t removed_ = 1;  // by the last Remove
  v1::CollectGarbageReply reply_;
};

int64_t Number(SqliteFile& file, absl::string_view sql) {
  Statement statement(file.db(), sql);
  return statement.Step() == SQLITE_ROW ? statement.IntAt(0) : 0;
}

}  // namespace

int64_t UsedBytes(SqliteFile& file) {
  return (Number(file, "PRAGMA page_count") - Number(file, "PRAGMA freelist_count")) *
         Number(file, "PRAGMA page_size");
}

absl::StatusOr<v1::CollectGarbageReply> CollectGarbage(SqliteFile& file,
                                                       const GarbageOptions& options) {
  Collector collector(file, options);
  bool finished = false;
  const absl::Status status = file.Transaction([&]() -> absl::Status {
    if (absl::Status s = collector.Run(); !s.ok()) return s;
    finished = true;
    return options.dry_run ? absl::CancelledError("a dry run") : absl::OkStatus();
  });
  if (finished && options.dry_run) return collector.reply();
  if (!status.ok()) return status;
  if (collector.reply().rows() > 0) {
    // The rows are gone already; that the file cannot shrink now is no failure.
    file.Execute("PRAGMA incremental_vacuum").IgnoreError();
    file.Execute("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
  }
  return collector.reply();
}

}  // namespace athanor
