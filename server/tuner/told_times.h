// What a kernel that was raced against its task's best is told to take.
//
//   *outcome.add_times() = RelativeTo(best_seconds, raced);   // for each size
//   TellSurely(best, asked, &outcome);                        // of one that seems faster
#ifndef ATHANOR_SERVER_TUNER_TOLD_TIMES_H_
#define ATHANOR_SERVER_TUNER_TOLD_TIMES_H_

#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

// A kernel that gains less on its task's best is no better: noise does as much, and a check and
// another measurement would cost more than it brings.
inline constexpr double kLeastKernelGain = 0.01;

// Returns the times of a kernel that took `raced` in a race against one that takes `seconds`.
internal::SizeTimes RelativeTo(double seconds, const internal::SizeTimes& raced);

// Has a kernel take at least `seconds` in the weighted sum over the sizes.
void TellAtLeast(double seconds, const internal::SearchKernel& asked,
                 internal::TryOutcome* outcome);

// Has a kernel that seems to take less than `best` take what it surely keeps within; `best` if that
// is more, or if it seems to gain too little. Each new best's time is the former's by a ratio: what
// luck had its part in would be handed on from best to best, and the search would promise what no
// plan holds.
void TellSurely(double best, const internal::SearchKernel& asked, internal::TryOutcome* outcome);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_TOLD_TIMES_H_
