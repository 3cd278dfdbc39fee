// Barriers of kernels that teams run: which statements race, and where the team must meet; and
// whether copies are waited for, which no barrier does.
//
//   store b1[lane] = v0: f32x32        // thread l writes element l
//   barrier                            // placed: thread 0 reads what thread 31 wrote
//   v1: f32 = load b1[31]
//
// Two accesses race if two threads of the team may touch one element, one of them writes it, and
// the team need not meet between. A vector's lane l is thread l's, a scalar is loaded by every
// thread and stored by thread 0. This relies on two things that hold of every kernel of a team:
// - Items are independent: none touches an element of a global buffer that another one writes, and
//   of memory of the launch only behind a ticket, which is a barrier too (tickets.h). So only
//   scratch, which the team's next item has again, is ordered from item to item.
// - The lanes of one store go to elements of their own: CheckBarriers wants it proved, or tried
//   where the lane is divided.
#ifndef ATHANOR_COMPILER_CODEGEN_KIR_BARRIERS_H_
#define ATHANOR_COMPILER_CODEGEN_KIR_BARRIERS_H_

#include "absl/status/status.h"
#include "compiler/codegen/kir/kir.h"

namespace athanor::kir {

// Adds the barriers that `kernel` needs, and no barrier that can be left out by itself. They stand
// before the later access, outside the loops that do not contain the earlier one. Where a copy is
// not waited for, it stops. Does nothing to kernels of teams of one. REQUIRES: all else that Verify
// wants.
void PlaceBarriers(Kernel* kernel);

// Names the buffer and both statements of a race, those of a copy and of an access while it may be
// under way, or the store whose lanes may meet at one element; OK if there is none. REQUIRES: all
// else that Verify wants.
absl::Status CheckBarriers(const Kernel& kernel);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_KIR_BARRIERS_H_
