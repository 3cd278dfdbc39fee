// Hashes files, and tells whether a file may have changed since it was hashed.
//
//   absl::StatusOr<HashedFile> read = HashFile(path, {.offset = 4096, .bytes = 1024}, never);
//   ... later: if StampOf(path) == read->stamp, nobody has written the file
#ifndef ATHANOR_SERVER_STORAGE_FILE_STAMP_H_
#define ATHANOR_SERVER_STORAGE_FILE_STAMP_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

// Changes when a file is written, replaced, renamed or copied. Nobody can set `changed_ns`, the
// change time of the inode, which advances with the kernel's clock (in steps of some milliseconds).
// Bytes that the disk itself corrupts do not change the stamp.
struct FileStamp {
  int64_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;

  bool operator==(const FileStamp&) const = default;
};

// Returns FAILED_PRECONDITION if the file is missing or not a regular file.
absl::StatusOr<FileStamp> StampOf(const std::string& path);

// A range of a file. `whole`: the file must hold nothing else.
struct FileRange {
  int64_t offset = 0;
  int64_t bytes = 0;
  bool whole = false;
};

struct HashedFile {
  std::string hash;  // SHA-256, 32 bytes
  std::string seal;  // hash of the same bytes with a suffix (deploy/bazel/libs/possession.h)
  FileStamp stamp;   // taken before the file was read
};

// Hashes the range piece by piece, without keeping any in memory. Returns FAILED_PRECONDITION if
// the file is missing, is not a regular file, cannot be read or has another size; CANCELLED if
// `stop`, called for each piece, returns true; RESOURCE_EXHAUSTED if there is no free descriptor.
absl::StatusOr<HashedFile> HashFile(const std::string& path, const FileRange& range,
                                    absl::FunctionRef<bool()> stop);

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_FILE_STAMP_H_
