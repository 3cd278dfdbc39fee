#include "server/registry_db.h"

#include <sqlite3.h>

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace athanor {
namespace {

// Step i brings a file of schema i to schema i + 1. Steps are never changed, only added.
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
    // Of tensors that are ranges of a file.
    R"(CREATE TABLE tensor_blobs(
         hash BLOB NOT NULL PRIMARY KEY, blob BLOB NOT NULL, blob_offset INTEGER NOT NULL)
         STRICT, WITHOUT ROWID;
       ALTER TABLE versions ADD COLUMN notes BLOB NOT NULL DEFAULT x'';)",
};
constexpr absl::string_view kFullRange = "";
// What was acknowledged is neither lost with the power nor begun anew.
constexpr SqliteSchema kSchema = {.what = "registry",
                                  .steps = kSchemaSteps,
                                  .application_id = 0x41745265,  // "AtRe"
                                  .table = "versions",
                                  .full_sync = true,
                                  .begin_anew = false,
                                  .busy_milliseconds = 5000};

// Callers tell a full disk from a file that cannot be used; why not, the message says.
absl::Status AsPrecondition(const absl::Status& status) {
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

}  // namespace

RegistryDb::RegistryDb(const std::string& path) : file_(path, kSchema, nullptr) {}

absl::StatusOr<std::unique_ptr<RegistryDb>> RegistryDb::Open(const std::string& path) {
  std::unique_ptr<RegistryDb> db(new RegistryDb(path));
  MutexLock lock(db->mu_);
  const FileState state = db->file_.Open();
  if (state == FileState::kUsable) return db;
  const std::string message = absl::StrCat("cannot open ", path, ": ", db->file_.reason());
  return state == FileState::kFull ? absl::ResourceExhaustedError(message)
                                   : absl::FailedPreconditionError(message);
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
                 "SELECT hash, bytes, blob, blob_offset FROM version_tensors "
                 "LEFT JOIN tensor_blobs USING(hash) WHERE name=?1 AND version=?2");
  read.Text(row->name).Int(row->version);
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    TensorRow& tensor = row->tensors.emplace_back();
    tensor = {std::string(read.BytesAt(0)), read.IntAt(1)};
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
  Statement read(file_.db(),
                 "SELECT name, version, format, graph, search_budget, buckets, created_us, "
                 "disable_rules, approximate, deterministic, batch_dim, notes FROM versions "
                 "ORDER BY name, version");
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
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
    if (absl::Status s = ReadTensors(&row); !s.ok()) return s;
    if (absl::Status s = ReadPlans(&row); !s.ok()) return s;
  }
  return rows;
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
                    "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)");
  version.Text(row.name).Int(row.version).Text(row.format).Blob(row.graph);
  version.Text(row.search_budget).Blob(row.buckets);
  version.Int(row.created_us).Text(row.disable_rules);
  version.Int(row.approximate ? 1 : 0).Int(row.deterministic ? 1 : 0).Text(row.batch_dim);
  version.Blob(row.notes);
  if (version.Step() != SQLITE_DONE) return Error("write");
  if (absl::Status s = InsertTensors(row); !s.ok()) return s;
  return InsertMagnitudes(row.magnitudes);
}

absl::Status RegistryDb::InsertTensors(const VersionRow& row) {
  for (const TensorRow& tensor : row.tensors) {
    Statement insert(file_.db(), "INSERT INTO version_tensors VALUES(?1, ?2, ?3, ?4)");
    insert.Text(row.name).Int(row.version).Blob(tensor.hash).Int(tensor.bytes);
    if (insert.Step() != SQLITE_DONE) return Error("write");
    if (tensor.blob.empty()) continue;
    Statement place(file_.db(), "INSERT OR IGNORE INTO tensor_blobs VALUES(?1, ?2, ?3)");
    place.Blob(tensor.hash).Blob(tensor.blob).Int(tensor.blob_offset);
    if (place.Step() != SQLITE_DONE) return Error("write");
  }
  return absl::OkStatus();
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
        "DELETE FROM tensor_blobs WHERE hash NOT IN (SELECT hash FROM version_tensors)");
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
    // Nothing of a version that was deleted meanwhile.
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
