#include "server/base/traffic.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr size_t kPage = 4096;
// The lower bits count running requests, the upper ones started requests: no server runs a million
// requests at once.
constexpr int kRunningBits = 20;
constexpr uint64_t kOneRunning = 1;
constexpr uint64_t kOneStarted = uint64_t{1} << kRunningBits;
static_assert(std::atomic<uint64_t>::is_always_lock_free, "the page is shared between processes");

TrafficState Split(uint64_t word) {
  return {.started = word >> kRunningBits,
          .running = static_cast<uint32_t>(word & (kOneStarted - 1))};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Traffic>> Traffic::Create() {
  const auto failed = [](const char* doing) {
    return absl::UnavailableError(
        absl::StrCat("page of running requests: ", doing, ": ", std::strerror(errno)));
  };
  const int fd = memfd_create("athanor-traffic", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return failed("memory file");
  void* data = MAP_FAILED;
  if (ftruncate(fd, kPage) == 0) {
    data = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (data == MAP_FAILED) {
    close(fd);
    return failed("mapping it");
  }
  std::unique_ptr<Traffic> traffic(new Traffic(fd, new (data) std::atomic<uint64_t>(0)));
  // From here on nobody can map the page for writing: a stray kernel in a child cannot reach it.
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
      0) {
    return failed("sealing it");
  }
  return traffic;
}

Traffic::~Traffic() {
  munmap(word_, kPage);
  close(fd_);
}

// The counts publish no other data, so relaxed order is enough.
Traffic::Request::Request(Traffic* traffic) : traffic_(traffic) {
  if (traffic_ != nullptr) {
    traffic_->word_->fetch_add(kOneStarted + kOneRunning, std::memory_order_relaxed);
  }
}

Traffic::Request::~Request() {
  if (traffic_ != nullptr) traffic_->word_->fetch_sub(kOneRunning, std::memory_order_relaxed);
}

TrafficState Traffic::Read() const { return Split(word_->load(std::memory_order_relaxed)); }

absl::StatusOr<TrafficReader> TrafficReader::Open(int fd) {
  struct stat info;
  void* data = MAP_FAILED;
  if (fstat(fd, &info) == 0 && info.st_size == static_cast<off_t>(kPage)) {
    data = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
  }
  if (data == MAP_FAILED) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd, " is not the shared request counter"));
  }
  TrafficReader reader;
  reader.word_ = static_cast<const std::atomic<uint64_t>*>(data);
  return reader;
}

TrafficReader::~TrafficReader() {
  if (word_ != nullptr) munmap(const_cast<std::atomic<uint64_t>*>(word_), kPage);
}

TrafficReader::TrafficReader(TrafficReader&& other) noexcept
    : word_(std::exchange(other.word_, nullptr)) {}

TrafficReader& TrafficReader::operator=(TrafficReader&& other) noexcept {
  std::swap(word_, other.word_);
  return *this;
}

TrafficState TrafficReader::Read() const {
  return word_ == nullptr ? TrafficState{} : Split(word_->load(std::memory_order_relaxed));
}

}  // namespace athanor
