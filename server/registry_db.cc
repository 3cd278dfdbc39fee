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
};
constexpr int kSchema = sizeof(kSchemaSteps) / sizeof(kSchemaSteps[0]);

// One statement, finalised at the end of its scope.
class Statement {
 public:
  Statement(sqlite3* db, absl::string_view sql) {
    sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Text(int i, absl::string_view value) {
    sqlite3_bind_text64(statement_, i, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8);
    return *this;
  }
  Statement& Blob(int i, absl::string_view value) {
    // An empty view may have no address, which SQLite would take for NULL.
    sqlite3_bind_blob64(statement_, i, value.empty() ? "" : value.data(), value.size(),
                        SQLITE_STATIC);
    return *this;
  }
  Statement& Int(int i, int64_t value) {
    sqlite3_bind_int64(statement_, i, value);
    return *this;
  }
  Statement& Int(int i, std::optional<int> value) {
    if (value) return Int(i, int64_t{*value});
    sqlite3_bind_null(statement_, i);
    return *this;
  }
  int Step() { return statement_ == nullptr ? SQLITE_ERROR : sqlite3_step(statement_); }

  bool IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string Bytes(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RegistryDb>> RegistryDb::Open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  std::unique_ptr<RegistryDb> db(new RegistryDb(path, handle));
  MutexLock lock(db->mu_);
  if (code != SQLITE_OK) return db->Error("open");
  for (const char* pragma : {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
                             "PRAGMA foreign_keys=ON", "PRAGMA busy_timeout=5000"}) {
    if (absl::Status s = db->ExecuteLocked(pragma); !s.ok()) return s;
  }
  lock.Unlock();
  absl::Status migrated = db->Migrate();
  lock.Lock();
  if (!migrated.ok()) return migrated;
  return db;
}

RegistryDb::~RegistryDb() { sqlite3_close(db_); }

absl::Status RegistryDb::Error(absl::string_view what) {
  const std::string message = absl::StrCat("cannot ", what, " ", path_, ": ",
                                           db_ == nullptr ? "no memory" : sqlite3_errmsg(db_));
  switch (db_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(db_)) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::FailedPreconditionError(message);
  }
}

absl::Status RegistryDb::ExecuteLocked(absl::string_view sql) {
  if (sqlite3_exec(db_, std::string(sql).c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return Error("write");
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::Execute(const std::string& sql) {
  MutexLock lock(mu_);
  return ExecuteLocked(sql);
}

template <typename Body>
absl::Status RegistryDb::Transaction(Body body) {
  if (absl::Status s = ExecuteLocked("BEGIN IMMEDIATE"); !s.ok()) return s;
  absl::Status status = body();
  if (status.ok()) status = ExecuteLocked("COMMIT");
  if (!status.ok() && sqlite3_get_autocommit(db_) == 0) {
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  return status;
}

absl::Status RegistryDb::Migrate() {
  MutexLock lock(mu_);
  int64_t schema = 0;
  {
    Statement version(db_, "PRAGMA user_version");
    if (version.Step() != SQLITE_ROW) return Error("read");
    schema = version.Int(0);
  }
  if (schema > kSchema) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " has schema ", schema, "; this server knows up to ", kSchema));
  }
  for (; schema < kSchema; ++schema) {
    absl::Status s = Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      absl::Status step = ExecuteLocked(kSchemaSteps[schema]);
      if (!step.ok()) return step;
      return ExecuteLocked(absl::StrCat("PRAGMA user_version=", schema + 1));
    });
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::ReadTensors(VersionRow* row) {
  Statement read(db_, "SELECT hash, bytes FROM version_tensors WHERE name=?1 AND version=?2");
  read.Text(1, row->name).Int(2, row->version);
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) row->tensors.push_back({read.Bytes(0), read.Int(1)});
  return code == SQLITE_DONE ? absl::OkStatus() : Error("read");
}

absl::StatusOr<std::vector<VersionRow>> RegistryDb::ReadVersions() {
  MutexLock lock(mu_);
  std::vector<VersionRow> rows;
  Statement read(
      db_,
      "SELECT name, version, format, graph, search_budget, buckets, pinned_plan, "
      "created_us, disable_rules, approximate, deterministic FROM versions ORDER BY name, version");
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    rows.push_back({.name = read.Bytes(0),
                    .version = read.Int(1),
                    .format = read.Bytes(2),
                    .graph = read.Bytes(3),
                    .search_budget = read.Bytes(4),
                    .disable_rules = read.Bytes(8),
                    .approximate = read.Int(9) != 0,
                    .deterministic = read.Int(10) != 0,
                    .buckets = read.Bytes(5),
                    .pinned_plan = read.Bytes(6),
                    .created_us = read.Int(7),
                    .tensors = {}});
  }
  if (code != SQLITE_DONE) return Error("read");
  for (VersionRow& row : rows) {
    if (absl::Status s = ReadTensors(&row); !s.ok()) return s;
  }
  return rows;
}

