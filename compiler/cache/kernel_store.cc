#include "compiler/cache/kernel_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/sha256.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace athanor {
namespace {

constexpr int kBusyMilliseconds = 2000;
constexpr size_t kMaxObjectBytes = size_t{256} << 20;
// Raised when objects built under the old calling convention no longer fit the runtime.
constexpr int64_t kCodegenVersion = 1;

// Step i leads from schema version i to i + 1. Never changed once released, only added to.
constexpr const char* kMigrations[] = {
    "CREATE TABLE kernels (key BLOB PRIMARY KEY NOT NULL, source_hash TEXT NOT NULL,"
    " flags TEXT NOT NULL, triple TEXT NOT NULL, cpu TEXT NOT NULL, features TEXT NOT NULL,"
    " compiler_version TEXT NOT NULL, codegen_version INTEGER NOT NULL, checksum BLOB NOT NULL,"
    " bytes INTEGER NOT NULL, created_us INTEGER NOT NULL, object BLOB NOT NULL);"
    "CREATE INDEX kernels_by_source ON kernels (source_hash);"
    "CREATE TABLE checks (key BLOB PRIMARY KEY NOT NULL, created_us INTEGER NOT NULL)"
    " WITHOUT ROWID;",
};
constexpr int kSchemaVersion = std::size(kMigrations);

// So that no two lists of fields have the same bytes.
class FieldHash {
 public:
  FieldHash& Add(absl::string_view field) {
    hash_.Update(absl::StrCat(field.size(), ":")).Update(field);
    return *this;
  }
  std::string Finish() { return hash_.Finish(); }

 private:
  Sha256 hash_;
};

std::string Checksum(absl::string_view key, absl::string_view object) {
  return FieldHash().Add(key).Add(object).Finish();
}

int64_t NowMicroseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Bound bytes live until the statement ends.
  Statement& Blob(absl::string_view bytes) {
    return Bound(sqlite3_bind_blob64(statement_, ++bound_, bytes.data() ? bytes.data() : "",
                                     bytes.size(), SQLITE_STATIC));
  }
  Statement& Text(absl::string_view text) {
    return Bound(sqlite3_bind_text64(statement_, ++bound_, text.data() ? text.data() : "",
                                     text.size(), SQLITE_STATIC, SQLITE_UTF8));
  }
  Statement& Int(int64_t value) { return Bound(sqlite3_bind_int64(statement_, ++bound_, value)); }

  int Step() {
    if (code_ == SQLITE_OK) code_ = sqlite3_step(statement_);
    return code_;
  }
  absl::string_view Column(int i) const {
    const void* data = sqlite3_column_blob(statement_, i);
    return {static_cast<const char*>(data),
            data == nullptr ? 0 : static_cast<size_t>(sqlite3_column_bytes(statement_, i))};
  }
  int64_t IntColumn(int i) const { return sqlite3_column_int64(statement_, i); }

 private:
  Statement& Bound(int code) {
    if (code_ == SQLITE_OK) code_ = code;
    return *this;
  }

  sqlite3_stmt* statement_ = nullptr;
  int code_;
  int bound_ = 0;
};

int Execute(sqlite3* db, const char* sql) {
  return sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
}

bool IsDamage(int code) {
  return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

}  // namespace

std::string KernelKey::Hash() const {
  return FieldHash()
      .Add(source_hash)
      .Add(flags)
      .Add(triple)
      .Add(cpu)
      .Add(features)
      .Add(compiler_version)
      .Add(absl::StrCat(codegen_version))
      .Finish();
}

KernelKey MakeKernelKey(absl::string_view source, const v1::Target& target, absl::string_view flags,
                        absl::string_view compiler_version) {
  KernelKey key;
  key.source_hash = Sha256Hex(source);
  key.flags = std::string(flags);
  key.triple = target.triple();
  key.cpu = target.cpu();
  key.features = absl::StrJoin(target.features(), ",");
  key.compiler_version = std::string(compiler_version);
  key.codegen_version = kCodegenVersion;
  return key;
}

std::string CheckKey(const internal::CheckRequest& request) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  return Sha256Of(bytes);
}

std::unique_ptr<KernelStore> KernelStore::Open(std::string path, Report report) {
  std::unique_ptr<KernelStore> store(new KernelStore(std::move(path), std::move(report)));
  MutexLock lock(store->mu_);
  if (!store->path_.empty()) store->OpenFile();
  return store;
}

