#include "server/storage/registry_db.h"

#include <sqlite3.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

// Step i migrates a file of schema i to schema i + 1. Steps are never changed, only added.
constexpr const char* kSchemaSteps[] = {
    R"(CREATE TABLE versions(
         name TEXT NOT NULL, version INTEGER NOT NULL, format TEXT NOT NULL, graph BLOB NOT NULL,
         search_budget TEXT NOT NULL, buckets BLOB NOT NULL, pinned_plan TEXT NOT NULL,
         created_us INTEGER NOT NULL, PRIMARY KEY(name, version)) STRICT;
       CREATE TABLE version_tensors(
         name TEXT NOT NULL, version INTEGER NOT NULL, hash BLOB NOT NULL, bytes INTEGER NOT NULL,
         PRIMARY KEY(name, version, hash)) STRICT, WITHOUT ROWID;
       CREATE TABLE names(
         name TEXT PRIMARY KEY, next_version INTEGER NOT NULL, serving INTEGER NOT NULL,
         rolled_back INTEGER NOT NULL) STRICT;)",
    R"(ALTER TABLE versions ADD COLUMN disable_rules TEXT NOT NULL DEFAULT '';
       ALTER TABLE versions ADD COLUMN approximate INTEGER NOT NULL DEFAULT 0;
       ALTER TABLE versions ADD COLUMN deterministic INTEGER NOT NULL DEFAULT 0;)",
    R"(CREATE TABLE tensor_magnitudes(
         hash BLOB NOT NULL, dtype TEXT NOT NULL, magnitude INTEGER, PRIMARY KEY(hash, dtype))
         STRICT, WITHOUT ROWID;)",
    // `box` is a serialised internal.Box; empty: the full range of the version's dims.
    R"(CREATE TABLE version_plans(
         name TEXT NOT NULL, version INTEGER NOT NULL, box BLOB NOT NULL, plan_id TEXT NOT NULL,
         place INTEGER NOT NULL, first INTEGER NOT NULL, served INTEGER NOT NULL,
         pinned INTEGER NOT NULL, info BLOB NOT NULL, PRIMARY KEY(name, version, box, plan_id))
         STRICT, WITHOUT ROWID;
       INSERT INTO version_plans SELECT name, version, x'', pinned_plan, 0, 0, 0, 1, x''
         FROM versions WHERE pinned_plan != '';
       ALTER TABLE versions DROP COLUMN pinned_plan;)",
    "ALTER TABLE versions ADD COLUMN batch_dim TEXT NOT NULL DEFAULT '';",
    // Locations of tensors that are ranges of a file.
    R"(CREATE TABLE tensor_blobs(
         hash BLOB NOT NULL PRIMARY KEY, blob BLOB NOT NULL, blob_offset INTEGER NOT NULL)
         STRICT, WITHOUT ROWID;
       ALTER TABLE versions ADD COLUMN notes BLOB NOT NULL DEFAULT x'';)",
    // `checksum` is ChecksumOf the row, empty until ReadVersions fills it in; verified_tensors
    // holds stamps of files whose bytes were hashed.
    R"(ALTER TABLE versions ADD COLUMN checksum BLOB NOT NULL DEFAULT x'';
       CREATE TABLE verified_tensors(
         hash BLOB NOT NULL PRIMARY KEY, inode INTEGER NOT NULL, bytes INTEGER NOT NULL,
         modified_ns INTEGER NOT NULL, changed_ns INTEGER NOT NULL) STRICT, WITHOUT ROWID;)",
    R"(CREATE TABLE tensor_seals(hash BLOB NOT NULL PRIMARY KEY, seal BLOB NOT NULL)
         STRICT, WITHOUT ROWID;)",
};
constexpr absl::string_view kFullRange = "";
// A write that was acknowledged survives the loss of power, and the file is never created anew.
constexpr SqliteSchema kSchema = {.what = "registry",
                                  .steps = kSchemaSteps,
                                  .application_id = 0x41745265,  // "AtRe"
                                  .table = "versions",
                                  .full_sync = true,
                                  .begin_anew = false,
                                  .busy_milliseconds = 5000};

