// Measures elapsed time with a steady clock, so that changes of the machine's clock do not matter.
//
//   Stopwatch watch;
//   if (watch.Elapsed() > limits.time) ...
#ifndef ATHANOR_COMPILER_EGRAPH_STOPWATCH_H_
#define ATHANOR_COMPILER_EGRAPH_STOPWATCH_H_

#include <chrono>

#include "absl/time/time.h"

namespace athanor::egraph {

class Stopwatch {
 public:
  absl::Duration Elapsed() const {
    return absl::FromChrono(std::chrono::steady_clock::now() - start_);
  }

  // Adds the elapsed time to a counter of microseconds, and restarts.
  void AddTo(double* microseconds) {
    *microseconds += absl::ToDoubleMicroseconds(Elapsed());
    *this = Stopwatch();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_STOPWATCH_H_
