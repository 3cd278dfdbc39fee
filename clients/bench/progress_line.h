// Shows on stderr how far a run is: redrawn in place on a terminal, as a line every ten seconds
// otherwise.
//
//   ProgressLine line({&load->progress()}, "concurrency 4", 30);   // until it goes
#ifndef ATHANOR_CLIENTS_BENCH_PROGRESS_LINE_H_
#define ATHANOR_CLIENTS_BENCH_PROGRESS_LINE_H_

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "clients/bench/load/load.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor::bench {

// Counts since the line began.
struct ProgressCounts {
  double seconds = 0;
  int64_t answered = 0, failed = 0, tokens = 0;
  double whole = 0;  // seconds that it is going to take; 0: not known
};

// Formats "concurrency 4: 12 of 30 s, 340 answered, 2 failed, 10880 tokens".
std::string ProgressText(const std::string& name, const ProgressCounts& counts);

class ProgressLine {
 public:
  // Adds up the counts of all loads, which must outlive this.
  ProgressLine(std::vector<const Progress*> loads, std::string name, double whole);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  ProgressCounts Now() const;
  void Work();

  const std::vector<const Progress*> loads_;
  const std::string name_;
  const double whole_;
  const bool terminal_;
  const Clock::time_point start_;
  ProgressCounts before_;  // the loads' counts at the start
  Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_PROGRESS_LINE_H_
