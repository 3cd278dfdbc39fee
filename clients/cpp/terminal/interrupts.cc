#include "clients/cpp/terminal/interrupts.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

namespace athanor::client {
namespace {

// The handler writes a byte here for each signal.
std::atomic<int> interrupt_fd = -1;

void OnInterrupt(int) {
  const int error = errno;
  // A full pipe loses nothing: it says already that an interrupt came.
  [[maybe_unused]] const ssize_t written = write(interrupt_fd, "", 1);
  errno = error;
}

// Waits until one of two files can be read, or has ended; returns true if the first can.
bool FirstIsReady(int first, int second) {
  pollfd files[] = {{first, POLLIN, 0}, {second, POLLIN, 0}};
  while (poll(files, 2, -1) < 0 && errno == EINTR) {
  }
  return files[0].revents != 0;
}

}  // namespace

Interrupts::Interrupts() {
  if (pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) return;
  interrupt_fd = pipe_[1];
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &before_);
}

Interrupts::~Interrupts() {
  if (pipe_[0] < 0) return;
  sigaction(SIGINT, &before_, nullptr);
  interrupt_fd = -1;
  close(pipe_[0]);
  close(pipe_[1]);
}

bool Interrupts::Take() {
  char bytes[64];
  bool taken = false;
  while (read(pipe_[0], bytes, sizeof(bytes)) > 0) taken = true;
  return taken;
}

bool Interrupts::CancelDuring(Cancellation* cancellation, absl::FunctionRef<void()> work) {
  const int done = eventfd(0, EFD_CLOEXEC);
  if (done < 0) return work(), false;
  bool interrupted = false;
  std::thread watcher([&] {
    if (!FirstIsReady(fd(), done)) return;
    interrupted = Take();
    cancellation->Cancel();
  });
  work();
  eventfd_write(done, 1);
  watcher.join();
  close(done);
  return interrupted;
}

LineReader::Result LineReader::Next() {
  const auto interrupted = [&] {
    read_.clear();
    return Result{kInterrupt, ""};
  };
  if (interrupts_ != nullptr && interrupts_->Take()) return interrupted();
  size_t searched = 0;
  for (;;) {
    if (const size_t end = read_.find('\n', searched); end != std::string::npos) {
      Result result{kLine, read_.substr(0, end)};
      read_.erase(0, end + 1);
      return result;
    }
    searched = read_.size();
    if (interrupts_ != nullptr && FirstIsReady(interrupts_->fd(), fd_)) {
      interrupts_->Take();
      return interrupted();
    }
    char bytes[4096];
    const ssize_t count = read(fd_, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count > 0) {
      read_.append(bytes, count);
      continue;
    }
    if (read_.empty()) return {kEnd, ""};
    Result result{kLine, std::move(read_)};
    read_.clear();
    return result;
  }
}

}  // namespace athanor::client
