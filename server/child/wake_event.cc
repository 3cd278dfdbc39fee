#include "server/child/wake_event.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace athanor {

WakeEvent::WakeEvent() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WakeEvent::~WakeEvent() {
  if (fd_ >= 0) close(fd_);
}

void WakeEvent::Set() {
  const uint64_t one = 1;
  // Cannot block; fails only when the event is set already.
  if (write(fd_, &one, sizeof(one)) < 0) return;
}

void WakeEvent::Clear() {
  uint64_t count;
  while (read(fd_, &count, sizeof(count)) > 0) {
  }
}

bool WakeEvent::IsSet() const {
  pollfd wake{fd_, POLLIN, 0};
  return poll(&wake, 1, 0) > 0;
}

}  // namespace athanor
