// A cache's file for tests of leases, as its owner gives it to a LeaseTable.
//
//   LeaseTestFile file(path);
//   LeaseTable table(file.Access(), {});
#ifndef ATHANOR_COMPILER_CACHE_LEASE_TESTING_H_
#define ATHANOR_COMPILER_CACHE_LEASE_TESTING_H_

#include <sqlite3.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "compiler/cache/lease.h"
#include "compiler/cache/schema.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

// A single connection. Thread-safe.
class LeaseTestFile {
 public:
  explicit LeaseTestFile(const std::string& path) : file_(path, CacheSchema(), nullptr) {
    file_.Open();
  }

  LeaseFile Access() {
    return [this](absl::FunctionRef<absl::Status(SqliteFile&)> body) -> absl::Status {
      MutexLock lock(mu_);
      if (file_.db() == nullptr || cut_off_) return absl::UnavailableError("no file");
      return body(file_);
    };
  }
  absl::Status Execute(const std::string& sql) {
    MutexLock lock(mu_);
    return file_.Execute(sql);
  }
  int64_t Rows() {
    MutexLock lock(mu_);
    Statement count(file_.db(), "SELECT COUNT(*) FROM leases");
    return count.Step() == SQLITE_ROW ? count.IntAt(0) : -1;
  }
  int64_t Changes() {
    MutexLock lock(mu_);
    return sqlite3_total_changes(file_.db());
  }
  FileState state() {
    MutexLock lock(mu_);
    return file_.state();
  }
  // While cut off, nothing reaches the file.
  void CutOff(bool cut_off) { cut_off_ = cut_off; }

 private:
  Mutex mu_;
  SqliteFile file_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> cut_off_{false};
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_LEASE_TESTING_H_
