#include "tests/gpu/call_watch.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

namespace athanor {

void CallWatch::Watch() {
  int listener = -1;
  while ((listener = listener_.load()) < 0) {
    const timespec moment = {0, 100'000};
    nanosleep(&moment, nullptr);
  }
  // A kernel's own structures may be longer than those of the headers.
  alignas(8) unsigned char notice[512], answer[512];
  while (true) {
    std::memset(notice, 0, sizeof(notice));
    std::memset(answer, 0, sizeof(answer));
    auto* const call = reinterpret_cast<seccomp_notif*>(notice);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, call) != 0) {
      if (errno == EINTR || errno == ENOENT) continue;
      return;
    }
    if (call->data.nr >= 0 && call->data.nr < kNumbers) ++counts_[call->data.nr];
    auto* const go_on = reinterpret_cast<seccomp_notif_resp*>(answer);
    go_on->id = call->id;
    go_on->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, go_on);
  }
}

absl::StatusOr<std::unique_ptr<CallWatch>> CallWatch::Start() {
  std::unique_ptr<CallWatch> watch(new CallWatch);
  // Started first: it must not wait for itself. It runs as long as the process, and so does what it
  // counts into.
  CallWatch* const counted = watch.get();
  std::thread([counted] { counted->Watch(); }).detach();
  sock_filter ask[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF}};
  sock_fprog program = {1, ask};
  long listener = -1;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
    listener =
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  }
  if (listener < 0) {
    const int error = errno;
    watch.release();  // its thread waits for ever
    return absl::FailedPreconditionError(
        absl::StrCat("this system cannot watch system calls: ", std::strerror(error)));
  }
  // From here on every call of this thread waits for the other one.
  counted->listener_.store(static_cast<int>(listener));
  return watch;
}

std::map<int, int64_t> CallWatch::Take() {
  std::map<int, int64_t> calls;
  for (int number = 0; number < kNumbers; ++number) {
    if (const int64_t count = counts_[number].exchange(0); count > 0) calls[number] = count;
  }
  return calls;
}

}  // namespace athanor
