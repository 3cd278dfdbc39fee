// Shares the measured kernels of a search among its kinds of work, so that each that promises a
// gain gets its share.
//
//   WorkTurns turns;
//   for (Work work : turns.Order(promise)) {
//     turns.Begin(work);
//     // asks for kernels, each counted by turns.CountKernel()
//   }
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_WORK_TURNS_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_WORK_TURNS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace athanor {

// Kinds of work that a search can do next.
enum class Work : uint8_t { kSchedules, kFlips, kForms };
inline constexpr size_t kWorks = 3;

class WorkTurns {
 public:
  // Names the work that kernels are asked for from now on.
  void Begin(Work work) { working_ = work; }
  void CountKernel();
  // Returns the kinds of work in the order of their turns. `promise`: expected gain for its cost,
  // by Work; not below 0.
  std::array<Work, kWorks> Order(const std::array<double, kWorks>& promise) const;

 private:
  Work working_ = Work::kSchedules;
  std::array<double, kWorks> spent_{};  // by Work: kernels asked for lately
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_WORK_TURNS_H_
