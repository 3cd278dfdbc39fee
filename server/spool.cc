#include "server/spool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace athanor {

SpooledFile::SpooledFile(Disk* disk, std::string path, int64_t bytes)
    : disk_(disk), path_(std::move(path)), bytes_(bytes) {}

SpooledFile::~SpooledFile() {
  if (map_ != nullptr) munmap(const_cast<void*>(map_), bytes_);
  if (fd_ >= 0) close(fd_);
  if (!published_) unlink(path_.c_str());
}

absl::Status SpooledFile::Append(absl::string_view data) {
  if (fd_ < 0) {
    absl::StatusOr<int> fd = disk_->Create(path_);
    if (!fd.ok()) return fd.status();
    fd_ = *fd;
  }
  if (absl::Status s = disk_->Write(fd_, data, path_); !s.ok()) return s;
  sha256_.Update(data);
  written_ += static_cast<int64_t>(data.size());
  return absl::OkStatus();
}

absl::Status SpooledFile::Finish() {
  if (fd_ < 0) {  // an empty file has seen no Append
    if (absl::Status s = Append(""); !s.ok()) return s;
  }
  close(std::exchange(fd_, -1));
  hash_ = sha256_.Finish();
  if (bytes_ == 0) return absl::OkStatus();
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return DiskError(errno, "open", path_);
  void* map = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (map == MAP_FAILED) return DiskError(error, "map", path_);
  map_ = map;
  return absl::OkStatus();
}

absl::Status SpooledFile::Sync() {
  const int fd = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return DiskError(errno, "open", path_);
  absl::Status status = disk_->Sync(fd, path_);
  close(fd);
  return status;
}

}  // namespace athanor
