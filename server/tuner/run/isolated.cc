#include "server/tuner/run/isolated.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/child/tuner_channel.h"
#include "server/tuner/sandbox/sandbox.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMargin = static_cast<char>(0xa5);
constexpr int kPollMilliseconds = 20;
// Written only when the body returns: a process that exits early has not written it.
constexpr uint64_t kFinished = 0x46494e4953484544;

// The result written by the body's process, which is checked like any outside input.
struct Verdict {
  uint64_t finished;
  int32_t code;
  char message[2000];
};

size_t PageBytes() {
  static const size_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

// Returns the resident bytes of a process; -1 if it is gone.
int64_t ResidentBytes(pid_t pid) {
  const int fd = open(absl::StrCat("/proc/", pid, "/statm").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  char text[128];
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (n <= 0) return -1;
  text[n] = '\0';
  char* rest = nullptr;
  std::strtoll(text, &rest, 10);
  return std::strtoll(rest, nullptr, 10) * static_cast<int64_t>(PageBytes());
}

// Runs the body in the forked process. Closing the last of `ends` tells the parent that this
// process dies with the thread that forked it.
[[noreturn]] void RunBody(pid_t parent, const int (&ends)[2], const IsolationLimits& limits,
                          absl::FunctionRef<absl::Status()> body, Verdict* verdict) {
  const int64_t seconds = limits.timeout.count() / 1000 + 1;
  close(ends[0]);
  absl::Status status = DieWith(parent);
  close(ends[1]);
  // Allows for two threads computing at once.
  if (status.ok()) status = ConfineKernel(2 * seconds);
  if (status.ok()) status = body();
  verdict->code = static_cast<int32_t>(status.code());
  const size_t n = std::min(status.message().size(), sizeof(verdict->message) - 1);
  if (n > 0) std::memcpy(verdict->message, status.message().data(), n);  // else it may be null
  verdict->message[n] = '\0';
  verdict->finished = kFinished;
  _exit(0);
}

enum class End { kItself, kTime, kMemory };

End Watch(pid_t pid, int pidfd, const IsolationLimits& limits) {
  const Clock::time_point deadline = Clock::now() + limits.timeout;
  const int64_t allowed = std::max<int64_t>(ResidentBytes(getpid()), 0) + limits.memory_bytes;
  for (;;) {
    pollfd fd{pidfd, POLLIN, 0};
    const int ready = poll(&fd, 1, kPollMilliseconds);
    if (ready > 0) return End::kItself;
    if (Clock::now() >= deadline) return End::kTime;
    if (ResidentBytes(pid) > allowed) return End::kMemory;
  }
}

absl::Status NoDescriptor() {
  return absl::UnavailableError("a descriptor for a check's process: none left");
}

struct Forked {
  pid_t pid;
  bool watched = false;
  End end = End::kMemory;
};

// Returns when the body's process has ended, or will end with the calling thread: the tuner may
// send no signal (allowed_calls.h), but what it forks dies with the thread that forked it
// (DieWith).
absl::StatusOr<Forked> ForkAndWatch(const IsolationLimits& limits,
                                    absl::FunctionRef<absl::Status()> body, Verdict* verdict) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return NoDescriptor();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunBody(parent, ends, limits, body, verdict);
  const int fork_error = errno;
  close(ends[1]);
  if (pid > 0) {
    // Waits until the process has closed its ends: from then on it dies with this thread, or is
    // gone.
    char none;
    while (read(ends[0], &none, 1) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  if (pid < 0) {
    return absl::UnavailableError(
        absl::StrCat("a process for a check: ", std::strerror(fork_error)));
  }
  Forked forked{.pid = pid};
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) return forked;
  forked.watched = true;
  forked.end = Watch(pid, pidfd, limits);
  close(pidfd);
  return forked;
}

absl::Status Explain(absl::string_view what, const IsolationLimits& limits, End end, int status,
                     const Verdict& verdict) {
  const bool killed = WIFSIGNALED(status);
  if (end == End::kTime || (killed && WTERMSIG(status) == SIGXCPU)) {
    return absl::DeadlineExceededError(
        absl::StrCat(what, " still ran after ", limits.timeout.count(), " ms"));
  }
  if (end == End::kMemory || (WIFEXITED(status) && WEXITSTATUS(status) == kTunerExitMemory)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " needs more than the ", limits.memory_bytes, " bytes it may have"));
  }
  if (killed) {
    const char* name = sigabbrev_np(WTERMSIG(status));
    return absl::Status(
        IsCrash(WTERMSIG(status)) ? absl::StatusCode::kInternal : absl::StatusCode::kUnavailable,
        absl::StrCat(
            what, " was ended by ", name == nullptr ? "signal " : "SIG",
            name == nullptr ? std::to_string(WTERMSIG(status)) : name,
            WTERMSIG(status) == SIGSYS ? " (a system call that kernels may not make)" : ""));
  }
  if (verdict.finished != kFinished) {
    return absl::InternalError(
        absl::StrCat(what, " ended its process with status ", WEXITSTATUS(status)));
  }
  const std::string message(verdict.message, strnlen(verdict.message, sizeof(verdict.message)));
  if (verdict.code < 0 || verdict.code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return absl::InternalError(absl::StrCat(what, " left status code ", verdict.code));
  }
  return absl::Status(static_cast<absl::StatusCode>(verdict.code), message);
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Create(size_t bytes) {
  void* data = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory for a check: ", bytes, " bytes: ", std::strerror(errno)));
  }
  return SharedMemory(static_cast<char*>(data), std::max<size_t>(bytes, 1));
}

std::optional<SharedMemory> SharedMemory::OfFile(int fd, int64_t offset, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  if (data == MAP_FAILED) return std::nullopt;
  return SharedMemory(static_cast<char*>(data), bytes);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

absl::StatusOr<GuardedBytes> GuardedBytes::Create(size_t bytes) {
  return Create(bytes, SharedMemory::Create);
}

absl::StatusOr<GuardedBytes> GuardedBytes::Create(
    size_t bytes, absl::FunctionRef<absl::StatusOr<SharedMemory>(size_t)> create) {
  const size_t page = PageBytes();
  const size_t used = (bytes + page) / page * page;  // leaves at least one byte of margin
  ASSIGN_OR_RETURN(SharedMemory memory, create(used + page));
  if (mprotect(memory.data() + used, page, PROT_NONE) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("guard page: ", std::strerror(errno)));
  }
  const size_t offset = used - bytes;
  std::memset(memory.data(), kMargin, offset);
  return GuardedBytes(std::move(memory), offset, bytes);
}

void GuardedBytes::Freeze() { mprotect(memory_.data(), memory_.bytes() - PageBytes(), PROT_READ); }

bool GuardedBytes::MarginIntact() const {
  return std::all_of(memory_.data(), data(), [](char c) { return c == kMargin; });
}

absl::Status RunIsolated(absl::string_view what, const IsolationLimits& limits,
                         absl::FunctionRef<absl::Status()> body) {
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create(sizeof(Verdict)));
  Verdict* verdict = new (memory.data()) Verdict();
  absl::StatusOr<Forked> forked = absl::UnavailableError("");
  try {
    std::thread([&] { forked = ForkAndWatch(limits, body, verdict); }).join();
  } catch (const std::system_error& error) {
    return absl::UnavailableError(absl::StrCat("a thread for a check: ", error.what()));
  }
  if (!forked.ok()) return forked.status();
  int status = 0;
  while (waitpid(forked->pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!forked->watched) return NoDescriptor();
  return Explain(what, limits, forked->end, status, *verdict);
}

}  // namespace athanor
