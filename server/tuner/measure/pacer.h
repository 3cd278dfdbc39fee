// When a sample may be taken on cores that also serve requests, and whether it counts.
//
//   std::unique_ptr<PacerView> view = MakePacerView(traffic);
//   Pacer pacer({.cores = 8, .threads = 8}, view.get());
//   double seconds = pacer.Sample(&calls, [&](int64_t n) { return RunTimes(n); }).value();
//
// Where the cores do not suffice for a request and a measurement side by side, a sample begins only
// while no request runs, and one during which a request ran is discarded and taken again with half
// the calls, so that it fits smaller gaps. What was discarded may have held requests up: at most
// `share` of the time goes there, so that after 1 ms lost in this way there are 4 ms of sleep.
// Between two samples there is always a look at the traffic, so the longest that measuring holds a
// core is one sample: kMaxSlice at most, or a single call where that alone takes longer.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_PACER_H_
#define ATHANOR_SERVER_TUNER_MEASURE_PACER_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/traffic.h"

namespace athanor {

// What a pacer sees and does of the world; tests have one of their own.
class PacerView {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~PacerView() = default;
  virtual TrafficState Traffic() = 0;
  virtual Clock::time_point Now() = 0;
  virtual void Sleep(Clock::duration duration) = 0;
  // How often other threads of the machine have taken a core from this process so far.
  virtual int64_t Preemptions() = 0;
};

// `traffic` outlives it.
std::unique_ptr<PacerView> MakePacerView(const TrafficReader* traffic);

// The cores this process may use, those of its first thread: work in the background keeps to fewer.
int UsableCores();

struct PacerOptions {
  int cores = 1;
  int threads = 1;  // of a request, and of a measurement
  double share = 0.2;
  std::chrono::milliseconds max_wait{2000};  // for gaps, in all
  // From then on no sample is taken.
  PacerView::Clock::time_point end = PacerView::Clock::time_point::max();
};

// Used by one thread.
class Pacer {
 public:
  using Clock = PacerView::Clock;

  static constexpr double kMaxSlice = 5e-3;  // seconds

  // Borrows the view.
  Pacer(const PacerOptions& options, PacerView* view) : options_(options), view_(*view) {}

  // Seconds of one call, out of `*calls` in a row. Fewer are made, and `*calls` lowered, where so
  // many do not fit between requests. `run`'s errors come through. ABORTED: there were no gaps to
  // measure in for as long as it may wait; to be tried again when the server has less to do. Or the
  // time is up.
  absl::StatusOr<double> Sample(int64_t* calls, absl::FunctionRef<absl::Status(int64_t calls)> run);

  // Waits for a gap, but no longer than `last` (seconds, of the sample before) takes to be at most
  // `share` of the time: for what is only too slow beside requests, not wrong.
  void Yield(double last);

  int64_t discarded() const { return discarded_; }  // samples that a request overlapped

 private:
  absl::Status WaitForGap();
  void Rest(Clock::duration duration);
  // Whether what runs now leaves too few cores for a measurement.
  bool Busy(const TrafficState& state) const;
  bool Overlapped(const TrafficState& before, const TrafficState& after) const;

  const PacerOptions options_;
  PacerView& view_;
  int64_t taken_ = 0, discarded_ = 0;
  Clock::duration waited_{};
  Clock::duration owed_{};  // sleep, for what was discarded
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_PACER_H_
