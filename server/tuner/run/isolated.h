// Runs untrusted code in its own process, whose only output is bytes in shared memory.
//
//   absl::StatusOr<SharedMemory> memory = SharedMemory::Create(bytes);
//   absl::Status status = RunIsolated({.timeout = 1s}, [&] { ...; return absl::OkStatus(); });
//
// The forked process shares nothing with its parent but SharedMemory created before.
#ifndef ATHANOR_SERVER_TUNER_RUN_ISOLATED_H_
#define ATHANOR_SERVER_TUNER_RUN_ISOLATED_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

// Zeroed pages that a forked process and its parent share, or processes that have the same file.
class SharedMemory {
 public:
  struct Place {
    int fd = -1;  // of a file; -1: pages without one
    int64_t offset = 0;
  };

  static absl::StatusOr<SharedMemory> Create(size_t bytes);
  // Maps the pages of a file, from `offset` on. Returns nullopt if there is no address space.
  static std::optional<SharedMemory> OfFile(int fd, int64_t offset, size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), place_(other.place_) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(place_, other.place_);
    return *this;
  }
  ~SharedMemory();

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Place place() const { return place_; }

 private:
  SharedMemory(char* data, size_t bytes, Place place) : data_(data), bytes_(bytes), place_(place) {}
  char* data_;
  size_t bytes_;
  Place place_;
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
  // Maps what another process made of a file's memory, from its place() on.
  static absl::StatusOr<GuardedBytes> Again(SharedMemory::Place place, size_t bytes);
  char* data() const { return memory_.data() + offset_; }
  size_t bytes() const { return bytes_; }
  absl::string_view view() const { return {data(), bytes_}; }
  SharedMemory::Place place() const { return memory_.place(); }
  // Makes writing raise SIGSEGV too, in this process and those forked from it.
  void Freeze();
  // Gives the pages back, for all who map them: they read as zero. UNAVAILABLE if the system does
  // not take them: they stay as they are. REQUIRES: it is not frozen
  absl::Status Drop();
  // Reports whether the bytes between the page's start and data() are as Create left them.
  bool MarginIntact() const;

 private:
  static absl::StatusOr<GuardedBytes> Guard(SharedMemory memory, size_t bytes);
  GuardedBytes(SharedMemory memory, size_t offset, size_t bytes)
      : memory_(std::move(memory)), offset_(offset), bytes_(bytes) {}
  SharedMemory memory_;
  size_t offset_;
  size_t bytes_;
};

class DeviceWorker;
class Scratch;

struct IsolationLimits {
  std::chrono::milliseconds timeout{10000};
  int64_t memory_bytes = int64_t{4} << 30;  // resident memory, beyond what this process uses
  // Memory for large blocks of checks (scratch.h); null: ordinary memory.
  Scratch* scratch = nullptr;
  // The process that runs what is for a GPU (device_worker.h); null: this process is it, or there
  // is no GPU.
  DeviceWorker* worker = nullptr;
};

// Says what became of a process that ran a kernel.
enum class ProcessEnd { kItself, kTime, kMemory };

// A process forked from this one, which dies with it, and is ended without a signal: the tuner may
// send none (allowed_calls.h), but a process can die with the thread that forked it. That thread
// waits here until the process shall end.
class ForkedProcess {
 public:
  // Runs `code` in the process. It is told whether the process will die with this one, and does not
  // return. UNAVAILABLE: no process, thread or descriptor is left.
  static absl::StatusOr<std::unique_ptr<ForkedProcess>> Start(
      absl::FunctionRef<void(absl::Status)> code);
  ~ForkedProcess() { End(); }
  ForkedProcess(const ForkedProcess&) = delete;
  ForkedProcess& operator=(const ForkedProcess&) = delete;

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }  // readable once it has ended
  // Ends the process unless it has ended, and returns its wait status.
  int End();

 private:
  ForkedProcess() = default;

  pid_t pid_ = -1;
  int pidfd_ = -1;
  int status_ = 0;
  std::promise<int> forked_;  // errno of fork
  std::promise<void> end_;
  std::thread thread_;
};

// Returns the resident bytes of a process; -1 if it is gone.
int64_t ResidentBytes(pid_t pid);

// Waits until the process ends, or, if `fd` is not -1, until that can be read or is closed: then
// nullopt. Gives up at `deadline`, and once more than `most_bytes` are resident.
std::optional<ProcessEnd> WatchProcess(const ForkedProcess& process, int fd,
                                       std::chrono::steady_clock::time_point deadline,
                                       int64_t most_bytes);

// Returns the error of a process that ended without a result, by its wait status. `what` names in
// messages what it ran.
absl::Status ExplainEnd(absl::string_view what, const IsolationLimits& limits, ProcessEnd end,
                        int status);

// Runs `body` in a forked process and returns its status, or why there is none: DEADLINE_EXCEEDED,
// RESOURCE_EXHAUSTED (memory), INTERNAL (it crashed or exited early), UNAVAILABLE (no process could
// be made, or somebody else ended it), FAILED_PRECONDITION (the system lacks what confines it).
// `what` names the code in messages. REQUIRES: this process's other threads wait meanwhile; the
// caller is its first thread or an OwnStackThread, on whose stack `body` may have its data.
absl::Status RunIsolated(absl::string_view what, const IsolationLimits& limits,
                         absl::FunctionRef<absl::Status()> body);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_ISOLATED_H_
