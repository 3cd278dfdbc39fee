// Runs untrusted code in its own process, whose only output is bytes in shared memory.
//
//   absl::StatusOr<SharedMemory> memory = SharedMemory::Create(bytes);
//   absl::Status status = RunIsolated({.timeout = 1s}, [&] { ...; return absl::OkStatus(); });
//
// The forked process shares nothing with its parent but SharedMemory created before.
#ifndef ATHANOR_SERVER_TUNER_RUN_ISOLATED_H_
#define ATHANOR_SERVER_TUNER_RUN_ISOLATED_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

// Zeroed pages that a forked process and its parent share.
class SharedMemory {
 public:
  static absl::StatusOr<SharedMemory> Create(size_t bytes);
  // Maps the pages of a file, from `offset` on. Returns nullopt if there is no address space.
  static std::optional<SharedMemory> OfFile(int fd, int64_t offset, size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory();

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  SharedMemory(char* data, size_t bytes) : data_(data), bytes_(bytes) {}
  char* data_;
  size_t bytes_;
};

// `bytes` of memory that end at an inaccessible page: an access one element too far raises SIGSEGV
// instead of going unnoticed. It is shared memory, so a forked process can write it; data() is
// unaligned.
class GuardedBytes {
 public:
  static absl::StatusOr<GuardedBytes> Create(size_t bytes);
  // Uses memory that `create` makes, of the bytes it is given.
  static absl::StatusOr<GuardedBytes> Create(
      size_t bytes, absl::FunctionRef<absl::StatusOr<SharedMemory>(size_t)> create);
  char* data() const { return memory_.data() + offset_; }
  size_t bytes() const { return bytes_; }
  absl::string_view view() const { return {data(), bytes_}; }
  // Makes writing raise SIGSEGV too, in this process and those forked from it.
  void Freeze();
  // Reports whether the bytes between the page's start and data() are as Create left them.
  bool MarginIntact() const;

 private:
  GuardedBytes(SharedMemory memory, size_t offset, size_t bytes)
      : memory_(std::move(memory)), offset_(offset), bytes_(bytes) {}
  SharedMemory memory_;
  size_t offset_;
  size_t bytes_;
};

class Scratch;

struct IsolationLimits {
  std::chrono::milliseconds timeout{10000};
  int64_t memory_bytes = int64_t{4} << 30;  // resident memory, beyond what this process uses
  // Memory for large blocks of checks (scratch.h); null: ordinary memory.
  Scratch* scratch = nullptr;
};

// Runs `body` in a forked process and returns its status, or why there is none: DEADLINE_EXCEEDED,
// RESOURCE_EXHAUSTED (memory), INTERNAL (it crashed or exited early), UNAVAILABLE (no process could
// be made, or somebody else ended it), FAILED_PRECONDITION (the system lacks what confines it).
// `what` names the code in messages. REQUIRES: this process's other threads wait meanwhile; the
// caller is its first thread or an OwnStackThread, on whose stack `body` may have its data.
absl::Status RunIsolated(absl::string_view what, const IsolationLimits& limits,
                         absl::FunctionRef<absl::Status()> body);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_ISOLATED_H_
