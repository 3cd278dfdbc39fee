#include "server/tuner/measure/pacer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/cpus.h"

namespace athanor {
namespace {

using Clock = PacerView::Clock;

// Interval at which a waiting measurement checks the traffic: costs 1 % of a core.
constexpr std::chrono::microseconds kPoll{200};
// Shorter samples are not halved further: the clock's resolution would show.
constexpr std::chrono::microseconds kLeastSample{40};
// A sample that lost its core to another thread is repeated, but only so often: on a machine that
// is never quiet, the median of the rounds must do.
constexpr int kPreemptedTries = 2;
// A longer sample is not repeated: hardly one is free of preemptions, and what another thread's
// time slice adds to it is little.
constexpr std::chrono::milliseconds kLongSample{20};

class MachineView final : public PacerView {
 public:
  explicit MachineView(const TrafficReader* traffic) : traffic_(*traffic) {}

  TrafficState Traffic() override { return traffic_.Read(); }
  Clock::time_point Now() override { return Clock::now(); }
  void Sleep(Clock::duration duration) override { std::this_thread::sleep_for(duration); }
  int64_t Preemptions() override {
    rusage used;
    return getrusage(RUSAGE_SELF, &used) == 0 ? used.ru_nivcsw : 0;
  }

 private:
  const TrafficReader& traffic_;
};

Clock::duration Times(Clock::duration duration, double factor) {
  return std::chrono::duration_cast<Clock::duration>(duration * factor);
}

int64_t Milliseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

std::unique_ptr<PacerView> MakePacerView(const TrafficReader* traffic) {
  return std::make_unique<MachineView>(traffic);
}

int UsableCores() {
  const std::vector<int> cpus = UsableCpus(getpid());
  if (!cpus.empty()) return static_cast<int>(cpus.size());
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

bool Pacer::Busy(const TrafficState& state) const {
  if (state.running == 0) return false;
  // Each request has its own thread; a request may use all serving threads.
  const int64_t serving = std::max<int64_t>(state.running, options_.threads);
  return serving + options_.threads > options_.cores;
}

bool Pacer::Overlapped(const TrafficState& before, const TrafficState& after) const {
  if (Busy(before) || Busy(after)) return true;
  const bool any_is_too_much = Busy({.started = 0, .running = 1});
  return any_is_too_much && before != after;
}

void Pacer::Rest(Clock::duration duration) {
  const Clock::time_point start = view_.Now();
  view_.Sleep(duration);
  const Clock::duration slept = view_.Now() - start;
  waited_ += slept;
  owed_ = std::max(owed_ - slept, Clock::duration::zero());
}

absl::Status Pacer::WaitForGap() {
  for (;;) {
    if (view_.Now() >= options_.end) {
      return absl::AbortedError("not measured: the search's time is up");
    }
    if (owed_ <= Clock::duration::zero() && !Busy(view_.Traffic())) return absl::OkStatus();
    if (waited_ >= options_.max_wait) {
      return absl::AbortedError(absl::StrCat(
          "not measured: requests left no gaps to measure in for ", Milliseconds(waited_), " ms (",
          discarded_, " of ", taken_, " samples were overlapped by one); it can be measured when ",
          "the server has less to do"));
    }
    Rest(kPoll);
  }
}

absl::StatusOr<double> Pacer::Sample(int64_t* calls,
                                     absl::FunctionRef<absl::Status(int64_t calls)> run) {
  return Sample(calls, [](int64_t) { return absl::OkStatus(); }, run);
}

absl::StatusOr<double> Pacer::Sample(int64_t* calls,
                                     absl::FunctionRef<absl::Status(int64_t calls)> prepare,
                                     absl::FunctionRef<absl::Status(int64_t calls)> run) {
  for (int preempted = 0;;) {
    RETURN_IF_ERROR(prepare(*calls));
    RETURN_IF_ERROR(WaitForGap());
    const TrafficState before = view_.Traffic();
    const int64_t preemptions = view_.Preemptions();
    const Clock::time_point start = view_.Now();
    RETURN_IF_ERROR(run(*calls));
    const Clock::duration took = view_.Now() - start;
    ++taken_;
    if (Overlapped(before, view_.Traffic())) {
      ++discarded_;
      owed_ += Times(took, 1 / options_.share - 1);
      if (took > kLeastSample) *calls = std::max<int64_t>(1, *calls / 2);
    } else if (view_.Preemptions() == preemptions || took > kLongSample ||
               ++preempted > kPreemptedTries) {
      return std::chrono::duration<double>(took).count() / static_cast<double>(*calls);
    }
  }
}

void Pacer::Yield(double last) {
  const Clock::duration most =
      Times(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(last)),
            1 / options_.share - 1);
  const Clock::time_point start = view_.Now();
  while (Busy(view_.Traffic()) && view_.Now() - start < most) Rest(kPoll);
}

}  // namespace athanor
