#include "server/shared_memory/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Longest name of a file in /dev/shm.
constexpr size_t kMostKeyBytes = 255;

std::string ErrorText(int error) { return std::strerror(error); }

// Names exactly one file in /dev/shm.
absl::Status CheckKey(const std::string& key) {
  const absl::string_view file =
      absl::string_view(key).substr(key.empty() || key[0] != '/' ? 0 : 1);
  if (!file.empty() && file != "." && file != ".." && file.size() <= kMostKeyBytes &&
      file.find_first_of(absl::string_view("/\0", 2)) == absl::string_view::npos) {
    return absl::OkStatus();
  }
  return Invalid("key is ", Quoted(key), "; it has to name an object of shm_open: 1 to ",
                 kMostKeyBytes, " bytes without \"/\" but at the front");
}

}  // namespace

class SharedRegion::Opened {
 public:
  Opened() = default;
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (fd_ >= 0) close(fd_);
  }
  // Returns errno; 0 if it is open.
  int Open(const std::string& key) {
    fd_ = shm_open(key.c_str(), O_RDWR | O_CLOEXEC, 0);
    if (fd_ < 0 || fstat(fd_, &stat_) != 0) return errno;
    return S_ISREG(stat_.st_mode) ? 0 : EINVAL;
  }
  int fd() const { return fd_; }
  const struct stat& stat() const { return stat_; }

 private:
  int fd_ = -1;
  struct stat stat_ = {};
};

absl::StatusOr<SharedRegion> SharedRegion::Find(SharedPlace place) {
  RETURN_IF_ERROR(CheckKey(place.key));
  if (place.byte_size < 1)
    return Invalid("byte_size is ", place.byte_size, "; it has to be 1 or more");
  if (place.offset < 0 || place.offset > std::numeric_limits<int64_t>::max() - place.byte_size) {
    return Invalid("offset ", place.offset, " and byte_size ", place.byte_size, " exceed 63 bits");
  }
  Opened opened;
  if (const int error = opened.Open(place.key); error == ENOENT) {
    return absl::NotFoundError(Cat("there is no shared memory object ", Quoted(place.key),
                                   " on the server's machine (in its /dev/shm)"));
  } else if (error != 0) {
    return absl::FailedPreconditionError(
        Cat("the server cannot read and write the shared memory object ", Quoted(place.key), ": ",
            ErrorText(error)));
  }
  if (opened.stat().st_size < place.offset + place.byte_size) {
    return Invalid("the shared memory object ", Quoted(place.key), " has ", opened.stat().st_size,
                   " bytes; offset ", place.offset, " and byte_size ", place.byte_size, " need ",
                   place.offset + place.byte_size);
  }
  return SharedRegion(std::move(place), opened.stat().st_dev, opened.stat().st_ino);
}

absl::Status SharedRegion::CheckRange(int64_t offset, int64_t bytes) const {
  if (offset >= 0 && bytes >= 0 && bytes <= place_.byte_size &&
      offset <= place_.byte_size - bytes) {
    return absl::OkStatus();
  }
  return Invalid("offset ", offset, " and ", bytes, " bytes do not lie in shared memory region ",
                 Quoted(place_.name), ", which has ", place_.byte_size, " bytes");
}

absl::Status SharedRegion::Lost(absl::string_view what) const {
  return absl::FailedPreconditionError(
      Cat("shared memory region ", Quoted(place_.name), ": its object ", Quoted(place_.key), " ",
          std::string(what), " since it was registered; unregister and register the region"));
}

absl::Status SharedRegion::Open(int64_t offset, int64_t bytes, Opened* opened) const {
  RETURN_IF_ERROR(CheckRange(offset, bytes));
  if (const int error = opened->Open(place_.key); error == ENOENT) {
    return Lost("was unlinked");
  } else if (error != 0) {
    return Lost("became unusable (" + ErrorText(error) + ")");
  }
  if (opened->stat().st_dev != device_ || opened->stat().st_ino != inode_) {
    return Lost("was replaced");
  }
  if (opened->stat().st_size < place_.offset + place_.byte_size) return Lost("was truncated");
  return absl::OkStatus();
}

absl::Status SharedRegion::Read(int64_t offset, int64_t bytes, char* to) const {
  Opened opened;
  RETURN_IF_ERROR(Open(offset, bytes, &opened));
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got = pread(opened.fd(), to + done, bytes - done, place_.offset + offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Lost("became unusable (" + ErrorText(errno) + ")");
    if (got == 0) return Lost("was truncated");
    done += got;
  }
  return absl::OkStatus();
}

absl::Status SharedRegion::Write(int64_t offset, absl::string_view from) const {
  Opened opened;
  RETURN_IF_ERROR(Open(offset, static_cast<int64_t>(from.size()), &opened));
  for (size_t done = 0; done < from.size();) {
    const ssize_t put = pwrite(opened.fd(), from.data() + done, from.size() - done,
                               place_.offset + offset + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == ENOSPC) {
      return absl::ResourceExhaustedError(
          Cat("shared memory region ", Quoted(place_.name), ": /dev/shm has no room for it"));
    }
    if (put < 0) return Lost("became unusable (" + ErrorText(errno) + ")");
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

}  // namespace athanor