// Callers only tell a full disk from a file that cannot be used; the message says why.
absl::Status AsPrecondition(const absl::Status& status) {
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

// SQLite deletes the log of a file that is missing or empty, though it may be all that is left.
absl::Status KeepLog(const std::string& path) {
  std::error_code none;
  if (fs::file_size(path, none) > 0 && !none) return absl::OkStatus();
  if (fs::file_size(path + "-wal", none) == 0 || none) return absl::OkStatus();
  const std::string kept = absl::StrCat(
      path, "-wal.aside-", absl::FormatTime("%Y%m%dT%H%M%E6SZ", absl::Now(), absl::UTCTimeZone()));
  if (std::rename((path + "-wal").c_str(), kept.c_str()) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is missing or empty, and its log ", path,
                   "-wal cannot be put aside: ", std::strerror(errno)));
}

}  // namespace

std::string ChecksumOf(const VersionRow& row) {
  Sha256 sha256;
  const std::string numbers =
      absl::StrCat(row.version, " ", row.created_us, " ", row.approximate, " ", row.deterministic);
  for (const std::string* field : {&row.name, &numbers, &row.format, &row.graph, &row.search_budget,
                                   &row.disable_rules, &row.batch_dim, &row.notes}) {
    sha256.Update(absl::StrCat(field->size(), ":")).Update(*field);
  }
  std::vector<std::string> tensors;
  for (const TensorRow& tensor : row.tensors) {
    tensors.push_back(absl::StrCat(absl::BytesToHexString(tensor.hash), "=", tensor.bytes, " "));
  }
  std::sort(tensors.begin(), tensors.end());
  for (const std::string& tensor : tensors) sha256.Update(tensor);
  return sha256.Finish();
}

RegistryDb::RegistryDb(const std::string& path) : file_(path, kSchema, nullptr) {}

absl::StatusOr<std::unique_ptr<RegistryDb>> RegistryDb::Open(const std::string& path) {
  RETURN_IF_ERROR(KeepLog(path));
  std::unique_ptr<RegistryDb> db(new RegistryDb(path));
  MutexLock lock(db->mu_);
  const FileState state = db->file_.Open();
  if (state == FileState::kFull) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot open ", path, ": ", db->file_.reason()));
  }
  std::string reason = db->file_.reason();
  if (state == FileState::kUsable) {
    Statement check(db->file_.db(), "PRAGMA integrity_check(1)");
    const bool read = check.Step() == SQLITE_ROW;
    if (read && check.BytesAt(0) == "ok") return db;
    reason =
        absl::StrCat("it is damaged: ", read ? check.BytesAt(0) : sqlite3_errmsg(db->file_.db()));
  }
  if (state == FileState::kUsable || state == FileState::kUnusable) {
    absl::StrAppend(&reason,
                    "; put a copy of it back, or move it away with its -wal and -shm: the "
                    "next start is then one without models, and puts their weights aside");
  }
  return absl::FailedPreconditionError(absl::StrCat("cannot open ", path, ": ", reason));
}

absl::Status RegistryDb::Error(absl::string_view what) {
  return AsPrecondition(
      file_.Failed(sqlite3_extended_errcode(file_.db()), absl::StrCat("cannot ", what)));
}

absl::Status RegistryDb::Execute(const std::string& sql) {
  MutexLock lock(mu_);
  return AsPrecondition(file_.Execute(sql));
}

absl::Status RegistryDb::Transaction(absl::FunctionRef<absl::Status()> body) {
  return AsPrecondition(file_.Transaction(body));
}

absl::Status RegistryDb::ReadTensors(VersionRow* row) {
  Statement read(file_.db(),
                 "SELECT hash, bytes, blob, blob_offset, seal FROM version_tensors "
                 "LEFT JOIN tensor_blobs USING(hash) LEFT JOIN tensor_seals USING(hash) "
                 "WHERE name=?1 AND version=?2");
  read.Text(row->name).Int(row->version);
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    TensorRow& tensor = row->tensors.emplace_back();
    tensor = {std::string(read.BytesAt(0)), read.IntAt(1)};
    if (!read.IsNull(4)) tensor.seal = std::string(read.BytesAt(4));
    if (read.IsNull(2)) continue;
    tensor.blob = std::string(read.BytesAt(2));
    tensor.blob_offset = read.IntAt(3);
  }
  return code == SQLITE_DONE ? absl::OkStatus() : Error("read");
}

absl::Status RegistryDb::ReadPlans(VersionRow* row) {
  Statement read(file_.db(),
                 "SELECT plan_id, first, served, pinned, info, box FROM version_plans "
                 "WHERE name=?1 AND version=?2 ORDER BY box, place");
  read.Text(row->name).Int(row->version);
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    VersionPlanRow plan{.plan_id = std::string(read.BytesAt(0)),
                        .first = read.IntAt(1) != 0,
                        .served = read.IntAt(2) != 0,
                        .pinned = read.IntAt(3) != 0,
                        .info = std::string(read.BytesAt(4)),
                        .box = std::string(read.BytesAt(5))};
    (plan.box == kFullRange ? row->plans : row->pinned_boxes).push_back(std::move(plan));
  }
  return code == SQLITE_DONE ? absl::OkStatus() : Error("read");
}

