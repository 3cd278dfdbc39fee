// Prints a plan for people, one line per step.
//
//   plan p-0123456789abcdef baseline for cpu znver4, 2 threads; arena 4096 bytes
//   run 0: contract_gelu(b3 arena@0 f32[b, 64] <- b0 input "x" f32[b, 32],
//       b2 prepared f32[2, 32, 32]) ...                                       (on one line)
#ifndef ATHANOR_COMPILER_PLAN_PLAN_TEXT_H_
#define ATHANOR_COMPILER_PLAN_PLAN_TEXT_H_

#include <string>

#include "proto/athanor/v1/plan.pb.h"

namespace athanor {

// Safe on any message; prints "?" for what cannot be read.
std::string PlanToText(const v1::Plan& plan);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PLAN_PLAN_TEXT_H_
