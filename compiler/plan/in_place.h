// Decides whether a kernel may write its result over one of its operands.
#ifndef ATHANOR_COMPILER_PLAN_IN_PLACE_H_
#define ATHANOR_COMPILER_PLAN_IN_PLACE_H_

#include "compiler/codegen/kir/kir.h"

namespace athanor {

// Returns true only if it is proved: every load of global buffer `operand` is at the very index at
// which the same block later stores the result (buffer 0), the result is never loaded, and both
// have elements of one size. Then only the lane that overwrites an element reads it, before it
// does; in a kernel of a team it is one thread that does both, since only vectors may. REQUIRES:
// the kernel stores an element of its result at most once, or loads no operand after the first
// time.
bool MayWriteOver(const kir::Kernel& kernel, int operand);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PLAN_IN_PLACE_H_
