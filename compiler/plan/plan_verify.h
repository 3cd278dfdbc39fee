// Checks what every executor relies on in a plan, where plans are made.
//
//   absl::Status s = VerifyPlan(plan);
//   // INTERNAL "run step 3 (\"y\" (Add)) reads buffer 7 (ARENA), ..."
//
// Checks that indices are in range; sizes use the plan's dims only; a step writes its first buffer
// and reads the others; every buffer is written once, by a step that may write its kind, before it
// is read; `prepare` reads parameters, constants and what it has prepared; arena values are aligned
// and inside the arena, and two that are alive in one step do not overlap, unless the step's result
// lies exactly over an operand that dies there. Pure function, thread-safe.
#ifndef ATHANOR_COMPILER_PLAN_PLAN_VERIFY_H_
#define ATHANOR_COMPILER_PLAN_PLAN_VERIFY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/athanor/v1/plan.pb.h"

namespace athanor {

// Divides the place in the arena of a library call's workspace, as the runtime wants it
// (runtime/program/checked_call.h).
inline constexpr int64_t kCallWorkspaceAlignment = 256;

absl::Status VerifyPlan(const v1::Plan& plan);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PLAN_PLAN_VERIFY_H_
