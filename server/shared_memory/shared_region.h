// A part of a POSIX shared memory object that a client fills, or reads what it is given.
//
//   ASSIGN_OR_RETURN(SharedRegion region,
//                    SharedRegion::Find({.name = "in", .key = "/frames", .byte_size = 600'000}));
//   RETURN_IF_ERROR(region.Read(0, bytes, buffer));
//
// The object is opened anew for each use and never mapped, since its client may truncate, unlink or
// replace it at any time: each of them is an error here, never a signal. Immutable, so thread-safe.
#ifndef ATHANOR_SERVER_SHARED_MEMORY_SHARED_REGION_H_
#define ATHANOR_SERVER_SHARED_MEMORY_SHARED_REGION_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

// A region as its client has registered it.
struct SharedPlace {
  std::string name;
  std::string key;     // of the object, as shm_open takes it; a leading "/" may be left out
  int64_t offset = 0;  // bytes
  int64_t byte_size = 0;
};

class SharedRegion {
 public:
  // Looks at the object. INVALID_ARGUMENT: the place makes no sense, or the object is too small;
  // NOT_FOUND: there is none of that key; FAILED_PRECONDITION: it cannot be read and written.
  static absl::StatusOr<SharedRegion> Find(SharedPlace place);

  const SharedPlace& place() const { return place_; }

  // Copy `bytes` at `offset` of the region. INVALID_ARGUMENT: they are not all in the region.
  // FAILED_PRECONDITION: the object has been unlinked, replaced or truncated since it was found.
  // RESOURCE_EXHAUSTED: the machine has no memory for what is written.
  absl::Status Read(int64_t offset, int64_t bytes, char* to) const;
  absl::Status Write(int64_t offset, absl::string_view from) const;
  // Returns the error of Read and Write for what does not lie in the region.
  absl::Status CheckRange(int64_t offset, int64_t bytes) const;

 private:
  class Opened;

  SharedRegion(SharedPlace place, dev_t device, ino_t inode)
      : place_(std::move(place)), device_(device), inode_(inode) {}
  // Opens the object if it is still the one that was found, and has the bytes at `offset`.
  absl::Status Open(int64_t offset, int64_t bytes, Opened* opened) const;
  absl::Status Lost(absl::string_view what) const;

  SharedPlace place_;
  dev_t device_;
  ino_t inode_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SHARED_MEMORY_SHARED_REGION_H_
