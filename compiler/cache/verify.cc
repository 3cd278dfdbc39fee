#include "compiler/cache/verify.h"

#include <sqlite3.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "compiler/cache/rows.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "proto/athanor/internal/stored.pb.h"

namespace athanor {
namespace {

// Returns the fault of a row; empty: none.
std::string Fault(Tier tier, const RowView& row) {
  if (!row.ChecksumFits()) return "its checksum does not fit";
  if (tier == Tier::kPlans) {
    const absl::string_view body = row.Text("body");
    internal::StoredPlan plan;
    if (!plan.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
      return "its body is not a StoredPlan";
    }
    if (plan.plan().plan_id() != row.Text("plan_id")) return "its body is another plan";
  }
  return "";
}

constexpr int kMostQuarantined = 100;  // most quarantined rows to list

// Lists the rows that are in quarantine, with the reason.
absl::Status AddQuarantined(SqliteFile& file, v1::CacheVerification& found) {
  Statement read(file.db(),
                 "SELECT tier, key, about, why FROM quarantine ORDER BY found_us DESC LIMIT ?");
  read.Int(kMostQuarantined);
  int code = SQLITE_ROW;
  while ((code = read.Step()) == SQLITE_ROW) {
    v1::CacheVerification::BadRow& row = *found.add_quarantined();
    row.set_tier(read.ValueAt(0));
    row.set_key(absl::BytesToHexString(read.BytesAt(1)));
    row.set_about(read.ValueAt(2));
    row.set_why(read.ValueAt(3));
  }
  return code == SQLITE_DONE ? absl::OkStatus() : file.Failed(code, "read quarantine");
}

void AddBad(v1::CacheVerification& found, const BadRow& bad) {
  v1::CacheVerification::BadRow& row = *found.add_bad();
  row.set_tier(std::string(TierName(bad.tier)));
  row.set_key(absl::BytesToHexString(bad.key));
  row.set_about(bad.about);
  row.set_why(bad.why);
}

absl::Status VerifyTier(SqliteFile& file, Tier tier, v1::CacheVerification& found,
                        std::vector<BadRow>& bad) {
  const int code = SelectRows(file, tier, "1", {}, [&](const RowView& row) {
    found.set_rows(found.rows() + 1);
    found.set_bytes(found.bytes() + row.Int("bytes"));
    if (const std::string fault = Fault(tier, row); !fault.empty()) {
      bad.push_back(BadRowOf(tier, row, fault));
    }
    return true;
  });
  return code == SQLITE_DONE ? absl::OkStatus()
                             : file.Failed(code, absl::StrCat("read ", TierName(tier)));
}

// Rows of checks are nothing but their keys.
absl::Status VerifyChecks(SqliteFile& file, bool quarantine, v1::CacheVerification& found) {
  {
    Statement count(file.db(), "SELECT count(*) FROM checks");
    if (count.Step() == SQLITE_ROW) found.set_rows(found.rows() + count.IntAt(0));
  }
  const std::string bad =
      absl::StrCat("length(key) != ", kSha256Bytes, " OR typeof(key) != 'blob'");
  {
    Statement read(file.db(), absl::StrCat("SELECT key FROM checks WHERE ", bad));
    int code = SQLITE_ROW;
    while ((code = read.Step()) == SQLITE_ROW) {
      AddBad(found,
             {Tier::kChecks, 0, "", read.ValueAt(0), "a passed check", "its key is not a hash"});
    }
    if (code != SQLITE_DONE) return file.Failed(code, "read checks");
  }
  if (!quarantine) return absl::OkStatus();
  return file.Execute(
      absl::StrCat("INSERT OR REPLACE INTO quarantine (tier, key, found_us, why, about, bytes)"
                   " SELECT 'checks', CAST(key AS BLOB), ",
                   WallMicroseconds(),
                   ", 'its key is not a hash', 'a passed check', length(key) FROM checks WHERE ",
                   bad, "; DELETE FROM checks WHERE ", bad));
}

// Returns "ok", or SQLite's description of the damage.
absl::StatusOr<std::string> CheckDatabase(SqliteFile& file) {
  Statement check(file.db(), "PRAGMA integrity_check");
  const int code = check.Step();
  if (code != SQLITE_ROW) return file.Failed(code, "check");
  return std::string(check.BytesAt(0));
}

// Rebuilds indexes that do not fit their rows; moves the file aside for any other damage. Leaves
// a file that is busy or cannot be written as it is.
void Mend(SqliteFile& file, absl::string_view fault) {
  const absl::Status reindexed = file.Execute("REINDEX");
  if (reindexed.code() == absl::StatusCode::kDataLoss) return;  // the file was moved aside
  if (!reindexed.ok() && !absl::IsFailedPrecondition(reindexed)) return;
  const absl::StatusOr<std::string> left = CheckDatabase(file);
  if (left.ok() && *left != "ok") file.Failed(SQLITE_CORRUPT, fault).IgnoreError();
}

}  // namespace

absl::StatusOr<v1::CacheVerification> VerifyRows(SqliteFile& file, bool quarantine) {
  v1::CacheVerification found;
  std::vector<BadRow> bad;
  const auto verify = [&]() -> absl::Status {
    RETURN_IF_ERROR(AddQuarantined(file, found));
    for (Tier tier : kTiersWithChecksums) {
      RETURN_IF_ERROR(VerifyTier(file, tier, found, bad));
    }
    for (const BadRow& row : bad) {
      AddBad(found, row);
      if (!quarantine) continue;
      RETURN_IF_ERROR(QuarantineRow(file, row));
    }
    return VerifyChecks(file, quarantine, found);
  };
  // A file that cannot be written can still be verified: only quarantining writes.
  const absl::Status status = quarantine ? file.Transaction(verify) : verify();
  absl::StatusOr<std::string> database = status.ok() ? CheckDatabase(file) : status;
  if (absl::IsDataLoss(database.status())) {  // the file was moved aside
    found.set_database(std::string(database.status().message()));
    return found;
  }
  if (!database.ok()) return database.status();
  found.set_database(*std::move(database));
  if (quarantine && found.database() != "ok") Mend(file, found.database());
  return found;
}

}  // namespace athanor
