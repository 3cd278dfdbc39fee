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

// Leaves at least one byte of margin, and a page that nobody may touch.
size_t WithMargins(size_t bytes) {
  return (bytes + PageBytes()) / PageBytes() * PageBytes() + PageBytes();
}

// Runs the body in the forked process.
[[noreturn]] void RunBody(absl::Status status, const IsolationLimits& limits,
                          absl::FunctionRef<absl::Status()> body, Verdict* verdict) {
  const int64_t seconds = limits.timeout.count() / 1000 + 1;
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

// Forks, and runs `code` in the process. Returns once that will die with this thread, or has ended.
pid_t ForkThatDiesWithThis(absl::FunctionRef<void(absl::Status)> code, int* error) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    *error = errno;
    return -1;
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  *error = errno;
  if (pid == 0) {
    close(ends[0]);
    absl::Status status = DieWith(parent);
    close(ends[1]);
    code(std::move(status));
    _exit(1);
  }
  close(ends[1]);
  char none;
  while (pid > 0 && read(ends[0], &none, 1) < 0 && errno == EINTR) {
  }
  close(ends[0]);
  return pid;
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Create(size_t bytes) {
  void* data = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory for a check: ", bytes, " bytes: ", std::strerror(errno)));
  }
  return SharedMemory(static_cast<char*>(data), std::max<size_t>(bytes, 1), {});
}

std::optional<SharedMemory> SharedMemory::OfFile(int fd, int64_t offset, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  if (data == MAP_FAILED) return std::nullopt;
  return SharedMemory(static_cast<char*>(data), bytes, {fd, offset});
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

absl::StatusOr<GuardedBytes> GuardedBytes::Create(size_t bytes) {
  return Create(bytes, SharedMemory::Create);
}

absl::StatusOr<GuardedBytes> GuardedBytes::Guard(SharedMemory memory, size_t bytes) {
  const size_t used = memory.bytes() - PageBytes();
  if (mprotect(memory.data() + used, PageBytes(), PROT_NONE) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("guard page: ", std::strerror(errno)));
  }
  return GuardedBytes(std::move(memory), used - bytes, bytes);
}

absl::StatusOr<GuardedBytes> GuardedBytes::Create(
    size_t bytes, absl::FunctionRef<absl::StatusOr<SharedMemory>(size_t)> create) {
  ASSIGN_OR_RETURN(SharedMemory memory, create(WithMargins(bytes)));
  ASSIGN_OR_RETURN(GuardedBytes guarded, Guard(std::move(memory), bytes));
  std::memset(guarded.memory_.data(), kMargin, guarded.offset_);
  return guarded;
}

absl::StatusOr<GuardedBytes> GuardedBytes::Again(SharedMemory::Place place, size_t bytes) {
  std::optional<SharedMemory> memory =
      SharedMemory::OfFile(place.fd, place.offset, WithMargins(bytes));
  if (memory.has_value()) return Guard(*std::move(memory), bytes);
  return absl::ResourceExhaustedError(
      absl::StrCat("memory for a check: ", bytes, " bytes: ", std::strerror(errno)));
}

void GuardedBytes::Freeze() { mprotect(memory_.data(), memory_.bytes() - PageBytes(), PROT_READ); }

absl::Status GuardedBytes::Drop() {
  const size_t used = memory_.bytes() - PageBytes();
  if (madvise(memory_.data(), used, MADV_REMOVE) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("giving back memory of a check: ", used, " bytes: ", std::strerror(errno)));
}

bool GuardedBytes::MarginIntact() const {
  return std::all_of(memory_.data(), data(), [](char c) { return c == kMargin; });
}

