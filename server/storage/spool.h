// A file being received. It is written as its bytes arrive; the parts that are tensors are hashed
// and their magnitudes found on the way. Then it is mapped in place. The file is deleted with its
// object unless TensorStore::PublishBlobs has named it.
//
//   std::unique_ptr<SpooledFile> file = store.BeginSpool(bytes);
//   file->ReadParts({{4096, 1024, DType::kF32}});
//   file->Append(chunk);  ...  file->Finish();
//   std::string_view all = file->view();   // page cache, no heap memory
//   file->ContentsOf(4096, 1024)->hash;    // SHA-256 of these bytes
#ifndef ATHANOR_SERVER_STORAGE_SPOOL_H_
#define ATHANOR_SERVER_STORAGE_SPOOL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/graph/magnitude.h"
#include "deploy/bazel/libs/sha256.h"
#include "server/base/disk.h"

namespace athanor {

// Used by one thread at a time, except that any thread may read view() after Finish.
class SpooledFile {
 public:
  ~SpooledFile();
  SpooledFile(const SpooledFile&) = delete;
  SpooledFile& operator=(const SpooledFile&) = delete;

  int64_t bytes() const { return bytes_; }      // announced size
  int64_t written() const { return written_; }  // bytes received so far

  struct Part {
    int64_t offset = 0, bytes = 0;
    DType dtype = DType::kU8;  // element type
  };
  // Sets the parts to examine as they arrive. Skips empty parts, parts that overlap another, and
  // those that begin below written(). Call it once at most.
  void ReadParts(std::vector<Part> parts);
  // Returns the bytes received so far, which may tell the parts. Valid as long as this object.
  absl::StatusOr<std::string_view> Arrived();
  // REQUIRES: written() + data.size() <= bytes()
  absl::Status Append(absl::string_view data);
  // Ends the writing. REQUIRES: written() == bytes()
  absl::Status Finish();
  // Returns all bytes. Valid after Finish, as long as this object.
  std::string_view view() const { return {static_cast<const char*>(map_), size_t(bytes_)}; }
  struct Contents {
    std::string hash;  // SHA-256
    std::string seal;  // known only to those who have the bytes (deploy/bazel/libs/possession.h)
    DType dtype;
    std::optional<int> magnitude;  // as elements of this dtype (compiler/ir/graph/magnitude.h)
  };
  // Returns the contents of a part, null if it was not examined.
  const Contents* ContentsOf(int64_t offset, int64_t bytes) const;
  // Its name as a blob: 32 bytes, equal for two files only if all their tensors are equal. Empty
  // until set.
  const std::string& name() const { return name_; }
  void SetName(std::string name) { name_ = std::move(name); }
  // Makes the bytes durable. REQUIRES: Finish() passed
  absl::Status Sync();

 private:
  friend class TensorStore;
  SpooledFile(Disk* disk, std::string path, int64_t bytes);
  // Examines the bytes that follow written().
  void Read(absl::string_view data);
  // Maps the file, of which only written bytes may be read. REQUIRES: bytes() > 0
  absl::Status Map();

  Disk* const disk_;
  const std::string path_;
  const int64_t bytes_;
  int fd_ = -1;  // opened by the first Append, closed by Finish
  int64_t written_ = 0;
  const void* map_ = nullptr;
  bool published_ = false;
  std::string name_;
  std::vector<Part> parts_;  // in file order, without overlaps
  size_t next_ = 0;          // index of the part being read, or of the next one
  std::optional<Sha256> sha256_;
  std::optional<MagnitudeFinder> magnitude_;
  std::map<std::pair<int64_t, int64_t>, Contents> contents_;  // by offset and bytes
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_SPOOL_H_