absl::StatusOr<std::vector<VersionRow>> RegistryDb::ReadVersions() {
  MutexLock lock(mu_);
  std::vector<VersionRow> rows;
  std::vector<std::string> checksums;
  Statement read(file_.db(),
                 "SELECT name, version, format, graph, search_budget, buckets, created_us, "
                 "disable_rules, approximate, deterministic, batch_dim, notes, checksum "
                 "FROM versions ORDER BY name, version");
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    checksums.emplace_back(read.BytesAt(12));
    rows.push_back({.name = std::string(read.BytesAt(0)),
                    .version = read.IntAt(1),
                    .format = std::string(read.BytesAt(2)),
                    .graph = std::string(read.BytesAt(3)),
                    .search_budget = std::string(read.BytesAt(4)),
                    .disable_rules = std::string(read.BytesAt(7)),
                    .approximate = read.IntAt(8) != 0,
                    .deterministic = read.IntAt(9) != 0,
                    .batch_dim = std::string(read.BytesAt(10)),
                    .buckets = std::string(read.BytesAt(5)),
                    .created_us = read.IntAt(6),
                    .notes = std::string(read.BytesAt(11)),
                    .tensors = {},
                    .plans = {}});
  }
  if (code != SQLITE_DONE) return Error("read");
  for (VersionRow& row : rows) {
    RETURN_IF_ERROR(ReadTensors(&row));
    RETURN_IF_ERROR(ReadPlans(&row));
  }
  RETURN_IF_ERROR(CompareChecksums(checksums, &rows));
  return rows;
}

absl::Status RegistryDb::CompareChecksums(const std::vector<std::string>& checksums,
                                          std::vector<VersionRow>* rows) {
  std::vector<const VersionRow*> unknown;
  for (size_t i = 0; i < rows->size(); ++i) {
    VersionRow& row = (*rows)[i];
    if (checksums[i].empty()) {
      unknown.push_back(&row);
    } else if (const std::string found = ChecksumOf(row); found != checksums[i]) {
      row.damage = absl::StrCat("its rows in ", file_.path(), " have SHA-256 ",
                                absl::BytesToHexString(found), ", expected ",
                                absl::BytesToHexString(checksums[i]));
    }
  }
  if (unknown.empty()) return absl::OkStatus();
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const VersionRow* row : unknown) {
      const std::string checksum = ChecksumOf(*row);
      Statement update(file_.db(), "UPDATE versions SET checksum=?3 WHERE name=?1 AND version=?2");
      update.Text(row->name).Int(row->version).Blob(checksum);
      if (update.Step() != SQLITE_DONE) return Error("write");
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<NameRow>> RegistryDb::ReadNames() {
  MutexLock lock(mu_);
  std::vector<NameRow> rows;
  Statement read(file_.db(), "SELECT name, next_version, serving, rolled_back FROM names");
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    rows.push_back({std::string(read.BytesAt(0)), read.IntAt(1), read.IntAt(2), read.IntAt(3)});
  }
  if (code != SQLITE_DONE) return Error("read");
  return rows;
}

absl::StatusOr<int64_t> RegistryDb::NextVersion(const std::string& name) {
  MutexLock lock(mu_);
  Statement read(file_.db(), "SELECT next_version FROM names WHERE name=?1");
  const int code = read.Text(name).Step();
  if (code == SQLITE_ROW) return read.IntAt(0);
  if (code != SQLITE_DONE) return Error("read");
  return 1;
}

absl::StatusOr<std::vector<MagnitudeRow>> RegistryDb::ReadMagnitudes() {
  MutexLock lock(mu_);
  std::vector<MagnitudeRow> rows;
  Statement read(file_.db(), "SELECT hash, dtype, magnitude FROM tensor_magnitudes");
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    std::optional<int> magnitude;
    if (!read.IsNull(2)) magnitude = static_cast<int>(read.IntAt(2));
    rows.push_back({std::string(read.BytesAt(0)), std::string(read.BytesAt(1)), magnitude});
  }
  if (code != SQLITE_DONE) return Error("read");
  return rows;
}

