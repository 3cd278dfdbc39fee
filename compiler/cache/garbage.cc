#include "compiler/cache/garbage.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "compiler/cache/schema.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

struct Stage {
  Tier tier;
  const char* where;  // SQL: rows that may be removed
};

// Matches kernels that no plan names. NameKernels fills temp.named.
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
// Rows per transaction, between which others write. A transaction may cost a scan of the file, so
// it removes no fewer than the least.
constexpr size_t kMostRows = 500;
constexpr size_t kLeastRows = 8;

// SQL for a tier's rows; checks have no rowid and no bytes of their own.
const char* IdOf(Tier tier) { return tier == Tier::kChecks ? "key" : "rowid"; }
const char* BytesOf(Tier tier) { return tier == Tier::kChecks ? "length(key) + 16" : "bytes"; }
const char* AgeOf(Tier tier) { return tier == Tier::kQuarantine ? "found_us" : "used_us"; }

struct Row {
  int64_t rowid = 0;
  std::string key;  // for a tier without rowid
  int64_t bytes = 0;
};

// A run over a file.
class Collector {
 public:
  Collector(SqliteFile& file, const GarbageOptions& options) : file_(file), options_(options) {}

  absl::Status Run() {
    // Includes rows written under a wrong clock.
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
    while (status.ok() && Excess() > 0) {
      absl::StatusOr<bool> evicted = EvictServing();
      status = evicted.status();
      if (!evicted.ok() || !*evicted) break;
    }
    reply_.set_bytes_left(UsedBytes(file_));
    return status;
  }

  v1::CollectGarbageReply& reply() { return reply_; }

 private:
  // Returns the bytes above the limit.
  int64_t Excess() {
    return options_.limit_bytes > 0 ? std::max<int64_t>(UsedBytes(file_) - options_.limit_bytes, 0)
                                    : 0;
  }

  // A dry run is one transaction, which CollectGarbage rolls back.
  absl::Status Transaction(absl::FunctionRef<absl::Status()> body) {
    return options_.dry_run ? body() : file_.Transaction(body);
  }

  // Fills temp.named with the kernels that plans name.
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
    ASSIGN_OR_RETURN(std::vector<Row> rows, Choose(stage, std::numeric_limits<int64_t>::max()));
    for (absl::Span<const Row> left = rows; !left.empty();) {
      const auto some = left.subspan(0, kMostRows);
      RETURN_IF_ERROR(Remove(stage, some));
      left.remove_prefix(some.size());
    }
    return absl::OkStatus();
  }

  absl::Status Evict(const Stage& stage) {
    for (int64_t excess = Excess(); excess > 0; excess = Excess()) {
      ASSIGN_OR_RETURN(std::vector<Row> rows, Choose(stage, excess));
      const int64_t before = reply_.rows();
      for (absl::Span<const Row> left = rows; !left.empty() && excess > 0; excess = Excess()) {
        size_t n = 0;
        for (int64_t bytes = 0; n < left.size() && n < kMostRows; ++n) {
          if (n >= kLeastRows && bytes >= excess) break;
          bytes += left[n].bytes;
        }
        RETURN_IF_ERROR(Remove(stage, left.subspan(0, n)));
        left.remove_prefix(n);
      }
      if (reply_.rows() == before) break;
    }
    return absl::OkStatus();
  }

  // Removes the incumbent used longest ago, and the kernels that only it named. Returns false if
  // there is none.
  absl::StatusOr<bool> EvictServing() {
    const Stage any = {Tier::kPlans, "1"};
    ASSIGN_OR_RETURN(std::vector<Row> rows, Choose(any, 0));
    if (rows.empty()) return false;
    absl::Status status = Remove(any, {rows.data(), 1});
    if (status.ok()) status = NameKernels();
    if (status.ok()) status = RemoveAll({Tier::kKernels, kUnnamed});
    return status.ok() ? absl::StatusOr<bool>(true) : status;
  }

  // Returns a stage's rows, used longest ago first, until they add up to `bytes`.
  absl::StatusOr<std::vector<Row>> Choose(const Stage& stage, int64_t bytes) {
    const absl::string_view table = TierName(stage.tier);
    Statement read(file_.db(),
                   absl::StrCat("SELECT ", IdOf(stage.tier), ", ", BytesOf(stage.tier), " FROM ",
                                table, " WHERE ", stage.where, " ORDER BY ", AgeOf(stage.tier)));
    std::vector<Row> rows;
    int code = SQLITE_ROW;
    while ((rows.size() < kLeastRows || bytes > 0) && (code = read.Step()) == SQLITE_ROW) {
      Row& row = rows.emplace_back();
      if (stage.tier == Tier::kChecks) {
        row.key = std::string(read.BytesAt(0));
      } else {
        row.rowid = read.IntAt(0);
      }
      row.bytes = read.IntAt(1);
      bytes -= row.bytes;
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
      return file_.Failed(code, absl::StrCat("read ", table));
    }
    return rows;
  }

  // Removes those of `rows` that still match the stage.
  absl::Status Remove(const Stage& stage, absl::Span<const Row> rows) {
    const absl::string_view table = TierName(stage.tier);
    int64_t removed = 0, bytes = 0;
    absl::Status status = Transaction([&]() -> absl::Status {
      if (stage.tier == Tier::kKernels) {
        RETURN_IF_ERROR(NameKernels());
      }
      Statement remove(
          file_.db(), absl::StrCat("DELETE FROM ", table, " WHERE ", IdOf(stage.tier), " = ? AND (",
                                   stage.where, ") RETURNING ", BytesOf(stage.tier)));
      for (const Row& row : rows) {
        remove.Reset();
        if (stage.tier == Tier::kChecks) {
          remove.Blob(row.key);
        } else {
          remove.Int(row.rowid);
        }
        int code;
        while ((code = remove.Step()) == SQLITE_ROW) {
          ++removed;
          bytes += remove.IntAt(0);
        }
        if (code != SQLITE_DONE) return file_.Failed(code, absl::StrCat("remove ", table));
      }
      return absl::OkStatus();
    });
    if (status.ok() && removed > 0) Count(table, removed, bytes);
    return status;
  }

  void Count(absl::string_view table, int64_t rows, int64_t bytes) {
    reply_.set_rows(reply_.rows() + rows);
    reply_.set_bytes(reply_.bytes() + bytes);
    v1::CollectGarbageReply::TierGarbage* tier = nullptr;
    for (auto& known : *reply_.mutable_tiers()) {
      if (known.tier() == table) tier = &known;
    }
    if (tier == nullptr) {
      tier = reply_.add_tiers();
      tier->set_tier(std::string(table));
    }
    tier->set_rows(tier->rows() + rows);
    tier->set_bytes(tier->bytes() + bytes);
  }

  SqliteFile& file_;
  const GarbageOptions& options_;
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
  if (options.dry_run) {
    bool finished = false;
    const absl::Status status = file.Transaction([&]() -> absl::Status {
      RETURN_IF_ERROR(collector.Run());
      finished = true;
      return absl::CancelledError("a dry run");
    });
    return finished ? absl::StatusOr<v1::CollectGarbageReply>(collector.reply()) : status;
  }
  const absl::Status status = collector.Run();
  if (collector.reply().rows() > 0) {
    // The rows are removed already: it is no failure if the file cannot shrink now.
    file.Execute("PRAGMA incremental_vacuum").IgnoreError();
    file.Execute("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
  }
  if (!status.ok()) return status;
  return collector.reply();
}

}  // namespace athanor
