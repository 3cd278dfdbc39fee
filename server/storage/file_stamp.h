// What is in a file, and whether it may have changed since that was looked at.
//
//   absl::StatusOr<HashedFile> read = HashFile(path, {.offset = 4096, .bytes = 1024}, never);
//   ... later: StampOf(path) == read->stamp: nobody has written it
#ifndef ATHANOR_SERVER_STORAGE_FILE_STAMP_H_
#define ATHANOR_SERVER_STORAGE_FILE_STAMP_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

// Another one when a file is written, replaced, renamed or copied: nobody can set `changed_ns`, the
// time of the inode itself, which goes in steps of the kernel's clock (some milliseconds). What a
// disk loses by itself changes no stamp.
struct FileStamp {
  int64_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;

  bool operator==(const FileStamp&) const = default;
};

// FAILED_PRECONDITION: it is missing, or no file.
absl::StatusOr<FileStamp> StampOf(const std::string& path);

// Where in a file something lies; `whole`: it is all that the file may hold.
struct FileRange {
  int64_t offset = 0;
  int64_t bytes = 0;
  bool whole = false;
};

struct HashedFile {
  std::string hash;  // SHA-256, 32 bytes
  std::string seal;  // of the same bytes (deploy/bazel/libs/possession.h)
  FileStamp stamp;   // from before it was read
};

// Reads the range in pieces, none of which stays in memory. FAILED_PRECONDITION: the file is
// missing, is none, cannot be read or has another size. CANCELLED: `stop`, asked for each piece,
// said so. RESOURCE_EXHAUSTED: there is no descriptor for it.
absl::StatusOr<HashedFile> HashFile(const std::string& path, const FileRange& range,
                                    absl::FunctionRef<bool()> stop);

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_FILE_STAMP_H_
