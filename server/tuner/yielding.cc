#include "server/tuner/yielding.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

namespace athanor {
namespace {

// How long a request may have to wait for the priority to fall.
constexpr std::chrono::milliseconds kLook{5};

constexpr int kNicer = 10;  // a tenth of another thread's share of a core
// The least the scheduler lets a thread run before a waking one may take its core (Linux 6.12 and
// later; others decide by niceness alone). By default some milliseconds, which is what a request
// would wait.
constexpr uint64_t kSliceNs = 100'000;

// As the system call has it; libc has no name for it.
struct SchedAttributes {
  uint32_t size = sizeof(SchedAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = kSliceNs;
  uint64_t deadline = 0;
  uint64_t period = 0;
};

// A refusal costs others' speed, not correctness.
void LowerPriority(pid_t thread) {
  SchedAttributes attributes;
  attributes.nice = std::min(19, getpriority(PRIO_PROCESS, thread) + kNicer);
  if (syscall(SYS_sched_setattr, thread, &attributes, 0) != 0) {
    setpriority(PRIO_PROCESS, thread, attributes.nice);
  }
}

}  // namespace

void YieldingWork::Run(absl::FunctionRef<void()> work) {
  std::atomic<pid_t> thread_id = 0;
  std::promise<void> done;
  std::future<void> finished = done.get_future();
  const TrafficState before = std::exchange(seen_, traffic_.Read());
  bool low = before != seen_ || seen_.running > 0;
  std::thread thread;
  try {
    thread = std::thread([&, low] {
      if (low) LowerPriority(0);
      thread_id = gettid();
      work();
      done.set_value();
    });
  } catch (const std::system_error&) {
    work();
    return;
  }
  while (finished.wait_for(kLook) != std::future_status::ready) {
    if (low || traffic_.Read() == seen_ || thread_id == 0) continue;
    LowerPriority(thread_id);
    low = true;
  }
  seen_ = traffic_.Read();
  thread.join();
}

}  // namespace athanor
