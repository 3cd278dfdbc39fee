// A file on its way in: written as its bytes come, hashed meanwhile, then mapped where it lies. It
// is gone with its object unless TensorStore::PublishBlobs named it.
//
//   std::unique_ptr<SpooledFile> file = store.BeginSpool(bytes);
//   file->Append(chunk);  ...  file->Finish();
//   std::string_view all = file->view();   // page cache, no memory of the process's own
#ifndef ATHANOR_SERVER_SPOOL_H_
#define ATHANOR_SERVER_SPOOL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/sha256.h"
#include "server/disk.h"

namespace athanor {

// Used by one thread at a time, but for view(), which any may read after Finish.
class SpooledFile {
 public:
  ~SpooledFile();
  SpooledFile(const SpooledFile&) = delete;
  SpooledFile& operator=(const SpooledFile&) = delete;

  int64_t bytes() const { return bytes_; }      // announced
  int64_t written() const { return written_; }  // so far

  // REQUIRES: written() + data.size() <= bytes()
  absl::Status Append(absl::string_view data);
  // Ends the writing. REQUIRES: written() == bytes()
  absl::Status Finish();
  // After Finish, as long as the object: all bytes, and their SHA-256.
  std::string_view view() const { return {static_cast<const char*>(map_), size_t(bytes_)}; }
  const std::string& hash() const { return hash_; }
  // Makes the bytes last. REQUIRES: Finish() passed
  absl::Status Sync();

 private:
  friend class TensorStore;
  SpooledFile(Disk* disk, std::string path, int64_t bytes);

  Disk* const disk_;
  const std::string path_;
  const int64_t bytes_;
  int fd_ = -1;  // made by the first Append, closed by Finish
  int64_t written_ = 0;
  const void* map_ = nullptr;
  bool published_ = false;
  std::string hash_;
  Sha256 sha256_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SPOOL_H_