absl::StatusOr<std::vector<VerifiedRow>> RegistryDb::ReadVerified() {
  MutexLock lock(mu_);
  std::vector<VerifiedRow> rows;
  Statement read(file_.db(),
                 "SELECT hash, inode, bytes, modified_ns, changed_ns FROM verified_tensors");
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    rows.push_back({std::string(read.BytesAt(0)),
                    {read.IntAt(1), read.IntAt(2), read.IntAt(3), read.IntAt(4)}});
  }
  if (code != SQLITE_DONE) return Error("read");
  return rows;
}

absl::Status RegistryDb::InsertVerified(const std::vector<VerifiedRow>& rows) {
  for (const VerifiedRow& row : rows) {
    Statement insert(file_.db(), "INSERT OR REPLACE INTO verified_tensors VALUES(?1,?2,?3,?4,?5)");
    insert.Blob(row.hash).Int(row.stamp.inode).Int(row.stamp.bytes);
    insert.Int(row.stamp.modified_ns).Int(row.stamp.changed_ns);
    if (insert.Step() != SQLITE_DONE) return Error("write");
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::SetVerified(const std::vector<VerifiedRow>& rows) {
  MutexLock lock(mu_);
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return InsertVerified(rows); });
}

absl::Status RegistryDb::InsertSeals(const std::vector<TensorRow>& rows) {
  for (const TensorRow& row : rows) {
    if (row.seal.empty()) continue;
    Statement insert(file_.db(), "INSERT OR REPLACE INTO tensor_seals VALUES(?1, ?2)");
    if (insert.Blob(row.hash).Blob(row.seal).Step() != SQLITE_DONE) return Error("write");
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::SetSeals(const std::vector<TensorRow>& rows) {
  MutexLock lock(mu_);
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return InsertSeals(rows); });
}

absl::Status RegistryDb::InsertMagnitudes(const std::vector<MagnitudeRow>& rows) {
  for (const MagnitudeRow& row : rows) {
    Statement insert(file_.db(), "INSERT OR IGNORE INTO tensor_magnitudes VALUES(?1, ?2, ?3)");
    insert.Blob(row.hash).Text(row.dtype);
    row.magnitude ? insert.Int(*row.magnitude) : insert.Null();
    if (insert.Step() != SQLITE_DONE) return Error("write");
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::AddMagnitudes(const std::vector<MagnitudeRow>& rows) {
  MutexLock lock(mu_);
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return InsertMagnitudes(rows); });
}

absl::Status RegistryDb::InsertVersion(const VersionRow& row) {
  Statement name(file_.db(),
                 "INSERT INTO names VALUES(?1, ?2, 0, 0) "
                 "ON CONFLICT(name) DO UPDATE SET next_version=?2");
  if (name.Text(row.name).Int(row.version + 1).Step() != SQLITE_DONE) return Error("write");
  Statement version(file_.db(),
                    "INSERT INTO versions "
                    "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)");
  version.Text(row.name).Int(row.version).Text(row.format).Blob(row.graph);
  version.Text(row.search_budget).Blob(row.buckets);
  version.Int(row.created_us).Text(row.disable_rules);
  version.Int(row.approximate ? 1 : 0).Int(row.deterministic ? 1 : 0).Text(row.batch_dim);
  const std::string checksum = ChecksumOf(row);
  version.Blob(row.notes).Blob(checksum);
  if (version.Step() != SQLITE_DONE) return Error("write");
  RETURN_IF_ERROR(InsertTensors(row));
  RETURN_IF_ERROR(InsertVerified(row.verified));
  RETURN_IF_ERROR(InsertSeals(row.tensors));
  return InsertMagnitudes(row.magnitudes);
}

absl::Status RegistryDb::InsertTensors(const VersionRow& row) {
  for (const TensorRow& tensor : row.tensors) {
    Statement insert(file_.db(), "INSERT INTO version_tensors VALUES(?1, ?2, ?3, ?4)");
    insert.Text(row.name).Int(row.version).Blob(tensor.hash).Int(tensor.bytes);
    if (insert.Step() != SQLITE_DONE) return Error("write");
    RETURN_IF_ERROR(InsertPlace(tensor));
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::InsertPlace(const TensorRow& tensor) {
  Statement before(file_.db(), "DELETE FROM tensor_blobs WHERE hash=?1");
  if (before.Blob(tensor.hash).Step() != SQLITE_DONE) return Error("write");
  if (tensor.blob.empty()) return absl::OkStatus();
  Statement place(file_.db(), "INSERT INTO tensor_blobs VALUES(?1, ?2, ?3)");
  place.Blob(tensor.hash).Blob(tensor.blob).Int(tensor.blob_offset);
  return place.Step() == SQLITE_DONE ? absl::OkStatus() : Error("write");
}

absl::Status RegistryDb::SetPlaces(const std::vector<TensorRow>& rows) {
  MutexLock lock(mu_);
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const TensorRow& row : rows) {
      RETURN_IF_ERROR(InsertPlace(row));
    }
    return absl::OkStatus();
  });
}

