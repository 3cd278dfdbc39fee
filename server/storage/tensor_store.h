// Tensors on disk. Each is a file named by the SHA-256 of its bytes, tensors/ab/cdef..., or a range
// of a blob, which is an uploaded file stored as blobs/ab/cdef...
//
//   std::unique_ptr<TensorWriter> writer = store.Begin(hash, bytes);
//   writer->Append(chunk);  ...  writer->Verify();  writer->Sync();
//   store.Publish({writer.get()});                   // named, and the name is durable
//   std::shared_ptr<const MappedTensor> t = store.Map(hash, bytes).value();
//
// A file under its final name is complete: files are written under tmp/, which is emptied at start.
// Mapped tensors are read-only, shared by all users, and stay readable after Remove. Files that no
// model names are moved to aside/TIME/tensors/ab/cdef..., never deleted. Thread-safe.
#ifndef ATHANOR_SERVER_STORAGE_TENSOR_STORE_H_
#define ATHANOR_SERVER_STORAGE_TENSOR_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "deploy/bazel/libs/mutex.h"
#include "deploy/bazel/libs/sha256.h"
#include "server/base/disk.h"
#include "server/storage/file_stamp.h"
#include "server/storage/spool.h"

namespace athanor {

class MappedTensor {
 public:
  // Owns `map` and gives access to `bytes` bytes after the first `skip`.
  MappedTensor(const void* map, int64_t bytes, std::string hash, int64_t skip = 0)
      : map_(map), skip_(skip), bytes_(bytes), hash_(std::move(hash)) {}
  ~MappedTensor();
  MappedTensor(const MappedTensor&) = delete;
  MappedTensor& operator=(const MappedTensor&) = delete;

  const void* data() const { return static_cast<const char*>(map_) + skip_; }  // not aligned
  int64_t bytes() const { return bytes_; }
  const std::string& hash() const { return hash_; }  // SHA-256 of the bytes

 private:
  const void* map_;
  int64_t skip_;
  int64_t bytes_;
  std::string hash_;
};

// A tensor being received; used by one thread at a time. Removes its file unless published.
class TensorWriter {
 public:
  ~TensorWriter();
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;

  const std::string& hash() const { return hash_; }
  int64_t bytes() const { return bytes_; }      // announced size
  int64_t written() const { return written_; }  // bytes received so far
  // Known only to those who have the bytes (deploy/bazel/libs/possession.h). REQUIRES: Verify()
  // passed
  const std::string& seal() const { return seal_; }

  // REQUIRES: written() + data.size() <= bytes()
  absl::Status Append(absl::string_view data);
  // Ends the writing and closes the file, so that thousands of tensors need no descriptors. Returns
  // INVALID_ARGUMENT, naming both hashes, if they differ. REQUIRES: written() == bytes()
  absl::Status Verify();
  // Makes the bytes durable. REQUIRES: Verify() passed
  absl::Status Sync();

 private:
  friend class TensorStore;
  TensorWriter(Disk* disk, std::string path, std::string hash, int64_t bytes);
  absl::Status OpenFile();
  void CloseFile();

  Disk* const disk_;
  const std::string path_;
  const std::string hash_;
  const int64_t bytes_;
  int fd_ = -1;  // opened by the first Append
  int64_t written_ = 0;
  bool published_ = false;
  Sha256 sha256_;
  std::string seal_;
};

class TensorStore {
 public:
  // Creates the directories and removes files that an earlier process left half-written. `disk`
  // must outlive the store.
  static absl::StatusOr<std::unique_ptr<TensorStore>> Open(const std::string& state_dir,
                                                           Disk* disk);

  std::unique_ptr<TensorWriter> Begin(const std::string& hash, int64_t bytes);
  std::unique_ptr<SpooledFile> BeginSpool(int64_t bytes);
  // Gives the files their final names. REQUIRES: Sync() of each passed
  absl::Status Publish(absl::Span<TensorWriter* const> writers);
  // Names the files by their names as blobs. REQUIRES: Sync() of each passed
  absl::Status PublishBlobs(absl::Span<SpooledFile* const> files);

  // The location of a tensor without a file of its own.
  struct Range {
    std::string blob;  // name of the blob
    int64_t offset = 0;
  };
  struct Location {
    std::string path;
    FileRange range;
  };
  Location Locate(const std::string& hash, int64_t bytes, const std::optional<Range>& range) const {
    return Locate(state_dir_, hash, bytes, range);
  }
  static Location Locate(const std::string& state_dir, const std::string& hash, int64_t bytes,
                         const std::optional<Range>& range);
  // Moves a damaged tensor's file to quarantine/ under a new name, and returns that name. A blob
  // gets a second name there and stays in place: other tensors lie in it.
  absl::StatusOr<std::string> Quarantine(const Location& location);
  // Forgets the map, so that the next Map of the tensor opens the file again.
  void Forget(const std::string& hash);
  // Maps a tensor without checking its bytes (see HeldTensors::Map). Returns FAILED_PRECONDITION if
  // the file is missing or has another size.
  absl::StatusOr<std::shared_ptr<const MappedTensor>> Map(const std::string& hash, int64_t bytes,
                                                          const std::optional<Range>& range = {});
  // Does nothing if the file is missing. A file that cannot be removed now is put aside at the next
  // start.
  void Remove(const std::string& hash);
  // Removes a blob in the same way. Mapped tensors stay readable.
  void RemoveBlob(const std::string& hash);

  // Hashes of all files that models use.
  struct Named {
    absl::flat_hash_set<std::string> tensors, blobs;
  };
  struct Aside {
    int64_t files = 0, bytes = 0;
    std::string folder;   // empty: nothing was moved
    absl::Status status;  // why files that were not moved stay in place
  };
  // Moves every file that is not in `named` to a new folder under aside/. Only at start.
  Aside PutAside(const Named& named);
  // Moves missing files of `named` that an earlier start put aside back into place; returns how
  // many. Only at start.
  int64_t TakeBack(const Named& named);

  std::string PathOf(const std::string& hash) const;
  std::string BlobPathOf(const std::string& hash) const;

 private:
  TensorStore(const std::string& state_dir, Disk* disk)
      : state_dir_(state_dir),
        root_(state_dir + "/tensors"),
        blobs_(state_dir + "/blobs"),
        temporary_(state_dir + "/tmp"),
        aside_(state_dir + "/aside"),
        quarantine_(state_dir + "/quarantine"),
        disk_(disk) {}
  std::string NewTemporary();
  // Renames each file to its final name under `root`, and makes the names durable.
  struct Publishing {
    std::string from, to;
    bool* published;
  };
  absl::Status PublishAll(const std::string& root, absl::Span<const Publishing> files);
  // Moves `from`, a path under `root`, to the same place under `folder`, creating directories.
  absl::Status Move(const std::string& from, const std::string& root, const std::string& folder);

  const std::string state_dir_;
  const std::string root_;
  const std::string blobs_;
  const std::string temporary_;
  const std::string aside_;
  const std::string quarantine_;
  Disk* const disk_;
  Mutex mu_;
  int64_t next_temporary_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, std::weak_ptr<const MappedTensor>> mapped_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_TENSOR_STORE_H_
