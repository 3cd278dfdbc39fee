#include "server/tuner/run/scratch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/mutex.h"
#include "runtime/memory/prepared_pool.h"
#include "runtime/program/program.h"
#include "server/tuner/run/device_worker.h"

namespace athanor {
namespace {

constexpr int64_t kPage = int64_t{64} << 10;  // a multiple of any system's page size

int64_t Pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Scratch Scratch::Open(int fd, size_t least) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return Scratch();
  return Scratch(fd, least, info.st_size);
}

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(least_, other.least_);
  std::swap(bytes_, other.bytes_);
  std::swap(next_, other.next_);
  return *this;
}

Scratch::~Scratch() {
  if (fd_ >= 0) close(fd_);
}

std::optional<SharedMemory> Scratch::Take(size_t bytes) {
  if (fd_ < 0 || bytes < least_ || static_cast<int64_t>(bytes) > bytes_ - next_) {
    return std::nullopt;
  }
  const auto size = static_cast<int64_t>(bytes);
  // Allocates disk space first: on a full disk, touching a page would kill the process.
  int filled = 0;
  while ((filled = fallocate(fd_, 0, next_, size)) != 0 && errno == EINTR) {
  }
  if (filled != 0) return std::nullopt;
  std::optional<SharedMemory> memory = SharedMemory::OfFile(fd_, next_, bytes);
  if (memory.has_value()) next_ = std::min(bytes_, next_ + Pages(size));
  return memory;
}

void Scratch::Clear() {
  if (fd_ < 0 || next_ == 0) return;
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, next_);
  next_ = 0;
}

absl::StatusOr<SharedMemory> TakeOrCreate(const IsolationLimits& limits, size_t bytes) {
  if (limits.scratch != nullptr) {
    if (std::optional<SharedMemory> taken = limits.scratch->Take(bytes)) return *std::move(taken);
  }
  if (limits.worker == nullptr) return SharedMemory::Create(bytes);
  if (std::optional<SharedMemory> taken = limits.worker->memory().Take(bytes)) {
    return *std::move(taken);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("memory for a check: ", bytes, " bytes: none is left for the device worker"));
}

absl::StatusOr<GuardedBytes> TakeOrCreateGuarded(const IsolationLimits& limits, size_t bytes) {
  return GuardedBytes::Create(
      bytes, [&](size_t with_margins) { return TakeOrCreate(limits, with_margins); });
}

void ClearTaken(const IsolationLimits& limits) {
  if (limits.scratch != nullptr) limits.scratch->Clear();
  if (limits.worker != nullptr) limits.worker->memory().Clear();
}

struct ScratchDevice::Window {
  char* const data;
  const int64_t bytes;
  Mutex mu;
  int64_t next ABSL_GUARDED_BY(mu) = 0;   // where the next range begins
  int64_t dirty ABSL_GUARDED_BY(mu) = 0;  // bytes before this may have been written
  int live ABSL_GUARDED_BY(mu) = 0;       // number of ranges
};

class ScratchDevice::Range : public DeviceMemory {
 public:
  Range(Window* window, char* data, int64_t bytes) : DeviceMemory(data, bytes), window_(*window) {}
  ~Range() override {
    MutexLock lock(window_.mu);
    if (--window_.live == 0) window_.next = 0;
  }

 private:
  Window& window_;
};

ScratchDevice::ScratchDevice(Device* device, char* window, size_t bytes)
    : ForwardingDevice(device), window_(new Window{window, static_cast<int64_t>(bytes), {}}) {}

ScratchDevice::~ScratchDevice() = default;

absl::StatusOr<std::unique_ptr<DeviceMemory>> ScratchDevice::Allocate(MemoryKind kind,
                                                                      int64_t bytes) {
  if (kind != MemoryKind::kPrepared) return device_.Allocate(kind, bytes);
  {
    MutexLock lock(window_->mu);
    const int64_t end = window_->next + Pages(bytes);
    if (end <= window_->bytes) {
      char* const data = window_->data + window_->next;
      const int64_t used = std::min(bytes, window_->dirty - window_->next);
      if (used > 0) std::memset(data, 0, used);
      window_->next = end;
      window_->dirty = std::max(window_->dirty, end);
      ++window_->live;
      return std::make_unique<Range>(window_.get(), data, bytes);
    }
  }
  return device_.Allocate(kind, bytes);
}

int64_t LargePreparedBytes(const v1::Plan& plan, const ParameterHashes& hashes) {
  const absl::StatusOr<Program> program = BuildProgram(plan);
  if (!program.ok()) return 0;
  const std::vector<PreparedKey> keys = PreparedKeys(plan, *program, hashes);
  absl::flat_hash_set<absl::string_view> seen;
  int64_t bytes = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (program->fixed[i].bytes < PreparedPool::kLargeBlock) continue;
    if (!keys[i].empty() && !seen.insert(keys[i]).second) continue;
    bytes += Pages(PreparedPool::Rounded(program->fixed[i].bytes));
  }
  return bytes;
}

}  // namespace athanor
