// Predicts what a kernel costs before anything is measured. Predictions order what is measured
// first and bound what can still be gained; they are never mixed with measured times.
//
//   Machine machine = Machine::Typical(target);            // or as the tuner measured it
//   double seconds = RooflineSeconds(task, sizes, machine);
//   double guess = PredictSeconds(task, choice, sizes, target, machine);
//
// The roofline is that of Williams, Waterman and Patterson (2009): no kernel is faster than its
// bytes at the memory's bandwidth or its operations at the arithmetic peak. Pure functions,
// thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_COST_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_COST_H_

#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/matrix_instructions.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Rates that this machine reaches with the threads it serves with.
struct Machine {
  double read_bytes_per_second = 0;   // from memory beyond the caches
  double cache_bytes_per_second = 0;  // from the last-level cache
  double near_bytes_per_second = 0;   // from the second-level caches of its cores
  double f32_flops_per_second = 0;    // a multiply-add is two
  double launch_seconds = 0;          // per step of a plan

  // Returns the values of an unmeasured machine: orders of magnitude of a server core, times the
  // threads.
  static Machine Typical(const v1::Target& target);
};

// Values of the graph's dims.
using SizePoint = std::vector<int64_t>;

// Cost of one task at one size. Its shapes are evaluated once, and predictions of thousands of
// schedules share them.
//
//   TaskCost cost(task, sizes, target, machine);
//   for (const KernelChoice& c : Schedules(task, target)) Rank(c, cost.Predict(c));
class TaskCost {
 public:
  TaskCost(const KernelTask& task, const SizePoint& sizes, const v1::Target& target,
           const Machine& machine);

  // Least seconds the task can take; 0 if a size has no value.
  double roofline() const { return roofline_; }
  // Returns the seconds that `choice`, of the task's kind, should take: the roofline and the
  // launch, plus what tiles lose in contractions and attention, or idle threads and waiting sums in
  // the others.
  double Predict(const KernelChoice& choice) const;

 private:
  // Sizes of the task's anchor. A contraction has one element for swap = false and one for true;
  // attention uses [0]; Sort and TopK use the rows of [0] only.
  struct Extents {
    double batch = 1, rows = 0, columns = 0, sums = 0;
    std::optional<int64_t> known_rows;  // their number, if it is the same in all calls
    bool windows = false;               // the column operand is packed piece by piece (IsWindows)
    bool contiguous = false;            // the column operand's last axis is one of the columns
    // Attention only; its rows are keys, its sums the depth. kPaged: its batch are heads of keys,
    // its columns rows of queries.
    double value_depth = 0;
    double group = 1;        // kPaged: heads that share those of keys
    double called_rows = 0;  // those that a library's call computes; 0: it has no bound
  };

  // `team`: of the choice; its lanes are a vector's.
  double Contract(const ContractSchedule& schedule, int team) const;
  double Panels(const Extents& e, const PanelSchedule& s, int team) const;
  double Dots(const Extents& e, const PanelSchedule& s, int team) const;
  // Returns the seconds of a tile of threads.
  double Staged(const Extents& e, const TileSchedule& s) const;
  // Returns those of a tile of matrix instructions, which tensor_ describes.
  double Tensor(const Extents& e, const TileSchedule& s) const;
  double Library(const Extents& e, const LibrarySchedule& s) const;
  double Call(const Extents& e, const CallSchedule& s) const;
  // Returns the seconds to read `bytes` of an operand in place, in stretches of `stretch` bytes.
  double Stream(double bytes, double stretch, bool prefetch) const;
  // Describes what one item asks of a GPU.
  struct TeamWork {
    int team = 1;
    double slots = 0;      // issue slots of each of its threads
    double waiting = 0;    // slots that pass beside, while a thread waits for memory or the others
    double bytes = 0;      // that it reads beyond its multiprocessor
    double resident = 16;  // waves of a scheduler that have room at a time
  };
  // Counts the steps of the sums of a tile's item.
  static double StepsOf(const Extents& e, const TileSchedule& s);
  // Adds what keeping `sums` of each thread costs an item that shares them with others.
  TeamWork WithSplit(const TileSchedule& s, double sums, TeamWork work) const;
  // Returns the seconds of so many items.
  double OnGpu(double items, const TeamWork& work) const;
  double Attention(const AttentionSchedule& s, int team) const;
  double Paged(const AttentionSchedule& s) const;
  double Walk(const KernelChoice& choice) const;  // maps, rows and points
  // Returns how many times as long memory takes because neighbouring threads of a GPU do not touch
  // neighbours; 1 on a CPU.
  double Scattering(const KernelChoice& choice) const;
  double Sort() const;
  double Slots(double slots) const;  // converts issue slots to seconds

  Extents extents_[2];
  double roofline_ = 0, untiled_ = 0, launch_ = 0, slots_per_second_ = 1;
  double flops_per_second_ = 1;  // that the contraction can reach
  int threads_ = 1;
  double multiprocessors_ = 1;  // of a GPU
  int accumulator_bytes_ = 4, operand_bytes_ = 4;
  const MatrixInstruction* tensor_ = nullptr;  // of a GPU that computes the contraction, if any
  double lanes_ = 1;                           // of a vector of the accumulator's dtype
  double l1_bytes_ = 0, l2_bytes_ = 0;
  double cache_bytes_per_second_ = 1;
  double moved_vectors_ = 0, elements_ = 1;  // moved by the kernel; of its result
  double moving_ = 0;                        // seconds to move its bytes
  double row_ = 1;                           // elements along the result's last axis
  bool teams_ = false;                       // the target is a GPU
};

// For a single prediction.
double RooflineSeconds(const KernelTask& task, const SizePoint& sizes, const v1::Target& target,
                       const Machine& machine);
double PredictSeconds(const KernelTask& task, const KernelChoice& choice, const SizePoint& sizes,
                      const v1::Target& target, const Machine& machine);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_COST_H_
