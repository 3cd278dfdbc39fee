// The key under which the cache keeps the object of a kernel. A kernel of code is what its compiler
// makes of it; a library call is what the library proposes on this chip, by this driver.
//
//   cache.kernels().Find(KernelKeyOf(plan.kernels(0), machine));
#ifndef ATHANOR_SERVER_CHILD_KERNEL_KEY_H_
#define ATHANOR_SERVER_CHILD_KERNEL_KEY_H_

#include "compiler/cache/keys.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/plan.pb.h"

namespace athanor {

KernelKey KernelKeyOf(const v1::Kernel& kernel, const internal::TargetReply& machine);
KernelKey KernelKeyOf(const v1::Kernel& kernel, const MachineConditions& made_under);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_KERNEL_KEY_H_
