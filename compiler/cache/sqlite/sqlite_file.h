// A SQLite file shared by the processes of a machine: opened in WAL mode, migrated to the schema
// this program knows, and moved aside when it is damaged.
//
//   SqliteFile file(path, CacheSchema(), [](absl::string_view m) { LOG << m; });
//   file.Open();
//   if (file.db() != nullptr) {
//     Statement read(file.db(), "SELECT bytes FROM kernels WHERE key = ?");
//     const int code = read.Blob(key).Step();
//     if (code == SQLITE_ROW) return read.IntAt(0);
//     if (code != SQLITE_DONE) return file.Failed(code, "read");
//   }
#ifndef ATHANOR_COMPILER_CACHE_SQLITE_SQLITE_FILE_H_
#define ATHANOR_COMPILER_CACHE_SQLITE_SQLITE_FILE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct sqlite3;
struct sqlite3_stmt;

namespace athanor {

struct SqliteSchema {
  absl::string_view what;  // for messages: "cache"
  // SQL; step i migrates schema i to i + 1. Only ever appended to
  absl::Span<const char* const> steps;
  int32_t application_id = 0;  // in the file's header; 0: any SQLite file is accepted
  absl::string_view table;     // identifies a file written before application_id was
  bool full_sync = false;      // a commit survives a power loss
  bool begin_anew = true;      // moves a damaged file aside; else it stays, unusable
  bool gives_back = false;     // returns freed pages to the file system (PRAGMA incremental_vacuum)
  int busy_milliseconds = 2000;  // to wait for another process's write

  int version() const { return static_cast<int>(steps.size()); }
};

enum class FileState : uint8_t {
  kUsable,
  kNewerSchema,  // left alone and not read
  kReadOnly,     // not written; read as far as that is possible without writing
  kFull,         // read; writes are tried again
  kUnusable,
};

// Returns the name of a path's file system, by statfs: "ext4", "nfs", or the type in hex.
std::string FileSystemOf(const std::string& path);
using FileSystemName = std::function<std::string(const std::string& path)>;

// Returns FAILED_PRECONDITION, naming path and file system, for a network file system or FUSE: WAL
// needs memory that all processes share, and locks that hold. `name`: FileSystemOf if null.
absl::Status CheckLocal(const std::string& path, const FileSystemName& name = nullptr);

bool IsDamage(int code);  // SQLite's code means a broken file, or one that is no database

// A prepared statement, finalised with its scope. Values are bound in order. Bound bytes must live
// until the next Reset or the statement's end.
class Statement {
 public:
  Statement(sqlite3* db, absl::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Blob(absl::string_view bytes);
  Statement& Text(absl::string_view text);
  Statement& Int(int64_t value);
  Statement& Real(double value);
  Statement& Null();

  // Returns SQLite's code: SQLITE_ROW, SQLITE_DONE, or the first failure, that of preparing and
  // binding included.
  int Step();
  void Reset();  // binding starts again at the first value

  // Columns of the row of the last Step. Bytes live until the next Step or Reset.
  absl::string_view BytesAt(int column) const;
  int64_t IntAt(int column) const;
  double RealAt(int column) const;
  bool IsNull(int column) const;
  // Returns a value of any type: an integer as decimal digits, a float as its 8 bytes.
  std::string ValueAt(int column) const;

 private:
  Statement& Bound(int code);

  sqlite3_stmt* statement_ = nullptr;
  int code_;
  int bound_ = 0;
};

// A connection. Not thread-safe: its owner locks. Give each thread or object that must not wait
// for another a connection of its own; WAL allows one writer beside many readers.
class SqliteFile {
 public:
  using Report = std::function<void(absl::string_view message)>;

  // Opens nothing yet. `report` is told of a failure once, until opening or writing succeeds again.
  SqliteFile(std::string path, SqliteSchema schema, Report report);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  // Opens or reopens the file. Creates a missing folder and file, migrates, and moves a damaged
  // file aside. Another program's file is kUnusable and left alone.
  FileState Open();
  void Close();

  FileState state() const { return state_; }
  const std::string& reason() const { return reason_; }  // why it is not kUsable; else empty
  const std::string& path() const { return path_; }
  sqlite3* db() const { return db_; }  // null if nothing can be read

  // Runs BEGIN IMMEDIATE, `body`, COMMIT; ROLLBACK if one of them failed. REQUIRES: db().
  absl::Status Transaction(absl::FunctionRef<absl::Status()> body);
  // Runs one or more statements without values or rows. REQUIRES: db().
  absl::Status Execute(const std::string& sql);

  // Reopens the path if its file was moved or deleted. Costs one stat call.
  void Refresh();

  // Converts a failed statement to a status that names the file: RESOURCE_EXHAUSTED (disk full, no
  // memory), UNAVAILABLE (busy, or no usable file), FAILED_PRECONDITION (not writable), DATA_LOSS
  // (damaged). With begin_anew, damage replaces the file: db() then is a new file's or null, so the
  // body of a Transaction must return at once.
  absl::Status Failed(int code, absl::string_view what);

  // Changes when another connection has committed; -1 without a usable file.
  int64_t data_version();

 private:
  int TryOpen();
  int CheckVersion();
  // Opens a file on a read-only file system, to which nobody writes.
  int OpenImmutable();
  int Migrate();
  int SetGivesBack();
  void MoveAside();
  void SetState(FileState state, std::string reason);

  const std::string path_;
  const SqliteSchema schema_;
  const Report report_;
  sqlite3* db_ = nullptr;
  FileState state_ = FileState::kUnusable;
  std::string reason_ = "it was not opened";
  bool reported_ = false;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_SQLITE_SQLITE_FILE_H_
