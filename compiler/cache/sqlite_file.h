// One SQLite file that processes of a machine share: opened in WAL mode, migrated to the schema
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
#ifndef ATHANOR_COMPILER_CACHE_SQLITE_FILE_H_
#define ATHANOR_COMPILER_CACHE_SQLITE_FILE_H_

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
  absl::string_view what;               // "cache", for messages
  absl::Span<const char* const> steps;  // step i leads from schema i to i + 1; only added to
  int32_t application_id = 0;           // of such files; 0: any SQLite file is taken
  absl::string_view table;              // by which one from before it had the id is known
  bool full_sync = false;               // a commit survives the loss of power
  bool begin_anew = true;               // a damaged file is moved aside; else it stays, unusable
  bool gives_back = false;              // freed pages can go back (PRAGMA incremental_vacuum)
  int busy_milliseconds = 2000;         // waited for another process's write

  int version() const { return static_cast<int>(steps.size()); }
};

enum class FileState : uint8_t {
  kUsable,
  kNewerSchema,  // left alone, not read
  kReadOnly,     // read, as far as that is possible without writing, not written
  kFull,         // read; writes are tried again
  kUnusable,
};

// The name of a path's file system, by statfs: "ext4", "nfs", or the type in hex.
std::string FileSystemOf(const std::string& path);
using FileSystemName = std::function<std::string(const std::string& path)>;

// FAILED_PRECONDITION names the path and its file system if that is one of a network or of FUSE:
// WAL needs memory that all processes share and locks that hold. `name`: FileSystemOf.
absl::Status CheckLocal(const std::string& path, const FileSystemName& name = nullptr);

bool IsDamage(int code);  // SQLite's code says that the file is no database, or a broken one

// A prepared statement, finalised with its scope. Values are bound in order; bound bytes must live
// until the next Reset or the end.
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

  // SQLite's code: SQLITE_ROW, SQLITE_DONE or the first failure, also of preparing and binding.
  int Step();
  void Reset();  // values are bound anew, from the first

  // Of the row of the last Step. Bytes live until the next Step or Reset.
  absl::string_view BytesAt(int column) const;
  int64_t IntAt(int column) const;
  double RealAt(int column) const;
  bool IsNull(int column) const;
  // Whatever type it has: an integer as decimal digits, a float as its 8 bytes.
  std::string ValueAt(int column) const;

 private:
  Statement& Bound(int code);

  sqlite3_stmt* statement_ = nullptr;
  int code_;
  int bound_ = 0;
};

// One connection. Not thread-safe: its owner locks. Every thread or object that may wait for
// another should have a connection of its own; WAL lets one write beside many that read.
class SqliteFile {
 public:
  using Report = std::function<void(absl::string_view message)>;

  // Opens nothing yet. What goes wrong is reported once until it went well again.
  SqliteFile(std::string path, SqliteSchema schema, Report report);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  // Creates folder and file where they are missing, migrates, moves a damaged file aside. Not a
  // file of another program: that is kUnusable, and left alone. Also opens again.
  FileState Open();
  void Close();

  FileState state() const { return state_; }
  const std::string& reason() const { return reason_; }  // why it is not kUsable
  const std::string& path() const { return path_; }
  sqlite3* db() const { return db_; }  // null where nothing can be read

  // BEGIN IMMEDIATE, `body`, COMMIT; ROLLBACK where one failed. REQUIRES: db().
  absl::Status Transaction(absl::FunctionRef<absl::Status()> body);
  // One or more statements without values or rows. REQUIRES: db().
  absl::Status Execute(const std::string& sql);

  // Opens the file of this path anew where another one moved or deleted it; one stat call.
  void Refresh();

  // A failed statement as a status that names the file: RESOURCE_EXHAUSTED full or no memory,
  // UNAVAILABLE busy or without a usable file, FAILED_PRECONDITION not writable, DATA_LOSS damaged.
  // With begin_anew a damaged file is a new one, or db() null, once this returns: a Transaction's
  // body must end then.
  absl::Status Failed(int code, absl::string_view what);

  // Changes when another connection has committed; -1 without a usable file.
  int64_t data_version();

 private:
  int TryOpen();
  int CheckVersion();
  // For a file system that nobody writes to.
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

#endif  // ATHANOR_COMPILER_CACHE_SQLITE_FILE_H_