absl::Status RegistryDb::AddVersion(const VersionRow& row) {
  MutexLock lock(mu_);
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return InsertVersion(row); });
}

absl::Status RegistryDb::DeleteVersions(const std::string& name,
                                        const std::vector<int64_t>& versions) {
  MutexLock lock(mu_);
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (int64_t version : versions) {
      for (absl::string_view sql : {"DELETE FROM version_tensors WHERE name=?1 AND version=?2",
                                    "DELETE FROM version_plans WHERE name=?1 AND version=?2",
                                    "DELETE FROM versions WHERE name=?1 AND version=?2",
                                    "UPDATE names SET serving=0 WHERE name=?1 AND serving=?2"}) {
        Statement statement(file_.db(), sql);
        if (statement.Text(name).Int(version).Step() != SQLITE_DONE) return Error("write");
      }
    }
    return file_.Execute(
        "DELETE FROM tensor_magnitudes WHERE hash NOT IN (SELECT hash FROM version_tensors);"
        "DELETE FROM tensor_seals WHERE hash NOT IN (SELECT hash FROM version_tensors);"
        "DELETE FROM tensor_blobs WHERE hash NOT IN (SELECT hash FROM version_tensors);"
        "DELETE FROM verified_tensors WHERE hash NOT IN (SELECT hash FROM version_tensors)");
  });
}

absl::Status RegistryDb::SetBuckets(const std::string& name, int64_t version,
                                    const std::string& buckets) {
  MutexLock lock(mu_);
  Statement update(file_.db(), "UPDATE versions SET buckets=?3 WHERE name=?1 AND version=?2");
  update.Text(name).Int(version).Blob(buckets);
  return update.Step() == SQLITE_DONE ? absl::OkStatus() : Error("write");
}

absl::Status RegistryDb::SetServing(const NameRow& row) {
  MutexLock lock(mu_);
  Statement update(file_.db(), "UPDATE names SET serving=?2, rolled_back=?3 WHERE name=?1");
  update.Text(row.name).Int(row.serving).Int(row.rolled_back);
  return update.Step() == SQLITE_DONE ? absl::OkStatus() : Error("write");
}

absl::Status RegistryDb::InsertPlans(const std::string& name, int64_t version,
                                     const std::vector<VersionPlanRow>& rows) {
  for (size_t place = 0; place < rows.size(); ++place) {
    const VersionPlanRow& row = rows[place];
    // Inserts nothing if the version was deleted meanwhile.
    Statement insert(file_.db(),
                     "INSERT INTO version_plans SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 "
                     "FROM versions WHERE name=?1 AND version=?2");
    insert.Text(name).Int(version).Blob(row.box).Text(row.plan_id);
    insert.Int(static_cast<int64_t>(place)).Int(row.first ? 1 : 0).Int(row.served ? 1 : 0);
    insert.Int(row.pinned ? 1 : 0).Blob(row.info);
    if (insert.Step() != SQLITE_DONE) return Error("write");
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::SetPlans(const std::string& name, int64_t version,
                                  const std::vector<VersionPlanRow>& rows) {
  MutexLock lock(mu_);
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Statement clear(file_.db(),
                    "DELETE FROM version_plans WHERE name=?1 AND version=?2 AND box=?3");
    clear.Text(name).Int(version).Blob(kFullRange);
    if (clear.Step() != SQLITE_DONE) return Error("write");
    return InsertPlans(name, version, rows);
  });
}

absl::Status RegistryDb::SetPinnedBoxes(const std::string& name, int64_t version,
                                        const std::vector<VersionPlanRow>& rows) {
  MutexLock lock(mu_);
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Statement clear(file_.db(),
                    "DELETE FROM version_plans WHERE name=?1 AND version=?2 AND box!=?3");
    clear.Text(name).Int(version).Blob(kFullRange);
    if (clear.Step() != SQLITE_DONE) return Error("write");
    return InsertPlans(name, version, rows);
  });
}

}  // namespace athanor