KernelStore::~KernelStore() {
  MutexLock lock(mu_);
  Close();
}

void KernelStore::Close() {
  sqlite3_close_v2(db_);
  db_ = nullptr;
}

void KernelStore::ReportOnce(absl::string_view message) {
  if (!std::exchange(reported_, true) && report_) report_(message);
}

void KernelStore::OpenFile() {
  int code = TryOpen();
  if (IsDamage(code)) {
    MoveAside();
    code = TryOpen();
  }
  if (code == SQLITE_OK) return;
  const std::string reason =
      db_ == nullptr ? "it was written by a newer version" : sqlite3_errmsg(db_);
  Close();
  ReportOnce(
      absl::StrCat("kernel cache ", path_, ": ", reason, "; kernels are compiled without a cache"));
}

int KernelStore::TryOpen() {
  Close();
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  int code = sqlite3_open_v2(
      path_.c_str(), &db_,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
      nullptr);
  if (code == SQLITE_OK) sqlite3_busy_timeout(db_, kBusyMilliseconds);
  // Losing the last rows to a power failure is fine; losing the file's order is not.
  if (code == SQLITE_OK) code = Execute(db_, "PRAGMA journal_mode=WAL");
  if (code == SQLITE_OK) code = Execute(db_, "PRAGMA synchronous=NORMAL");
  return code == SQLITE_OK ? Migrate() : code;
}

int KernelStore::Migrate() {
  const auto version = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> int64_t {
    Statement statement(db_, "PRAGMA user_version");
    return statement.Step() == SQLITE_ROW ? statement.IntColumn(0) : -1;
  };
  int64_t current = version();
  if (current < 0) return sqlite3_extended_errcode(db_);
  if (current > kSchemaVersion) {
    Close();
    return SQLITE_MISMATCH;
  }
  if (current == kSchemaVersion) return SQLITE_OK;
  int code = Execute(db_, "BEGIN IMMEDIATE");
  if (code != SQLITE_OK) return code;
  // Another process may have been first.
  for (current = version(); code == SQLITE_OK && current < kSchemaVersion; ++current) {
    code = Execute(db_, kMigrations[current]);
  }
  if (code == SQLITE_OK) {
    code = Execute(db_, absl::StrCat("PRAGMA user_version=", kSchemaVersion).c_str());
  }
  if (code == SQLITE_OK) return Execute(db_, "COMMIT");
  Execute(db_, "ROLLBACK");
  return code;
}