absl::StatusOr<std::vector<NameRow>> RegistryDb::ReadNames() {
  MutexLock lock(mu_);
  std::vector<NameRow> rows;
  Statement read(db_, "SELECT name, next_version, serving, rolled_back FROM names");
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    rows.push_back({read.Bytes(0), read.Int(1), read.Int(2), read.Int(3)});
  }
  if (code != SQLITE_DONE) return Error("read");
  return rows;
}

absl::StatusOr<std::vector<MagnitudeRow>> RegistryDb::ReadMagnitudes() {
  MutexLock lock(mu_);
  std::vector<MagnitudeRow> rows;
  Statement read(db_, "SELECT hash, dtype, magnitude FROM tensor_magnitudes");
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) {
    std::optional<int> magnitude;
    if (!read.IsNull(2)) magnitude = static_cast<int>(read.Int(2));
    rows.push_back({read.Bytes(0), read.Bytes(1), magnitude});
  }
  if (code != SQLITE_DONE) return Error("read");
  return rows;
}

absl::Status RegistryDb::InsertMagnitudes(const std::vector<MagnitudeRow>& rows) {
  for (const MagnitudeRow& row : rows) {
    Statement insert(db_, "INSERT OR IGNORE INTO tensor_magnitudes VALUES(?1, ?2, ?3)");
    insert.Blob(1, row.hash).Text(2, row.dtype).Int(3, row.magnitude);
    if (insert.Step() != SQLITE_DONE) return Error("write");
  }
  return absl::OkStatus();
}

absl::Status RegistryDb::AddMagnitudes(const std::vector<MagnitudeRow>& rows) {
  MutexLock lock(mu_);
  return Transaction([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return InsertMagnitudes(rows); });
}

absl::Status RegistryDb::InsertVersion(const VersionRow& row) {
  Statement name(db_,
                 "INSERT INTO names VALUES(?1, ?2, 0, 0) "
                 "ON CONFLICT(name) DO UPDATE SET next_version=?2");
  if (name.Text(1, row.name).Int(2, row.version + 1).Step() != SQLITE_DONE) return Error("write");
  Statement version(db_,
                    "INSERT INTO versions VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)");
  version.Text(1, row.name).Int(2, row.version).Text(3, row.format).Blob(4, row.graph);
  version.Text(5, row.search_budget).Blob(6, row.buckets).Text(7, row.pinned_plan);
  version.Int(8, row.created_us).Text(9, row.disable_rules);
  version.Int(10, row.approximate ? 1 : 0).Int(11, row.deterministic ? 1 : 0);
  if (version.Step() != SQLITE_DONE) return Error("write");
  for (const TensorRow& tensor : row.tensors) {
    Statement insert(db_, "INSERT INTO version_tensors VALUES(?1, ?2, ?3, ?4)");
    insert.Text(1, row.name).Int(2, row.version).Blob(3, tensor.hash).Int(4, tensor.bytes);
    if (insert.Step() != SQLITE_DONE) return Error("write");
  }
  return InsertMagnitudes(row.magnitudes);
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
                                    "DELETE FROM versions WHERE name=?1 AND version=?2",
                                    "UPDATE names SET serving=0 WHERE name=?1 AND serving=?2"}) {
        Statement statement(db_, sql);
        if (statement.Text(1, name).Int(2, version).Step() != SQLITE_DONE) return Error("write");
      }
    }
    return ExecuteLocked(
        "DELETE FROM tensor_magnitudes WHERE hash NOT IN (SELECT hash FROM version_tensors)");
  });
}

absl::Status RegistryDb::SetServing(const NameRow& row) {
  MutexLock lock(mu_);
  Statement update(db_, "UPDATE names SET serving=?2, rolled_back=?3 WHERE name=?1");
  update.Text(1, row.name).Int(2, row.serving).Int(3, row.rolled_back);
  return update.Step() == SQLITE_DONE ? absl::OkStatus() : Error("write");
}

absl::Status RegistryDb::SetPinnedPlan(const std::string& name, int64_t version,
                                       const std::string& plan_id) {
  MutexLock lock(mu_);
  Statement update(db_, "UPDATE versions SET pinned_plan=?3 WHERE name=?1 AND version=?2");
  update.Text(1, name).Int(2, version).Text(3, plan_id);
  return update.Step() == SQLITE_DONE ? absl::OkStatus() : Error("write");
}

}  // namespace athanor
