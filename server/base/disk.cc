#include "server/base/disk.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace athanor {

absl::Status DiskError(int error, absl::string_view what, absl::string_view path) {
  const std::string message = absl::StrCat("cannot ", what, " ", path, ": ", strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::FailedPreconditionError(message);
  }
}

absl::StatusOr<int> Disk::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) return DiskError(errno, "create", path);
  return fd;
}

absl::Status Disk::Write(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return DiskError(errno, "write", path);
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

absl::Status Disk::Sync(int fd, const std::string& path) {
  if (fdatasync(fd) != 0) return DiskError(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status Disk::Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) return DiskError(errno, "rename to", to);
  return absl::OkStatus();
}

absl::Status Disk::SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return DiskError(errno, "open", path);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : DiskError(error, "sync", path);
}

absl::Status Disk::MakeDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return DiskError(error.value(), "create", path);
  return absl::OkStatus();
}

absl::StatusOr<DirectoryLock> DirectoryLock::Take(const std::string& directory) {
  const std::string path = directory + "/lock";
  const int fd = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) return DiskError(errno, "open", path);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    char owner[32] = {};
    const ssize_t n = pread(fd, owner, sizeof(owner) - 1, 0);
    close(fd);
    if (error != EWOULDBLOCK) return DiskError(error, "lock", path);
    return absl::FailedPreconditionError(absl::StrCat(
        "state directory ", directory, " is used by another server (process ",
        n > 0 ? std::string(absl::StripAsciiWhitespace(absl::string_view(owner, n))) : "unknown",
        "); give each server its own --state_dir"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  // The process id only serves the message above; the lock does the excluding.
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    const int error = errno;
    close(fd);
    return DiskError(error, "write", path);
  }
  return DirectoryLock(fd);
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace athanor
