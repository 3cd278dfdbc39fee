// Decides when a sample may be taken on cores that also serve requests, and whether it counts.
//
//   std::unique_ptr<PacerView> view = MakePacerView(traffic);
//   Pacer pacer({.cores = 8, .threads = 8}, view.get());
//   double seconds = pacer.Sample(&calls, [&](int64_t n) { return RunTimes(n); }).value();
//
// If the cores do not suffice for a request and a measurement side by side, a sample begins only
// while no request runs. A sample that overlapped a request is discarded and repeated with half the
// calls, so that it fits smaller gaps. Discarded samples may have delayed requests. At most `share`
// of the time is spent on them: 1 ms lost in this way is followed by 4 ms of sleep. The traffic is
// checked between any two samples. So measuring occupies a core for one sample at a time: kMaxSlice
// at most, or a single call if that alone takes longer.
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

// A pacer's view of the machine; tests replace it.
class PacerView {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~PacerView() = default;
  virtual TrafficState Traffic() = 0;
  virtual Clock::time_point Now() = 0;
  virtual void Sleep(Clock::duration duration) = 0;
  // Number of times that other threads of the machine have taken a core from this process.
  virtual int64_t Preemptions() = 0;
};

// `traffic` must outlive it.
std::unique_ptr<PacerView> MakePacerView(const TrafficReader* traffic);

// Number of cores this process may use, by its first thread: background work uses fewer.
int UsableCores();

struct PacerOptions {
  int cores = 1;
  int threads = 1;  // threads of a request, and of a measurement
  double share = 0.2;
  std::chrono::milliseconds max_wait{2000};  // total time to wait for gaps
  // No sample is taken after this time.
  PacerView::Clock::time_point end = PacerView::Clock::time_point::max();
};

// Used by one thread.
class Pacer {
 public:
  using Clock = PacerView::Clock;

  static constexpr double kMaxSlice = 5e-3;  // seconds

  // `view` must outlive it.
  Pacer(const PacerOptions& options, PacerView* view) : options_(options), view_(*view) {}

  // Returns the seconds of one call, measured over `*calls` calls in a row. Makes fewer calls, and
  // lowers `*calls`, if so many do not fit between requests. Returns `run`'s errors. Returns
  // ABORTED if there were no gaps for as long as it may wait (try again when the server has less to
  // do), or if the time is up. `prepare` is called before each try, outside its time.
  absl::StatusOr<double> Sample(int64_t* calls, absl::FunctionRef<absl::Status(int64_t calls)> run);
  absl::StatusOr<double> Sample(int64_t* calls,
                                absl::FunctionRef<absl::Status(int64_t calls)> prepare,
                                absl::FunctionRef<absl::Status(int64_t calls)> run);

  // Waits for a gap, but only until `last`, the seconds of the previous sample, is at most `share`
  // of the time. For measurements that a concurrent request only slows down and does not
  // invalidate.
  void Yield(double last);

  int64_t discarded() const { return discarded_; }  // samples that overlapped a request

 private:
  absl::Status WaitForGap();
  void Rest(Clock::duration duration);
  // Reports whether the running requests leave too few cores for a measurement.
  bool Busy(const TrafficState& state) const;
  bool Overlapped(const TrafficState& before, const TrafficState& after) const;

  const PacerOptions options_;
  PacerView& view_;
  int64_t taken_ = 0, discarded_ = 0;
  Clock::duration waited_{};
  Clock::duration owed_{};  // sleep owed for discarded samples
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_PACER_H_
