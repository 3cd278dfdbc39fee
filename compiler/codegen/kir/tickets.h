// Checks the memory that items of a kernel share: counters that they draw tickets from, and memory
// of the launch, in which each leaves what the last one to draw reads.
//
//   store b3[128*g + lane] = v5: f32x128          // each item's part, in elements of its own
//   v7: i32 = ticket b4[floordiv(g, 4)] of 4      // items 4*n to 4*n + 3 draw counter n
//   v8: i32 = const 2
//   v9: bool = LessThan(v8, v7)                   // 3 of 4 drew before
//   if v9 {
//     v10: f32x128 = load b3[512*floordiv(g, 4) + lane] ...
//   }
//
// Items are independent otherwise (barriers.h). Nobody waits for another, so nothing can stand
// still; and each counter is drawn by all of its items, so that it is 0 again at the end.
#ifndef ATHANOR_COMPILER_CODEGEN_KIR_TICKETS_H_
#define ATHANOR_COMPILER_CODEGEN_KIR_TICKETS_H_

#include "absl/status/status.h"
#include "compiler/codegen/kir/kir.h"

namespace athanor::kir {

// Checks that the kernel draws at most one ticket, in its top block, `step` items at a time; that
// only tickets touch counters; and that other memory of the launch is stored ahead of the ticket,
// where no two items meet, and loaded behind it, where it is the last. REQUIRES: all else that
// Verify wants; the kernel is no library call.
absl::Status CheckTickets(const Kernel& kernel);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_KIR_TICKETS_H_
