// Runs a kernel by one of its schedules, for tests that go through many.
//
//   ExpectSchedule(task, choice, target, kSizes, rng);
#ifndef ATHANOR_TESTS_CONFORMANCE_SCHEDULED_H_
#define ATHANOR_TESTS_CONFORMANCE_SCHEDULED_H_

#include <cstdint>
#include <random>

#include "absl/types/span.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Values of the dims b, s and t in one call.
using ThreeSizes = int64_t[3];

// Expects the reference evaluator's values at all sizes, within what the result's dtype allows. The
// operands are random; large ones of floats have NaN and both infinities among them. Where several
// items share the sums of a tile, expects the same bits in whichever order teams run.
void ExpectSchedule(const KernelTask& task, const KernelChoice& choice, const v1::Target& target,
                    absl::Span<const ThreeSizes> sizes, std::mt19937& rng);

}  // namespace athanor

#endif  // ATHANOR_TESTS_CONFORMANCE_SCHEDULED_H_
