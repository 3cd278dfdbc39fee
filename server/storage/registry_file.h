// The SQLite file that models are kept in: opened, checked, brought to the current schema, and used
// by one thread at a time. The classes that read and write its tables share it.
//
//   std::unique_ptr<RegistryFile> file = RegistryFile::Open(state_dir + "/registry.db").value();
//   file->Change([&](RegistryFile::Connection& c) {   // one transaction
//     return c.Write(c.Prepare("DELETE FROM names WHERE name=?1").Text(name));
//   });
//
// Schema changes are numbered steps applied at start (PRAGMA user_version). A call that returned OK
// survives the loss of the process and of power. Thread-safe.
//
// Returns RESOURCE_EXHAUSTED on a full disk and FAILED_PRECONDITION on a read-only one; both name
// the file.
#ifndef ATHANOR_SERVER_STORAGE_REGISTRY_FILE_H_
#define ATHANOR_SERVER_STORAGE_REGISTRY_FILE_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class RegistryFile {
 public:
  // Opens or creates the file. Returns FAILED_PRECONDITION, saying why the file cannot be used and
  // what to do, and leaves the file as it is. If the file is missing or empty but left a log, the
  // log is kept under another name.
  static absl::StatusOr<std::unique_ptr<RegistryFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }

  // The file while it is locked.
  class Connection {
   public:
    explicit Connection(SqliteFile& file) : file_(file) {}

    Statement Prepare(absl::string_view sql) { return {file_.db(), sql}; }
    // Calls `row` at each row of the result.
    absl::Status Read(Statement& read, absl::FunctionRef<void()> row);
    // Runs a statement that returns no rows.
    absl::Status Write(Statement& change);
    // Runs one or more statements without values or rows.
    absl::Status Execute(const std::string& sql);

   private:
    absl::Status Failed(absl::string_view what);

    SqliteFile& file_;
  };
  using Body = absl::FunctionRef<absl::Status(Connection& connection)>;
  // Calls `body` with the file locked.
  absl::Status Use(Body body);
  // Does so in a transaction, which is rolled back if `body` fails.
  absl::Status Change(Body body);

 private:
  explicit RegistryFile(const std::string& path);

  const std::string path_;
  Mutex mu_;
  SqliteFile file_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_REGISTRY_FILE_H_
