// What this machine reaches with a number of threads: the roofline that kernels are held against.
//
//   internal::MachineReply machine = MeasureMachine(request, {.timeout = 5s}, traffic).value();
//
// Bandwidths are of reading alone, every thread its own part: of memory far beyond the caches, and
// of a part that fits the last-level cache. The arithmetic peak is that of independent
// multiply-adds in registers. Each is the best of some rounds, as a limit should be, so rounds
// beside other work are only slow; they take half a millisecond, wait for gaps between requests for
// as long as their share of the time demands (pacer.h), and are spread over the whole measurement.
// It takes about 200 ms, and a second or two under load. What is asked for again later counts too:
// server/search/machine_limits.h keeps the best.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_MACHINE_H_
#define ATHANOR_SERVER_TUNER_MEASURE_MACHINE_H_

#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/base/traffic.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// The compiler's errors, the runtime's, and RunIsolated's.
absl::StatusOr<internal::MachineReply> MeasureMachine(const internal::MachineRequest& request,
                                                      const IsolationLimits& limits,
                                                      const TrafficReader& traffic);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_MACHINE_H_
