// The space of schedules that one kernel may have: typed parameters, filtered by what the registers
// and the sizes allow. The search measures the best-predicted few and the neighbours of the best.
//
//   std::vector<KernelChoice> all = Schedules(task, target);
//   std::vector<KernelChoice> near = Neighbours(best, all);
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_SPACE_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_SPACE_H_

#include <vector>

#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Returns every schedule of the task's kind, distinct, task.choice among them; only that one for
// kinds that have no parameters. At most a few thousand. A contraction's include those of the
// target's library, if it has one (rules "openblas" and "cublaslt").
std::vector<KernelChoice> Schedules(const KernelTask& task, const v1::Target& target);

// Returns the members of `all` that differ from `choice` in one parameter only, and of those the
// nearest below and above in each parameter.
std::vector<KernelChoice> Neighbours(const KernelChoice& choice,
                                     const std::vector<KernelChoice>& all);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_SPACE_H_
