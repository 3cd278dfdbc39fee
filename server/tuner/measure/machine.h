// Measures the peak performance of this machine with a number of threads: the roofline that kernels
// are compared with.
//
//   internal::MachineReply machine = MeasureMachine(request, {.timeout = 5s}, traffic).value();
//
// Bandwidths are for reads only, with every thread on its own part: of memory far larger than the
// caches, and of a part that fits the last-level cache. The arithmetic peak is that of independent
// multiply-adds in registers. Each limit is the best of several rounds, so rounds disturbed by
// other work do no harm. A round takes half a millisecond and waits for gaps between requests as
// long as its share of the time demands (pacer.h); rounds are spread over the whole measurement.
// The measurement takes about 200 ms, a second or two under load. Repeated measurements improve the
// result: server/search/machine_limits.h keeps the best.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_MACHINE_H_
#define ATHANOR_SERVER_TUNER_MEASURE_MACHINE_H_

#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/base/traffic.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Returns the compiler's errors, the runtime's, and RunIsolated's.
absl::StatusOr<internal::MachineReply> MeasureMachine(const internal::MachineRequest& request,
                                                      const IsolationLimits& limits,
                                                      const TrafficReader& traffic);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_MACHINE_H_
