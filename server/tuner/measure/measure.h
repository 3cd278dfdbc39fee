// Times plans against each other. All of them run in one isolated process (isolated.h), alternating
// within each round, so that any disturbance of the machine affects all of them.
//
//   internal::MeasureReply times = MeasurePlans(request, {.timeout = 5s}, traffic,
//   &memory).value();
//   // times.plans(0).sizes(1).seconds(): median of one call of the first plan at the second sizes
//
// A sample has as many calls as take about kSample, so that the clock's resolution does not matter.
// It is taken between requests (pacer.h) and before `end`; a single call is the shortest sample.
// Weights are copied, prepared and first touched without such pauses, at the priority of this
// process (yielding.h). What is less than its model is measured as many equal layers of one, so
// that a kernel alone finds weights, inputs and outputs where it would in a plan (layers.h).
// Weights of a model of more than 512 MiB take turns (weight_turns.h), and what plans prepare from
// them is shared; large ones of more than 192 MiB are addresses over 96 MiB of memory
// (walked_memory.h). A plan slower than its limit is given up after its first calls.
//
// Kernels of one task race, the best so far first: in turn, round by round, until it is known which
// of them is the fastest, and by how much. Those that have lost are not measured to the end: their
// times are those of the first rounds, which `rounds` says.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_MEASURE_H_
#define ATHANOR_SERVER_TUNER_MEASURE_MEASURE_H_

#include <chrono>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/base/traffic.h"
#include "server/tuner/measure/measured_inputs.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Returns INVALID_ARGUMENT if the request is inconsistent; ABORTED if the requests of `traffic`
// left no gaps to measure in, or there was no time for the fewest rounds; otherwise the runtime's
// errors and RunIsolated's. Calls `drawn` when there are inputs to measure on.
absl::StatusOr<internal::MeasureReply> MeasurePlans(
    const internal::MeasureRequest& request, const IsolationLimits& limits,
    const TrafficReader& traffic, InputMemory* memory,
    std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max(),
    absl::FunctionRef<void()> drawn = [] {});

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_MEASURE_H_