// Under a lock file, because the other processes of the machine may find the same damage: the
// second one must not move the new file away.
void KernelStore::MoveAside() {
  Close();
  const int lock = open((path_ + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) {
    if (lock >= 0) close(lock);
    return;
  }
  absl::Cleanup unlock = [lock] { close(lock); };
  int code = TryOpen();
  if (code == SQLITE_OK) {
    Statement check(db_, "PRAGMA quick_check(1)");
    code = check.Step();
    if (code == SQLITE_ROW) code = check.Column(0) == "ok" ? SQLITE_OK : SQLITE_CORRUPT;
  }
  if (!IsDamage(code)) return;
  Close();
  const std::string aside = absl::StrCat(path_, ".damaged-", NowMicroseconds());
  const int failed = std::rename(path_.c_str(), aside.c_str()) == 0 ? 0 : errno;
  // A log that belongs to the old file must not be replayed into the new one.
  for (const char* suffix : {"-wal", "-shm"}) {
    std::rename((path_ + suffix).c_str(), (aside + suffix).c_str());
  }
  if (!report_) return;
  report_(absl::StrCat("kernel cache ", path_, " is damaged: ",
                       failed == 0 ? absl::StrCat("moved to ", aside, " and begun anew")
                                   : absl::StrCat("cannot be moved: ", std::strerror(failed))));
}

absl::Status KernelStore::Failed(int code, absl::string_view what) {
  const std::string message =
      absl::StrCat("kernel cache ", path_, ": ", what, ": ", sqlite3_errmsg(db_));
  if (IsDamage(code)) {
    MoveAside();
    OpenFile();
    return absl::DataLossError(message);
  }
  // Another process holds the file for long: not worth a word, the row is only missing.
  if ((code & 0xff) == SQLITE_BUSY) return absl::UnavailableError(message);
  ReportOnce(absl::StrCat(message, "; it is not written until that changes"));
  return (code & 0xff) == SQLITE_FULL || (code & 0xff) == SQLITE_IOERR
             ? absl::ResourceExhaustedError(message)
             : absl::UnavailableError(message);
}

std::optional<std::string> KernelStore::Get(const KernelKey& key) {
  const std::string hash = key.Hash();
  MutexLock lock(mu_);
  ++stats_.misses;
  if (db_ == nullptr) return std::nullopt;
  {
    Statement statement(db_, "SELECT checksum, object FROM kernels WHERE key = ?");
    const int code = statement.Blob(hash).Step();
    if (code == SQLITE_DONE) return std::nullopt;
    if (code != SQLITE_ROW) {
      Failed(code, "read").IgnoreError();
      return std::nullopt;
    }
    std::string object(statement.Column(1));
    if (statement.Column(0) == absl::string_view(Checksum(hash, object))) {
      --stats_.misses;
      ++stats_.hits;
      return object;
    }
  }
  ++stats_.bad_rows;
  Statement remove(db_, "DELETE FROM kernels WHERE key = ?");
  const int code = remove.Blob(hash).Step();
  if (code != SQLITE_DONE) Failed(code, "delete a bad row").IgnoreError();
  return std::nullopt;
}

absl::Status KernelStore::Put(const KernelKey& key, absl::string_view object) {
  if (object.size() > kMaxObjectBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel object: ", object.size(), " bytes, at most ", kMaxObjectBytes, " are cached"));
  }
  const std::string hash = key.Hash();
  const std::string checksum = Checksum(hash, object);
  MutexLock lock(mu_);
  if (db_ == nullptr) return absl::UnavailableError("there is no usable kernel cache");
  Statement statement(db_,
                      "INSERT OR REPLACE INTO kernels (key, source_hash, flags, triple, cpu,"
                      " features, compiler_version, codegen_version, checksum, bytes, created_us,"
                      " object) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  const int code = statement.Blob(hash)
                       .Text(key.source_hash)
                       .Text(key.flags)
                       .Text(key.triple)
                       .Text(key.cpu)
                       .Text(key.features)
                       .Text(key.compiler_version)
                       .Int(key.codegen_version)
                       .Blob(checksum)
                       .Int(static_cast<int64_t>(object.size()))
                       .Int(NowMicroseconds())
                       .Blob(object)
                       .Step();
  return code == SQLITE_DONE ? absl::OkStatus() : Failed(code, "write");
}

bool KernelStore::HasPassed(absl::string_view check_key) {
  MutexLock lock(mu_);
  if (db_ == nullptr) return false;
  Statement statement(db_, "SELECT 1 FROM checks WHERE key = ?");
  const int code = statement.Blob(check_key).Step();
  if (code != SQLITE_ROW && code != SQLITE_DONE) Failed(code, "read").IgnoreError();
  return code == SQLITE_ROW;
}

absl::Status KernelStore::PutPassed(absl::string_view check_key) {
  MutexLock lock(mu_);
  if (db_ == nullptr) return absl::UnavailableError("there is no usable kernel cache");
  Statement statement(db_, "INSERT OR IGNORE INTO checks (key, created_us) VALUES (?, ?)");
  const int code = statement.Blob(check_key).Int(NowMicroseconds()).Step();
  return code == SQLITE_DONE ? absl::OkStatus() : Failed(code, "write");
}

KernelStore::Stats KernelStore::GetStats() {
  MutexLock lock(mu_);
  Stats stats = stats_;
  if (db_ == nullptr) return stats;
  Statement statement(db_, "SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM kernels");
  if (statement.Step() == SQLITE_ROW) {
    stats.kernels = statement.IntColumn(0);
    stats.bytes = statement.IntColumn(1);
  }
  return stats;
}

bool KernelStore::usable() {
  MutexLock lock(mu_);
  return db_ != nullptr;
}

absl::Status KernelStore::ExecuteForTest(const std::string& sql) {
  MutexLock lock(mu_);
  const int code = Execute(db_, sql.c_str());
  return code == SQLITE_OK ? absl::OkStatus() : absl::InternalError(sqlite3_errmsg(db_));
}

}  // namespace athanor
