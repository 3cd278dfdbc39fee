#include "compiler/cache/sqlite/sqlite_file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

struct FileSystemRow {
  uint32_t type;  // statfs.f_type
  const char* name;
  bool local;  // locks and mapped memory are shared by all who open a file
};

constexpr FileSystemRow kFileSystems[] = {
    {0x6969, "nfs", false},       {0x517b, "smb", false},        {0xff534d42, "cifs", false},
    {0xfe534d42, "smb2", false},  {0x5346414f, "afs", false},    {0x00c36400, "ceph", false},
    {0x01021997, "9p", false},    {0x0bd00bd0, "lustre", false}, {0x01161970, "gfs2", false},
    {0x7461636f, "ocfs2", false}, {0x65735546, "fuse", false},   {0x73757245, "coda", false},
    {0x47504653, "gpfs", false},  {0xef53, "ext4", true},        {0x58465342, "xfs", true},
    {0x9123683e, "btrfs", true},  {0x01021994, "tmpfs", true},   {0x794c7630, "overlay", true},
    {0x2fc12fc1, "zfs", true},    {0xf2f52010, "f2fs", true},
};

int64_t NowMicroseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int RunSql(sqlite3* db, const std::string& sql) {
  return sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
}

// Returns the number that a statement gives; -1 on failure.
int64_t NumberOf(sqlite3* db, absl::string_view sql) {
  Statement statement(db, sql);
  return statement.Step() == SQLITE_ROW ? statement.IntAt(0) : -1;
}

bool IsReadOnly(int code) {
  return (code & 0xff) == SQLITE_READONLY || (code & 0xff) == SQLITE_PERM ||
         (code & 0xff) == SQLITE_AUTH;
}

bool IsOnReadOnly(const std::string& path) {
  struct statvfs about;
  return statvfs(path.c_str(), &about) == 0 && (about.f_flag & ST_RDONLY) != 0;
}

// A full disk can also show as an I/O error, if a shared memory file cannot grow.
bool IsFull(int code) { return (code & 0xff) == SQLITE_FULL || (code & 0xff) == SQLITE_IOERR; }

}  // namespace

std::string FileSystemOf(const std::string& path) {
  struct statfs about;
  std::filesystem::path at = std::filesystem::absolute(path);
  // A path that does not exist yet will lie on the file system of its nearest parent.
  while (statfs(at.c_str(), &about) != 0) {
    if (at == at.parent_path()) return "none";
    at = at.parent_path();
  }
  const auto type = static_cast<uint32_t>(about.f_type);
  for (const FileSystemRow& row : kFileSystems) {
    if (row.type == type) return row.name;
  }
  return absl::StrCat("0x", absl::Hex(type));
}

absl::Status CheckLocal(const std::string& path, const FileSystemName& name) {
  const std::string found = name ? name(path) : FileSystemOf(path);
  for (const FileSystemRow& row : kFileSystems) {
    if (found != row.name || row.local) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": on ", found,
                     "; SQLite's shared memory needs a local file system; give a local path"));
  }
  return absl::OkStatus();
}

bool IsDamage(int code) {
  return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

Statement::Statement(sqlite3* db, absl::string_view sql) {
  code_ = db == nullptr ? SQLITE_MISUSE
                        : sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()),
                                             &statement_, nullptr);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::Bound(int code) {
  if (code_ == SQLITE_OK) code_ = code;
  return *this;
}

// The data of an empty view may be null, which SQLite would take for NULL.
Statement& Statement::Blob(absl::string_view bytes) {
  return Bound(sqlite3_bind_blob64(statement_, ++bound_, bytes.data() ? bytes.data() : "",
                                   bytes.size(), SQLITE_STATIC));
}

Statement& Statement::Text(absl::string_view text) {
  return Bound(sqlite3_bind_text64(statement_, ++bound_, text.data() ? text.data() : "",
                                   text.size(), SQLITE_STATIC, SQLITE_UTF8));
}

Statement& Statement::Int(int64_t value) {
  return Bound(sqlite3_bind_int64(statement_, ++bound_, value));
}

Statement& Statement::Real(double value) {
  return Bound(sqlite3_bind_double(statement_, ++bound_, value));
}

Statement& Statement::Null() { return Bound(sqlite3_bind_null(statement_, ++bound_)); }

