#include "server/storage/registry_file.h"

#include <sqlite3.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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
    // `generation` is a serialised internal.Generation. A file's bytes are a tensor of its version.
    R"(ALTER TABLE versions ADD COLUMN generation BLOB NOT NULL DEFAULT x'';
       CREATE TABLE version_files(
         name TEXT NOT NULL, version INTEGER NOT NULL, path TEXT NOT NULL, hash BLOB NOT NULL,
         PRIMARY KEY(name, version, path)) STRICT, WITHOUT ROWID;)",
    // Versions that come from a model repository, and what they were made of.
    R"(CREATE TABLE repository_versions(
         name TEXT NOT NULL, version INTEGER NOT NULL, content BLOB NOT NULL, stamp BLOB NOT NULL,
         PRIMARY KEY(name, version)) STRICT, WITHOUT ROWID;)",
};
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

RegistryFile::RegistryFile(const std::string& path) : path_(path), file_(path, kSchema, nullptr) {}

absl::StatusOr<std::unique_ptr<RegistryFile>> RegistryFile::Open(const std::string& path) {
  RETURN_IF_ERROR(KeepLog(path));
  std::unique_ptr<RegistryFile> opened(new RegistryFile(path));
  MutexLock lock(opened->mu_);
  const FileState state = opened->file_.Open();
  if (state == FileState::kFull) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot open ", path, ": ", opened->file_.reason()));
  }
  std::string reason = opened->file_.reason();
  if (state == FileState::kUsable) {
    Statement check(opened->file_.db(), "PRAGMA integrity_check(1)");
    const bool read = check.Step() == SQLITE_ROW;
    if (read && check.BytesAt(0) == "ok") return opened;
    reason = absl::StrCat("it is damaged: ",
                          read ? check.BytesAt(0) : sqlite3_errmsg(opened->file_.db()));
  }
  if (state == FileState::kUsable || state == FileState::kUnusable) {
    absl::StrAppend(&reason,
                    "; put a copy of it back, or move it away with its -wal and -shm: the "
                    "next start is then one without models, and puts their weights aside");
  }
  return absl::FailedPreconditionError(absl::StrCat("cannot open ", path, ": ", reason));
}

absl::Status RegistryFile::Use(Body body) {
  MutexLock lock(mu_);
  Connection connection(file_);
  return body(connection);
}

absl::Status RegistryFile::Change(Body body) {
  MutexLock lock(mu_);
  Connection connection(file_);
  return AsPrecondition(file_.Transaction([&] { return body(connection); }));
}

absl::Status RegistryFile::Connection::Failed(absl::string_view what) {
  return AsPrecondition(
      file_.Failed(sqlite3_extended_errcode(file_.db()), absl::StrCat("cannot ", what)));
}

absl::Status RegistryFile::Connection::Read(Statement& read, absl::FunctionRef<void()> row) {
  int code = 0;
  while ((code = read.Step()) == SQLITE_ROW) row();
  return code == SQLITE_DONE ? absl::OkStatus() : Failed("read");
}

absl::Status RegistryFile::Connection::Write(Statement& change) {
  return change.Step() == SQLITE_DONE ? absl::OkStatus() : Failed("write");
}

absl::Status RegistryFile::Connection::Execute(const std::string& sql) {
  return AsPrecondition(file_.Execute(sql));
}

}  // namespace athanor
