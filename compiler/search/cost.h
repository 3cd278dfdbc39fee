// What a kernel should cost, before anything is measured. Predictions order what is measured first
// and bound what can still be gained; they are never mixed with measured times.
//
//   Machine machine = Machine::Typical(target);            // or as the tuner measured it
//   double seconds = RooflineSeconds(task, sizes, machine);
//   double guess = PredictSeconds(task, choice, sizes, target, machine);
//
// The roofline is that of Williams, Waterman and Patterson (2009): no kernel is faster than its
// bytes at the memory's bandwidth or its operations at the arithmetic peak. Pure functions,
// thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_COST_H_
#define ATHANOR_COMPILER_SEARCH_COST_H_

#include "compiler/ir/graph.h"
#include "compiler/search/schedule.h"
#include "compiler/search/task.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// What this machine reaches with the threads it serves with.
struct Machine {
  double read_bytes_per_second = 0;   // from memory beyond the caches
  double cache_bytes_per_second = 0;  // from the last-level cache
  double f32_flops_per_second = 0;    // a multiply-add is two
  double launch_seconds = 0;          // of one step of a plan

  // Where nothing is measured: orders of magnitude of a server core, times the threads.
  static Machine Typical(const v1::Target& target);
};

// Values of the graph's dims.
using SizePoint = std::vector<int64_t>;

// The least time the task can take at `sizes`; 0 where a size has no value.
double RooflineSeconds(const KernelTask& task, const SizePoint& sizes, const Machine& machine);

// What `choice` should take: the roofline, and for contractions and attention what their tiles
// lose.
double PredictSeconds(const KernelTask& task, const KernelChoice& choice, const SizePoint& sizes,
                      const v1::Target& target, const Machine& machine);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_COST_H_
