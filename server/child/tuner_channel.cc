#include "server/child/tuner_channel.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

// Longest wait of one poll, in milliseconds, rounded up so that a deadline is not polled for.
int PollMilliseconds(Clock::time_point deadline) {
  if (deadline == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max()));
}

absl::Status Await(int fd, short events, const FrameWait& wait) {
  for (;;) {
    pollfd fds[2] = {{fd, events, 0}, {wait.wake_fd, POLLIN, 0}};
    const int ready = poll(fds, 2, PollMilliseconds(wait.deadline));
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (ready > 0 && fds[1].revents != 0) return absl::CancelledError("interrupted");
    if (ready > 0) return absl::OkStatus();
    if (ready == 0) return absl::DeadlineExceededError("no answer in time");
  }
}

absl::Status Closed() { return absl::UnavailableError("the other end has closed"); }

absl::Status Send(int fd, absl::string_view bytes, const FrameWait& wait) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(n);
    } else if (errno == EAGAIN) {
      if (absl::Status s = Await(fd, POLLOUT, wait); !s.ok()) return s;
    } else if (errno != EINTR) {
      return Closed();
    }
  }
  return absl::OkStatus();
}

absl::Status Receive(int fd, char* data, size_t bytes, const FrameWait& wait) {
  while (bytes > 0) {
    const ssize_t n = recv(fd, data, bytes, MSG_DONTWAIT);
    if (n > 0) {
      data += n;
      bytes -= n;
    } else if (n < 0 && errno == EAGAIN) {
      if (absl::Status s = Await(fd, POLLIN, wait); !s.ok()) return s;
    } else if (n == 0 || errno != EINTR) {
      return Closed();
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsCrash(int signal) {
  constexpr int kCrashes[] = {SIGABRT, SIGBUS, SIGFPE,  SIGILL, SIGPIPE,
                              SIGSEGV, SIGSYS, SIGTRAP, SIGXFSZ};
  return absl::c_linear_search(kCrashes, signal);
}

bool WorthRetrying(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInternal ||
         status.code() == absl::StatusCode::kUnavailable;
}

absl::Status WriteFrame(int fd, const google::protobuf::MessageLite& message,
                        const FrameWait& wait) {
  const size_t size = message.ByteSizeLong();
  if (size > static_cast<size_t>(kMaxTunerFrame)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "message to the tuner: ", size, " bytes, at most ", kMaxTunerFrame, " can be sent"));
  }
  const uint32_t count = static_cast<uint32_t>(size);
  std::string bytes(sizeof(count), '\0');
  std::memcpy(bytes.data(), &count, sizeof(count));
  message.AppendToString(&bytes);
  return Send(fd, bytes, wait);
}

absl::StatusOr<std::string> ReadFrame(int fd, int64_t max_bytes, const FrameWait& wait) {
  uint32_t count = 0;
  if (absl::Status s = Receive(fd, reinterpret_cast<char*>(&count), sizeof(count), wait); !s.ok()) {
    return s;
  }
  if (count > max_bytes) {
    return absl::DataLossError(
        absl::StrCat("a frame of ", count, " bytes, at most ", max_bytes, " are taken"));
  }
  std::string bytes(count, '\0');
  if (absl::Status s = Receive(fd, bytes.data(), count, wait); !s.ok()) return s;
  return bytes;
}

}  // namespace athanor