int Statement::Step() {
  if (code_ == SQLITE_OK || code_ == SQLITE_ROW) code_ = sqlite3_step(statement_);
  return code_;
}

void Statement::Reset() {
  bound_ = 0;
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  code_ = SQLITE_OK;
}

absl::string_view Statement::BytesAt(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  return {static_cast<const char*>(data),
          data == nullptr ? 0 : static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

int64_t Statement::IntAt(int column) const { return sqlite3_column_int64(statement_, column); }

double Statement::RealAt(int column) const { return sqlite3_column_double(statement_, column); }

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

std::string Statement::ValueAt(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_FLOAT) return std::string(BytesAt(column));
  const double value = RealAt(column);
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

SqliteFile::SqliteFile(std::string path, SqliteSchema schema, Report report)
    : path_(std::move(path)), schema_(schema), report_(std::move(report)) {}

SqliteFile::~SqliteFile() { Close(); }

void SqliteFile::Close() {
  // A Statement that is still alive keeps the connection open, and with it a write lock.
  if (db_ != nullptr && sqlite3_get_autocommit(db_) == 0) RunSql(db_, "ROLLBACK");
  sqlite3_close_v2(db_);
  db_ = nullptr;
}

void SqliteFile::SetState(FileState state, std::string reason) {
  state_ = state;
  reason_ = std::move(reason);
  if (state == FileState::kUsable) {
    reported_ = false;
  } else if (!std::exchange(reported_, true) && report_) {
    report_(absl::StrCat(schema_.what, " ", path_, ": ", reason_));
  }
}

FileState SqliteFile::Open() {
  int code = TryOpen();
  if (IsDamage(code) && schema_.begin_anew) {
    MoveAside();
    code = TryOpen();
  }
  if (code == SQLITE_OK) {
    SetState(FileState::kUsable, "");
    return state_;
  }
  if (code == SQLITE_MISMATCH) {
    const int64_t found = NumberOf(db_, "PRAGMA user_version");
    Close();
    SetState(FileState::kNewerSchema,
             absl::StrCat("it was written by a newer version: it has schema ", found,
                          ", this program knows up to ", schema_.version()));
    return state_;
  }
  if (code != SQLITE_OK && IsOnReadOnly(path_) && OpenImmutable() == SQLITE_OK) {
    SetState(FileState::kReadOnly, "its file system is read-only");
    return state_;
  }
  // The message is freed with the handle.
  std::string reason = !reason_.empty() ? reason_
                       : db_ == nullptr ? "out of memory"
                                        : sqlite3_errmsg(db_);
  Close();
  SetState(IsReadOnly(code) ? FileState::kReadOnly
           : IsFull(code)   ? FileState::kFull
                            : FileState::kUnusable,
           std::move(reason));
  return state_;
}

int SqliteFile::TryOpen() {
  Close();
  reason_.clear();
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  int code = sqlite3_open_v2(
      path_.c_str(), &db_,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
      nullptr);
  if (code == SQLITE_OK) sqlite3_busy_timeout(db_, schema_.busy_milliseconds);
  if (code == SQLITE_OK) code = CheckVersion();
  // Takes effect only before a file has its first page; later it would be a write.
  if (code == SQLITE_OK && schema_.gives_back && NumberOf(db_, "PRAGMA page_count") == 0) {
    code = RunSql(db_, "PRAGMA auto_vacuum=INCREMENTAL");
  }
  if (code == SQLITE_OK) code = RunSql(db_, "PRAGMA journal_mode=WAL");
  // Without full_sync a power loss may lose the last commits, but never reorders them.
  if (code == SQLITE_OK) {
    code = RunSql(db_, schema_.full_sync ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
  }
  if (code == SQLITE_OK) code = RunSql(db_, "PRAGMA foreign_keys=ON");
  if (code == SQLITE_OK) code = RunSql(db_, "PRAGMA temp_store=MEMORY");
  // Limits each connection's page cache to 128 KiB; the system caches the pages anyway.
  if (code == SQLITE_OK) code = RunSql(db_, "PRAGMA cache_size=-128");
  if (code == SQLITE_OK) code = Migrate();
  return code == SQLITE_OK && schema_.gives_back ? SetGivesBack() : code;
}

// Returns SQLITE_MISMATCH for a newer schema, SQLITE_ERROR for another program's file. Leaves every
// byte of such a file unchanged.
int SqliteFile::CheckVersion() {
  // Otherwise the last connection to close would write the log's pages into the file.
  std::error_code none;
  const auto logged = std::filesystem::file_size(path_ + "-wal", none);
  const int keeps_log = !none && logged > 0 ? 1 : 0;
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keeps_log, nullptr);
  // Reads all in one statement: another process may be creating the file.
  Statement read(db_,
                 "SELECT v.user_version, a.application_id, (SELECT count(*) FROM sqlite_schema), "
                 "EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?) "
                 "FROM pragma_user_version v, pragma_application_id a");
  const int code = read.Text(schema_.table).Step();
  if (code == SQLITE_ERROR) {
    // Every database answers this statement, so the header is damaged: a format number, say, that
    // no SQLite has.
    reason_ = sqlite3_errmsg(db_);
    return SQLITE_NOTADB;
  }
  if (code != SQLITE_ROW) return code;
  const int64_t version = read.IntAt(0), id = read.IntAt(1);
  const bool known = version == 0 ? read.IntAt(2) == 0 : read.IntAt(3) == 1;
  if (schema_.application_id != 0 && id != schema_.application_id && (id != 0 || !known)) {
    reason_ = absl::StrCat("it is a SQLite file of another program or for another purpose, no ",
                           schema_.what, "; give another path");
    return SQLITE_ERROR;
  }
  if (version > schema_.version()) return SQLITE_MISMATCH;
  if (version < 0) {
    reason_ = absl::StrCat("its schema number is negative: ", version);
    return SQLITE_CORRUPT;
  }
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  return SQLITE_OK;
}

int SqliteFile::OpenImmutable() {
  Close();
  std::error_code none;
  if (std::filesystem::file_size(path_ + "-wal", none) > 0 && !none) {
    reason_ = "its file system is read-only, and its write-ahead log cannot be replayed there";
    return SQLITE_READONLY;
  }
  std::string uri = "file:";
  for (const char c : path_) {
    if (absl::StrContains("?#%", absl::string_view(&c, 1))) {
      absl::StrAppend(&uri, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      uri.push_back(c);
    }
  }
  const int flags =
      SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  int code = sqlite3_open_v2((uri + "?immutable=1").c_str(), &db_, flags, nullptr);
  if (code == SQLITE_OK) code = CheckVersion();
  if (code != SQLITE_OK) return code;
  const int64_t version = NumberOf(db_, "PRAGMA user_version");
  if (version == schema_.version()) return SQLITE_OK;
  reason_ = absl::StrCat("its file system is read-only, and it has schema ", version, " of ",
                         schema_.version());
  return SQLITE_READONLY;
}

// Returns SQLITE_MISMATCH for a newer schema.
int SqliteFile::Migrate() {
  int64_t current = NumberOf(db_, "PRAGMA user_version");
  if (current < 0) return sqlite3_extended_errcode(db_);
  if (current > schema_.version()) return SQLITE_MISMATCH;
  if (current == schema_.version()) return SQLITE_OK;
  int code = RunSql(db_, "BEGIN IMMEDIATE");
  if (code != SQLITE_OK) return code;
  // Another process may have migrated the file meanwhile, even to a newer schema.
  current = NumberOf(db_, "PRAGMA user_version");
  if (current > schema_.version()) code = SQLITE_MISMATCH;
  for (; code == SQLITE_OK && current < schema_.version(); ++current) {
    code = RunSql(db_, schema_.steps[current]);
  }
  // The steps fit every file of their schema: this one holds something else than its number says.
  if (code == SQLITE_ERROR) code = SQLITE_CORRUPT;
  if (code == SQLITE_OK) code = RunSql(db_, absl::StrCat("PRAGMA user_version=", current));
  if (code == SQLITE_OK && schema_.application_id != 0) {
    code = RunSql(db_, absl::StrCat("PRAGMA application_id=", schema_.application_id));
  }
  if (code == SQLITE_OK) code = RunSql(db_, "COMMIT");
  // the next statement overwrites the message
  if (code != SQLITE_OK) reason_ = sqlite3_errmsg(db_);
  if (sqlite3_get_autocommit(db_) == 0) RunSql(db_, "ROLLBACK");
  return code;
}

// Rewrites a file of before this setting once. If that is not possible now (no space, in use), the
// file just does not shrink.
int SqliteFile::SetGivesBack() {
  constexpr int64_t kIncremental = 2;
  if (NumberOf(db_, "PRAGMA auto_vacuum") == kIncremental) return SQLITE_OK;
  const int code = RunSql(db_, "PRAGMA auto_vacuum=INCREMENTAL; VACUUM");
  return IsDamage(code) ? code : SQLITE_OK;
}

// Works under a lock file, because other processes of the machine may find the same damage: the
// second one must not move the new file away.
void SqliteFile::MoveAside() {
  Close();
  const int lock = open((path_ + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) {
    if (lock >= 0) close(lock);
    return;
  }
  absl::Cleanup unlock = [lock] { close(lock); };
  int code = TryOpen();
  if (code == SQLITE_OK) {
    Statement check(db_, "PRAGMA integrity_check(1)");
    code = check.Step();
    if (code == SQLITE_ROW) code = check.BytesAt(0) == "ok" ? SQLITE_OK : SQLITE_CORRUPT;
  }
  if (!IsDamage(code)) return;
  Close();
  const std::string aside = absl::StrCat(path_, ".damaged-", NowMicroseconds());
  // Moves the log first: the old file's log must not be replayed into the new file, and the new
  // file's log must not be moved away.
  for (const char* suffix : {"-wal", "-shm"}) {
    std::rename((path_ + suffix).c_str(), (aside + suffix).c_str());
  }
  const int failed = std::rename(path_.c_str(), aside.c_str()) == 0 ? 0 : errno;
  if (!report_) return;
  report_(absl::StrCat(schema_.what, " ", path_, " is damaged: ",
                       failed == 0 ? absl::StrCat("moved to ", aside, " and begun anew")
                                   : absl::StrCat("cannot be moved: ", std::strerror(failed))));
}

void SqliteFile::Refresh() {
  int moved = 0;
  if (db_ != nullptr &&
      sqlite3_file_control(db_, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
      moved != 0) {
    Open();
  }
}

absl::Status SqliteFile::Failed(int code, absl::string_view what) {
  if (db_ == nullptr) {
    return absl::UnavailableError(absl::StrCat(schema_.what, " ", path_, ": ", reason_));
  }
  const std::string reason = absl::StrCat(what, ": ", sqlite3_errmsg(db_));
  const std::string message = absl::StrCat(schema_.what, " ", path_, ": ", reason);
  if (IsDamage(code)) {
    if (schema_.begin_anew) {
      MoveAside();
      Open();
    } else {
      SetState(FileState::kUnusable, reason);
    }
    return absl::DataLossError(message);
  }
  // Another process holds the file: not reported.
  if ((code & 0xff) == SQLITE_BUSY || (code & 0xff) == SQLITE_LOCKED) {
    return absl::UnavailableError(message);
  }
  if (IsFull(code)) {
    SetState(FileState::kFull, reason);
    return absl::ResourceExhaustedError(message);
  }
  if ((code & 0xff) == SQLITE_NOMEM || (code & 0xff) == SQLITE_TOOBIG) {
    return absl::ResourceExhaustedError(message);
  }
  if (IsReadOnly(code)) SetState(FileState::kReadOnly, reason);
  return absl::FailedPreconditionError(message);
}

absl::Status SqliteFile::Execute(const std::string& sql) {
  const int code = RunSql(db_, sql);
  return code == SQLITE_OK ? absl::OkStatus() : Failed(code, "write");
}

absl::Status SqliteFile::Transaction(absl::FunctionRef<absl::Status()> body) {
  RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::Status status = body();
  if (status.ok()) status = Execute("COMMIT");
  // After damage the connection is another one, or null.
  if (!status.ok() && db_ != nullptr && sqlite3_get_autocommit(db_) == 0) RunSql(db_, "ROLLBACK");
  if (status.ok()) SetState(FileState::kUsable, "");
  return status;
}

int64_t SqliteFile::data_version() { return NumberOf(db_, "PRAGMA data_version"); }

}  // namespace athanor
