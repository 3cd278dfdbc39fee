// The folder of a model repository: lists what is there, and opens files.
//
//   RepositoryFolder folder = RepositoryFolder::Open("/models").value();
//   folder.Folders("");                        // {"digits", "team"}: names in order
//   FolderListing files = folder.Files("digits/3", 1'000).value();
//   SourceFile file = folder.OpenFile("digits/3/model.onnx").value();
//   file.ReadAt(0, 4096);
//
// Paths are relative to the folder, with slashes. Names that begin with a dot are left out. Links
// are followed as long as they stay in the repository. Every error is FAILED_PRECONDITION,
// NOT_FOUND or RESOURCE_EXHAUSTED, and names the path. Thread-safe.
#ifndef ATHANOR_SERVER_REPOSITORY_FOLDER_H_
#define ATHANOR_SERVER_REPOSITORY_FOLDER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

struct FolderFile {
  std::string path;  // in the listed folder
  int64_t bytes = 0;
};

struct FolderListing {
  std::vector<FolderFile> files;  // by path, those of folders inside it too
  std::string stamp;              // 32 bytes; changes when a file is written, replaced or renamed
};

// A file that is open for reading. Used by one thread at a time.
class SourceFile {
 public:
  SourceFile(int fd, std::string path, int64_t bytes)
      : fd_(fd), path_(std::move(path)), bytes_(bytes) {}
  SourceFile(SourceFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), bytes_(other.bytes_) {}
  SourceFile& operator=(SourceFile&&) = delete;
  ~SourceFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // when it was opened
  // Returns `bytes` bytes; FAILED_PRECONDITION: the file ends before, or cannot be read.
  absl::StatusOr<std::string> ReadAt(int64_t offset, int64_t bytes) const;

 private:
  int fd_;
  std::string path_;
  int64_t bytes_;
};

class RepositoryFolder {
 public:
  static absl::StatusOr<RepositoryFolder> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // Returns the names of the folders in a folder, in order; "" is the repository.
  absl::StatusOr<std::vector<std::string>> Folders(const std::string& folder) const;
  // Lists at most `most` files, in at most `most` folders inside it. FAILED_PRECONDITION: something
  // in it is neither file nor folder, or links make a folder be there twice.
  absl::StatusOr<FolderListing> Files(const std::string& folder, int64_t most) const;
  absl::StatusOr<SourceFile> OpenFile(const std::string& path) const;
  // Returns the bytes of a small file. NOT_FOUND: there is none; RESOURCE_EXHAUSTED: more bytes.
  absl::StatusOr<std::string> ReadText(const std::string& path, int64_t most) const;

 private:
  explicit RepositoryFolder(std::string path) : path_(std::move(path)) {}
  // Returns the real path, which is in the repository.
  absl::StatusOr<std::string> RealPath(const std::string& path) const;
  bool IsInside(std::string_view real) const;
  struct Walk;
  absl::Status AddFiles(const std::string& real, const std::string& prefix, int depth,
                        Walk* walk) const;

  std::string path_;  // real
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_REPOSITORY_FOLDER_H_
