#include "clients/cpp/inputs/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace athanor::client {

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const auto failed = [&](int error) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path));
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO would block
  if (fd < 0) return failed(errno);
  struct stat info{};
  void* map = nullptr;
  int error = fstat(fd, &info) == 0 ? 0 : errno;
  if (error == 0 && !S_ISREG(info.st_mode)) error = EISDIR;
  const auto size = static_cast<size_t>(info.st_size);
  if (error == 0 && size > 0) {
    map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) error = errno;
  }
  close(fd);
  if (error != 0) return failed(error);
  return std::unique_ptr<MappedFile>(new MappedFile({static_cast<const char*>(map), size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

bool LinksElsewhere(const std::filesystem::path& model, const std::string& location) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path file = fs::canonical(model.parent_path() / location, error);
  if (error) return false;  // reported when the file is opened
  const auto below = [&](const fs::path& folder) {
    const fs::path whole = fs::canonical(folder.empty() ? "." : folder, error);
    return !error &&
           std::mismatch(whole.begin(), whole.end(), file.begin(), file.end()).first == whole.end();
  };
  return !below(model.parent_path()) && !below(fs::canonical(model, error).parent_path());
}

}  // namespace athanor::client
