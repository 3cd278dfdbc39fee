// Follows how far a child has come with the kernels of a TryRequest, and holds what it streams
// against that: nothing is taken from a child that does not fit what was asked.
//
//   TrialStates states(request);
//   if (!states.Take(part)) ...            // the child is ended
//   if (states.AtWork() == TrialState::kEnded) ...   // all kernels have their verdict
#ifndef ATHANOR_SERVER_CHILD_TRIAL_STATES_H_
#define ATHANOR_SERVER_CHILD_TRIAL_STATES_H_

#include <cstdint>
#include <vector>

#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

// The stage that a kernel is at, or waits for.
enum class TrialState : uint8_t { kCompiling, kMeasuring, kChecking, kMeasuringAgain, kEnded };

// Reports whether these are times of a measurement: positive and finite.
bool IsTime(const internal::SizeTimes& size);
// Reports whether the time over the first plan's can be one.
bool IsRatio(const internal::SizeTimes& size);
// Reports whether it is a code of absl::StatusCode.
bool IsStatusCode(int code);

class TrialStates {
 public:
  // Borrows the request.
  explicit TrialStates(const internal::TryRequest& request);

  // Returns the stage that the child works at: all kernels are compiled before the first is
  // measured.
  TrialState AtWork() const;
  // Takes the next part. False: it is none that can come now, and changes nothing.
  bool Take(const internal::TryOutcome& part);

 private:
  const internal::TryRequest& request_;
  std::vector<TrialState> states_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_TRIAL_STATES_H_
