// The few file operations that the state directory is kept with, each failing with a status that
// names the path and the reason; tests replace them to make a disk full or read-only.
//
//   absl::StatusOr<int> fd = disk.Create("/state/tmp/1");
//   if (fd.ok()) status = disk.Write(*fd, bytes, path);
//
// Codes: RESOURCE_EXHAUSTED where space or quota is missing, FAILED_PRECONDITION where the
// directory cannot be written or read. Thread-safe.
#ifndef ATHANOR_SERVER_BASE_DISK_H_
#define ATHANOR_SERVER_BASE_DISK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

class Disk {
 public:
  virtual ~Disk() = default;

  // A new empty file; the caller closes the descriptor with close().
  virtual absl::StatusOr<int> Create(const std::string& path);
  virtual absl::Status Write(int fd, absl::string_view bytes, const std::string& path);
  virtual absl::Status Sync(int fd, const std::string& path);
  virtual absl::Status Rename(const std::string& from, const std::string& to);
  // Makes renames and removals in the directory last.
  virtual absl::Status SyncDirectory(const std::string& path);
  // With missing parents; an existing one is fine.
  virtual absl::Status MakeDirectory(const std::string& path);
};

// `what` and `path`: "write", "/state/tmp/1".
absl::Status DiskError(int error, absl::string_view what, absl::string_view path);

// A directory held by this process alone, until destroyed. The lock ends with the process however
// that ends.
class DirectoryLock {
 public:
  // FAILED_PRECONDITION names the process that holds it.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory);
  DirectoryLock(DirectoryLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_DISK_H_