absl::StatusOr<std::unique_ptr<ForkedProcess>> ForkedProcess::Start(
    absl::FunctionRef<void(absl::Status)> code) {
  std::unique_ptr<ForkedProcess> process(new ForkedProcess);
  try {
    process->thread_ = std::thread([&process = *process, code] {
      int error = 0;
      process.pid_ = ForkThatDiesWithThis(code, &error);
      std::future<void> end = process.end_.get_future();
      const bool running = process.pid_ > 0;
      process.forked_.set_value(error);
      if (running) end.wait();
    });
  } catch (const std::system_error& error) {
    return absl::UnavailableError(absl::StrCat("a thread for a check: ", error.what()));
  }
  const int error = process->forked_.get_future().get();
  if (process->pid_ < 0) {
    process->thread_.join();
    return absl::UnavailableError(absl::StrCat("a process for a check: ", std::strerror(error)));
  }
  process->pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, process->pid_, 0));
  if (process->pidfd_ < 0) {
    return absl::UnavailableError("a descriptor for a check's process: none left");
  }
  return process;
}

int ForkedProcess::End() {
  if (!thread_.joinable()) return status_;
  end_.set_value();
  thread_.join();
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  if (pidfd_ >= 0) close(pidfd_);
  return status_;
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

std::optional<ProcessEnd> WatchProcess(const ForkedProcess& process, int fd,
                                       Clock::time_point deadline, int64_t most_bytes) {
  for (;;) {
    pollfd fds[2] = {{process.pidfd(), POLLIN, 0}, {fd, POLLIN, 0}};
    const int ready = poll(fds, 2, kPollMilliseconds);
    // Takes what it has said, even if it has ended since.
    if (ready > 0 && fds[1].revents != 0) return std::nullopt;
    if (ready > 0) return ProcessEnd::kItself;
    if (Clock::now() >= deadline) return ProcessEnd::kTime;
    if (ResidentBytes(process.pid()) > most_bytes) return ProcessEnd::kMemory;
  }
}

absl::Status ExplainEnd(absl::string_view what, const IsolationLimits& limits, ProcessEnd end,
                        int status) {
  const bool killed = WIFSIGNALED(status);
  if (end == ProcessEnd::kTime || (killed && WTERMSIG(status) == SIGXCPU)) {
    return absl::DeadlineExceededError(
        absl::StrCat(what, " still ran after ", limits.timeout.count(), " ms"));
  }
  if (end == ProcessEnd::kMemory ||
      (WIFEXITED(status) && WEXITSTATUS(status) == kTunerExitMemory)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " needs more than the ", limits.memory_bytes, " bytes it may have"));
  }
  if (!killed) {
    return absl::InternalError(
        absl::StrCat(what, " ended its process with status ", WEXITSTATUS(status)));
  }
  const char* name = sigabbrev_np(WTERMSIG(status));
  return absl::Status(
      IsCrash(WTERMSIG(status)) ? absl::StatusCode::kInternal : absl::StatusCode::kUnavailable,
      absl::StrCat(what, " was ended by ", name == nullptr ? "signal " : "SIG",
                   name == nullptr ? std::to_string(WTERMSIG(status)) : name,
                   WTERMSIG(status) == SIGSYS ? " (a system call that kernels may not make)" : ""));
}

absl::Status RunIsolated(absl::string_view what, const IsolationLimits& limits,
                         absl::FunctionRef<absl::Status()> body) {
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create(sizeof(Verdict)));
  Verdict* verdict = new (memory.data()) Verdict();
  ASSIGN_OR_RETURN(const std::unique_ptr<ForkedProcess> process,
                   ForkedProcess::Start([&](absl::Status status) {
                     RunBody(std::move(status), limits, body, verdict);
                   }));
  const ProcessEnd end =
      *WatchProcess(*process, -1, Clock::now() + limits.timeout,
                    std::max<int64_t>(ResidentBytes(getpid()), 0) + limits.memory_bytes);
  const int status = process->End();
  const bool finished = end == ProcessEnd::kItself && WIFEXITED(status) &&
                        WEXITSTATUS(status) != kTunerExitMemory && verdict->finished == kFinished;
  if (!finished) return ExplainEnd(what, limits, end, status);
  const std::string message(verdict->message, strnlen(verdict->message, sizeof(verdict->message)));
  if (verdict->code < 0 || verdict->code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return absl::InternalError(absl::StrCat(what, " left status code ", verdict->code));
  }
  return absl::Status(static_cast<absl::StatusCode>(verdict->code), message);
}

}  // namespace athanor
