#include "server/storage/file_stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/disk.h"

namespace athanor {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

int64_t Nanoseconds(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

absl::StatusOr<FileStamp> StampFrom(const struct stat& info, const std::string& path) {
  if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(path + " is not a regular file");
  return FileStamp{static_cast<int64_t>(info.st_ino), info.st_size, Nanoseconds(info.st_mtim),
                   Nanoseconds(info.st_ctim)};
}

}  // namespace

absl::StatusOr<FileStamp> StampOf(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return DiskError(errno, "find", path);
  return StampFrom(info, path);
}

absl::StatusOr<HashedFile> HashFile(const std::string& path, const FileRange& range,
                                    absl::FunctionRef<bool()> stop) {
  // O_NONBLOCK: never wait for the writer of a pipe in a tensor's place.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return DiskError(errno, "open", path);
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info{};
  if (fstat(fd, &info) != 0) return DiskError(errno, "look at", path);
  ASSIGN_OR_RETURN(FileStamp stamp, StampFrom(info, path));
  const int64_t behind = stamp.bytes - range.offset;
  if (range.whole ? stamp.bytes != range.bytes : behind < range.bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has ", stamp.bytes, " bytes, the tensor has ", range.bytes,
                     range.offset > 0 ? absl::StrCat(" behind the first ", range.offset) : ""));
  }
  Sha256 sha256;
  std::vector<char> piece(std::min<int64_t>(kPieceBytes, std::max<int64_t>(range.bytes, 1)));
  for (int64_t done = 0; done < range.bytes;) {
    if (stop()) return absl::CancelledError(absl::StrCat("the check of ", path, " was stopped"));
    const auto wanted = std::min<int64_t>(static_cast<int64_t>(piece.size()), range.bytes - done);
    const ssize_t got = pread(fd, piece.data(), wanted, range.offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DiskError(errno, "read", path);
    if (got == 0) return absl::FailedPreconditionError(path + " became shorter while it was read");
    sha256.Update(absl::string_view(piece.data(), got));
    done += got;
  }
  const std::string seal = sha256.With(kSealSuffix);
  return HashedFile{sha256.Finish(), seal, stamp};
}

}  // namespace athanor
