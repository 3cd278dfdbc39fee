#include "server/tuner/measure/yielding.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/cpu/cpus.h"
#include "server/tuner/measure/cpu_ticks.h"
#include "server/tuner/run/own_stack_thread.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

// Longest time that a request may wait for the priority to fall.
constexpr std::chrono::milliseconds kLook{5};
constexpr int kLooksPerCheck = 20;  // looks between checks whether the work is starved
constexpr int kNicer = 10;          // gets a tenth of another thread's share of a core
// Least time that the scheduler lets a thread run before a waking one may take its core (Linux 6.12
// and later; earlier ones decide by niceness alone). The default is some milliseconds.
constexpr uint64_t kSliceNs = 100'000;
// Work is starved if it had a core for less than a twentieth of the time it wanted one, over at
// least a second. Later work is then treated as starved for a minute.
constexpr int64_t kStarvedNs = 1'000'000'000;
constexpr int64_t kLeastShare = 20;
constexpr std::chrono::seconds kStarvation{60};
// Requests of 0.2 ms then have a p99 of 0.3 ms; a tick every 50 microseconds costs more than it
// gains.
constexpr std::chrono::microseconds kTick{100};

// The argument of the system call, for which libc has no name.
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

// Failures here and below cost others speed, not correctness. These functions set the calling
// thread's priority, the only one that a tuner may set (allowed_calls.h).
void SetIdle() {
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

void SetNice() {
  SchedAttributes attributes;
  attributes.nice = std::min(19, getpriority(PRIO_PROCESS, 0) + kNicer);
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) {
    setpriority(PRIO_PROCESS, 0, attributes.nice);
  }
}

// The priority and CPUs that a thread must take.
struct Place {
  bool idle = true;                 // false: nice instead
  absl::Span<const int> cpus = {};  // empty: leave them as they are
  void Take() const {
    idle ? SetIdle() : SetNice();
    if (!cpus.empty()) UseCpus(cpus);
  }
};

// Makes another thread take a Place, whatever it is doing: by a signal, whose handler only makes
// system calls. Asks one thread at a time.
class Usher {
 public:
  static void Send(pthread_t thread, const Place& place) {
    static const bool handled = [] {
      struct sigaction action{};
      action.sa_handler = [](int) {
        const int before = errno;
        if (const Place* wanted = place_.load()) wanted->Take();
        errno = before;
      };
      action.sa_flags = SA_RESTART;
      return sigaction(SIGRTMIN, &action, nullptr) == 0;
    }();
    if (!handled) return;
    place_ = &place;
    pthread_kill(thread, SIGRTMIN);
  }

 private:
  static inline std::atomic<const Place*> place_ = nullptr;
};

// Measures how much of the time that a thread wants a core it gets one, in nanoseconds.
class Fare {
 public:
  explicit Fare(pid_t thread) : path_(absl::StrCat("/proc/self/task/", thread, "/stat")) {}

  // Call it repeatedly; returns true once the thread has been starved. The waiting can only be
  // measured from here: the thread's own statistics are updated when it runs again.
  bool Starved() {
    const Clock::time_point now = Clock::now();
    int64_t ran = 0;
    const bool wants = Read(&ran);
    if (wants && last_ != Clock::time_point()) {
      const int64_t got = ran - last_ran_;
      ran_ += got;
      waited_ += std::max<int64_t>(0, std::chrono::nanoseconds(now - last_).count() - got);
    }
    last_ = wants ? now : Clock::time_point();
    last_ran_ = ran;
    return waited_ > kStarvedNs && ran_ < waited_ / kLeastShare;
  }

 private:
  // Reads whether the thread wants a core now, and how long it has had one so far.
  bool Read(int64_t* ran) const {
    std::FILE* file = std::fopen(path_.c_str(), "re");
    if (file == nullptr) return false;
    char state = '?';
    int64_t user = 0, system = 0;
    // The name in brackets is this program's, so it holds no bracket.
    const int found = std::fscanf(
        file, "%*d %*[^)]) %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNd64 " %" SCNd64, &state,
        &user, &system);
    std::fclose(file);
    *ran = (user + system) * (1'000'000'000 / sysconf(_SC_CLK_TCK));
    return found == 3 && state == 'R';
  }

  const std::string path_;
  Clock::time_point last_{};  // when it last wanted a core; epoch: it did not
  int64_t last_ran_ = 0, ran_ = 0, waited_ = 0;
};

}  // namespace

bool YieldingWork::Look() {
  const TrafficState before = std::exchange(seen_, traffic_.Read());
  if (before == seen_) return false;
  last_ = Clock::now();
  return true;
}

bool YieldingWork::Quiet() {
  Look();
  return seen_.running == 0 && (last_ == Clock::time_point() || Clock::now() - last_ >= recent_);
}

void YieldingWork::Run(int threads, absl::FunctionRef<void()> work) {
  const absl::Span<const int> cpus = absl::MakeConstSpan(cpus_).first(
      std::min(cpus_.size(), static_cast<size_t>(std::max(1, threads))));
  bool low = Look() || traffic_.Read().running > 0 || Clock::now() < last_ + recent_;
  bool starves = Clock::now() < starved_until_;
  // Work that is only nice may go where the scheduler finds room for it.
  const Place place = starves ? Place{.idle = false} : Place{.cpus = cpus};
  const std::vector<int> everywhere = UsableCpus(getpid());
  // Only works if this process may raise priorities.
  const Place rescue{.idle = false, .cpus = everywhere};
  std::optional<CpuTicks> ticks;
  const auto tick = [&] {
    if (!place.cpus.empty()) ticks.emplace(place.cpus, kTick);
  };
  std::atomic<pid_t> id = 0;
  std::promise<void> done;
  std::future<void> finished = done.get_future();
  const auto thread = OwnStackThread::Start([&, begins_low = low] {
    if (begins_low) place.Take();
    id = gettid();
    id.notify_one();
    work();
    done.set_value();
  });
  if (!thread.ok()) return work();
  id.wait(0);
  if (low) tick();
  Fare fare(id);
  for (int look = 1; finished.wait_for(kLook) != std::future_status::ready; ++look) {
    if (!low && Look()) {
      Usher::Send((*thread)->handle(), place);
      tick();
      low = true;
    }
    if (low && !starves && look % kLooksPerCheck == 0 && fare.Starved()) {
      starves = true;
      starved_until_ = Clock::now() + kStarvation;
      Usher::Send((*thread)->handle(), rescue);
      ticks.reset();
    }
  }
  Look();
  (*thread)->Join();
}

}  // namespace athanor
