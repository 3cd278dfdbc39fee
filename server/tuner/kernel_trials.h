// Tries kernels of a search: compiles them, measures those of one task in turn with its best,
// checks those that may serve, and measures these again. A TryRequest is answered outcome by
// outcome:
//
//   KernelTrials trials;
//   absl::Status all = trials.Try(request, {.limits = limits, .traffic = &traffic},
//                                 [&](const internal::TryOutcome& part) { return Send(part); });
//
// Compiles first and then measures: what the compiler leaves in the heap is given back once. Inputs
// and references of a task serve all its schedules, and a packing kernel that several have is
// compiled once.
#ifndef ATHANOR_SERVER_TUNER_KERNEL_TRIALS_H_
#define ATHANOR_SERVER_TUNER_KERNEL_TRIALS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/base/traffic.h"
#include "server/tuner/check/references.h"
#include "server/tuner/measure/measured_inputs.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Used by one thread at a time.
class KernelTrials {
 public:
  using Clock = std::chrono::steady_clock;

  struct Setting {
    IsolationLimits limits;
    const TrafficReader* traffic = nullptr;
    int64_t compile_seconds = 0;                       // of processor time, for each source
    Clock::time_point end = Clock::time_point::max();  // nothing is begun after it
    // Reports whether no request runs, or ran lately.
    std::function<bool()> quiet = [] { return true; };
    // Runs work of so many threads, which may yield to requests (measure/yielding.h).
    std::function<void(int threads, absl::FunctionRef<void()> work)> work =
        [](int, absl::FunctionRef<void()> work) { work(); };
  };
  // Sends a part of an outcome; an error ends the trial.
  using Send = absl::FunctionRef<absl::Status(const internal::TryOutcome&)>;

  // The verdicts are sent; the errors are INVALID_ARGUMENT (the request does not fit together) and
  // those of `send`.
  absl::Status Try(internal::TryRequest request, const Setting& setting, Send send);

  // References of checks; checks that are no trials use them as well.
  ReferenceMemory* references() { return &references_; }

 private:
  struct Trial;

  // No phase of a request begins anything after its end.
  static Clock::time_point PhaseEnd(const internal::TryRequest& request, const Setting& setting);

  static absl::Status Validate(const internal::TryRequest& request);
  // Adds the objects that kernels lack, and sends them; leaves those there is no time for. Errors
  // are those of `send`.
  static absl::Status Compile(const internal::TryRequest& request, const Setting& setting,
                              Send send, absl::Span<Trial> trials);
  // Measures and checks kernels of one task; sends the times before a check, and the ends. Errors
  // are those of `send`.
  absl::Status Judge(const internal::TryRequest& request, const Setting& setting, Send send,
                     absl::Span<Trial* const> trials);
  absl::Status Confirm(const internal::TryRequest& request, const Setting& setting, Send send,
                       Trial* trial);
  // Measures all in turn; where that fails, one after the other, so that one costs itself alone.
  void MeasureAll(const internal::TryRequest& request, const Setting& setting,
                  absl::Span<Trial* const> trials);
  // Sets their times. An error says nothing of any single one, where there are several. `confirm`:
  // the one that there is, beside the best, for longer.
  absl::Status Measure(const internal::TryRequest& request, const Setting& setting, bool confirm,
                       absl::Span<Trial* const> trials);
  absl::Status Check(const Setting& setting, Trial* trial);

  ReferenceMemory references_;
  InputMemory inputs_;
  std::string yardstick_;  // empty: not compiled yet
  double flops_ = 0;       // per second of the yardstick, at which times are told; 0: not known yet
};

// Returns heap memory left free by compiling and searching to the system, since running plans, and
// copies of pages that a forked process writes, need memory.
void TrimHeap();

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_KERNEL_TRIALS_H_
