#include "server/storage/spool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

SpooledFile::SpooledFile(Disk* disk, std::string path, int64_t bytes)
    : disk_(disk), path_(std::move(path)), bytes_(bytes) {}

SpooledFile::~SpooledFile() {
  if (map_ != nullptr) munmap(const_cast<void*>(map_), bytes_);
  if (fd_ >= 0) close(fd_);
  if (!published_) unlink(path_.c_str());
}

void SpooledFile::ReadParts(std::vector<Part> parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  int64_t end = written_;
  for (const Part& part : parts) {
    if (part.bytes == 0 || part.offset < end) continue;
    end = part.offset + part.bytes;
    parts_.push_back(part);
  }
}

void SpooledFile::Read(absl::string_view data) {
  int64_t at = written_;
  while (!data.empty() && next_ < parts_.size()) {
    const Part& part = parts_[next_];
    const bool inside = at >= part.offset;
    const int64_t until = inside ? part.offset + part.bytes : part.offset;
    const size_t size = std::min<size_t>(data.size(), until - at);
    if (inside) {
      if (!sha256_.has_value()) {
        sha256_.emplace();
        magnitude_.emplace(part.dtype);
      }
      sha256_->Update(data.substr(0, size));
      magnitude_->Update({data.data(), size});
    }
    data.remove_prefix(size);
    at += static_cast<int64_t>(size);
    if (!inside || at < until) continue;
    const std::string seal = sha256_->With(kSealSuffix);
    contents_[{part.offset, part.bytes}] = {sha256_->Finish(), seal, part.dtype,
                                            magnitude_->Found()};
    sha256_.reset();
    ++next_;
  }
}

const SpooledFile::Contents* SpooledFile::ContentsOf(int64_t offset, int64_t bytes) const {
  const auto found = contents_.find({offset, bytes});
  return found == contents_.end() ? nullptr : &found->second;
}

absl::Status SpooledFile::Append(absl::string_view data) {
  if (fd_ < 0) {
    ASSIGN_OR_RETURN(fd_, disk_->Create(path_));
  }
  RETURN_IF_ERROR(disk_->Write(fd_, data, path_));
  Read(data);
  written_ += static_cast<int64_t>(data.size());
  return absl::OkStatus();
}

absl::Status SpooledFile::Finish() {
  if (fd_ < 0) {  // no Append was called for an empty file
    RETURN_IF_ERROR(Append(""));
  }
  close(std::exchange(fd_, -1));
  return bytes_ == 0 ? absl::OkStatus() : Map();
}

absl::StatusOr<std::string_view> SpooledFile::Arrived() {
  if (written_ == 0) return std::string_view();
  RETURN_IF_ERROR(Map());
  return view().substr(0, written_);
}

absl::Status SpooledFile::Map() {
  if (map_ != nullptr) return absl::OkStatus();
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
