// The few file operations that the state directory needs. Each fails with a status that names the
// path and the reason. Tests override them to simulate a full or read-only disk.
//
//   absl::StatusOr<int> fd = disk.Create("/state/tmp/1");
//   if (fd.ok()) status = disk.Write(*fd, bytes, path);
//
// Codes: RESOURCE_EXHAUSTED if space or quota is missing, FAILED_PRECONDITION if the directory
// cannot be written or read. Thread-safe.
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

  // Creates an empty file; the caller closes the descriptor with close().
  virtual absl::StatusOr<int> Create(const std::string& path);
  virtual absl::Status Write(int fd, absl::string_view bytes, const std::string& path);
  virtual absl::Status Sync(int fd, const std::string& path);
  virtual absl::Status Rename(const std::string& from, const std::string& to);
  // Makes renames and removals in the directory durable.
  virtual absl::Status SyncDirectory(const std::string& path);
  // Creates the directory and its missing parents; succeeds if it already exists.
  virtual absl::Status MakeDirectory(const std::string& path);
};

// Returns the status for errno `error`. `what` names the operation: DiskError(errno, "write",
// "/state/tmp/1").
absl::Status DiskError(int error, absl::string_view what, absl::string_view path);

// An exclusive lock on a directory, held until destroyed. The kernel releases it however the
// process ends.
class DirectoryLock {
 public:
  // Returns FAILED_PRECONDITION, naming the other process, if that holds the lock.
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
