#include "server/repository/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

constexpr int kMostDepth = 8;  // of folders inside a version's

std::string Joined(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

absl::Status Failed(const std::string& what, const std::string& path, const std::string& why) {
  return absl::FailedPreconditionError(Cat("cannot ", what, " ", Quoted(path), ": ", why));
}

// Lists a folder's entries in order, without those that begin with a dot.
absl::StatusOr<std::vector<fs::directory_entry>> Entries(const std::string& real,
                                                         const std::string& path) {
  std::error_code error;
  fs::directory_iterator at(real, error);
  std::vector<fs::directory_entry> entries;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (at->path().filename().string().front() != '.') entries.push_back(*at);
  }
  if (error) return Failed("list", path, error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace

SourceFile::~SourceFile() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::string> SourceFile::ReadAt(int64_t offset, int64_t bytes) const {
  std::string read(static_cast<size_t>(bytes), '\0');
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(fd_, read.data() + done, static_cast<size_t>(bytes - done),
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path_, std::strerror(errno));
    if (got == 0) {
      return Failed("read", path_,
                    Cat("it ends at ", offset + done, " and had ", bytes_,
                        " bytes: it is being copied, or was changed"));
    }
    done += got;
  }
  return read;
}

struct RepositoryFolder::Walk {
  const int64_t most;
  const std::string& folder;
  FolderListing listing;
  Sha256 stamp;
  std::set<std::string> folders;  // real paths of those that were listed
};

absl::StatusOr<RepositoryFolder> RepositoryFolder::Open(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (!error && !fs::is_directory(real, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  // The whole of the path, however long: it is a flag's.
  if (error) {
    return absl::FailedPreconditionError(
        Cat("--model_repository: cannot open ", path, ": ", error.message()));
  }
  RepositoryFolder folder(real.string());
  RETURN_IF_ERROR(folder.Folders("").status());
  return folder;
}

bool RepositoryFolder::IsInside(std::string_view real) const {
  return real == path_ || path_ == "/" ||
         (real.starts_with(path_) && real.substr(path_.size()).starts_with('/'));
}

absl::StatusOr<std::string> RepositoryFolder::RealPath(const std::string& path) const {
  std::error_code error;
  const std::string real = fs::canonical(fs::path(path_) / path, error).string();
  if (error == std::errc::no_such_file_or_directory) {
    return absl::NotFoundError(Cat("there is no ", Quoted(path)));
  }
  if (error) return Failed("find", path, error.message());
  if (!IsInside(real)) {
    return Failed("read", path, "it is a link out of the model repository, or under one");
  }
  return real;
}

absl::StatusOr<std::vector<std::string>> RepositoryFolder::Folders(
    const std::string& folder) const {
  ASSIGN_OR_RETURN(const std::string real, RealPath(folder));
  ASSIGN_OR_RETURN(const auto entries, Entries(real, folder));
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : entries) {
    std::error_code error;
    // A link that leads nowhere is listed too, so that whoever uses it says what is wrong.
    const bool broken = entry.is_symlink(error) && !entry.exists(error);
    if (broken || entry.is_directory(error)) names.push_back(entry.path().filename().string());
  }
  return names;
}

absl::Status RepositoryFolder::AddFiles(const std::string& real, const std::string& prefix,
                                        int depth, Walk* walk) const {
  const std::string path = prefix.empty() ? walk->folder : Joined(walk->folder, prefix);
  if (depth > kMostDepth) {
    return Failed("list", path, Cat("more than ", kMostDepth, " folders inside each other"));
  }
  // Links would make the walk far longer than what is there, or endless.
  if (!walk->folders.insert(real).second) {
    return Failed("list", path, "a link leads to a folder that is listed already");
  }
  if (static_cast<int64_t>(walk->folders.size()) - 1 > walk->most) {
    return absl::ResourceExhaustedError(
        Cat(Quoted(walk->folder), " has more than ", walk->most, " folders"));
  }
  ASSIGN_OR_RETURN(const auto entries, Entries(real, path));
  for (const fs::directory_entry& entry : entries) {
    const std::string inside = Joined(prefix, entry.path().filename().string());
    std::string target = entry.path().string();
    std::error_code error;
    if (entry.is_symlink(error)) {
      ASSIGN_OR_RETURN(target, RealPath(Joined(walk->folder, inside)));
    }
    struct stat status;
    if (stat(target.c_str(), &status) != 0) {
      return Failed("read", Joined(walk->folder, inside), std::strerror(errno));
    }
    if (S_ISDIR(status.st_mode)) {
      RETURN_IF_ERROR(AddFiles(target, inside, depth + 1, walk));
      continue;
    }
    if (!S_ISREG(status.st_mode)) {
      return Failed("read", Joined(walk->folder, inside), "it is neither a file nor a folder");
    }
    if (static_cast<int64_t>(walk->listing.files.size()) >= walk->most) {
      return absl::ResourceExhaustedError(
          Cat(Quoted(walk->folder), " has more than ", walk->most, " files"));
    }
    walk->listing.files.push_back({inside, static_cast<int64_t>(status.st_size)});
    walk->stamp.Update(Cat(inside.size(), ":", inside, " ", status.st_size, " ", status.st_ino, " ",
                           status.st_mtim.tv_sec, ".", status.st_mtim.tv_nsec, " ",
                           status.st_ctim.tv_sec, ".", status.st_ctim.tv_nsec, "\n"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FolderListing> RepositoryFolder::Files(const std::string& folder,
                                                      int64_t most) const {
  ASSIGN_OR_RETURN(const std::string real, RealPath(folder));
  Walk walk{most, folder, {}, {}, {}};
  RETURN_IF_ERROR(AddFiles(real, "", 0, &walk));
  walk.listing.stamp = walk.stamp.Finish();
  return std::move(walk.listing);
}

absl::StatusOr<SourceFile> RepositoryFolder::OpenFile(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::string real, RealPath(path));
  // A pipe that took the file's place since it was listed must not hold the thread up.
  const int fd = open(real.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return Failed("open", path, std::strerror(errno));
  struct stat status = {};
  const bool known = fstat(fd, &status) == 0;
  SourceFile file(fd, path, static_cast<int64_t>(status.st_size));
  if (!known || !S_ISREG(status.st_mode)) return Failed("read", path, "it is no file");
  // A folder on the way may have become a link since RealPath.
  char opened[PATH_MAX];
  const ssize_t length = readlink(Cat("/proc/self/fd/", fd).c_str(), opened, sizeof(opened));
  if (length <= 0 || !IsInside({opened, static_cast<size_t>(length)})) {
    return Failed("read", path, "it is a link out of the model repository");
  }
  return file;
}

absl::StatusOr<std::string> RepositoryFolder::ReadText(const std::string& path,
                                                       int64_t most) const {
  ASSIGN_OR_RETURN(const SourceFile file, OpenFile(path));
  if (file.bytes() > most) {
    return absl::ResourceExhaustedError(
        Cat(Quoted(path), " has ", file.bytes(), " bytes; at most ", most, " are read"));
  }
  return file.ReadAt(0, file.bytes());
}

}  // namespace athanor
