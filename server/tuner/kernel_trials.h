// Tries kernels of a search: compiles them, measures each alone, checks those that may serve, and
// measures these again. A TryRequest is answered outcome by outcome:
//
//   KernelTrials trials;
//   absl::Status all = trials.Try(request, {.limits = limits, .traffic = &traffic},
//                                 [&](const internal::TryOutcome& part) { return Send(part); });
//
// All sources are compiled before the first kernel is measured: what the compiler leaves in the
// heap is given back once. Inputs and references of a task serve all its schedules.
#ifndef ATHANOR_SERVER_TUNER_KERNEL_TRIALS_H_
#define ATHANOR_SERVER_TUNER_KERNEL_TRIALS_H_

#include <chrono>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
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
    Clock::time_point end = Clock::time_point::max();  // nothing is measured beyond it
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

  static absl::Status Validate(const internal::TryRequest& request);
  // Adds the objects that a kernel lacks. Reports whether it has all.
  static bool Compile(const Setting& setting, const v1::Target& target, Trial* trial);
  void Judge(const internal::TryRequest& request, const Setting& setting, Trial* trial);
  absl::Status Measure(const internal::TryRequest& request, const Setting& setting, Trial* trial);
  absl::Status Check(const Setting& setting, Trial* trial);

  ReferenceMemory references_;
  InputMemory inputs_;
};

// Returns heap memory left free by compiling and searching to the system, since running plans, and
// copies of pages that a forked process writes, need memory.
void TrimHeap();

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_KERNEL_TRIALS_H_
