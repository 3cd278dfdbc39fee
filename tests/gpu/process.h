// Runs this program again as a child, so that what ends or hangs a process costs one child.
//
//   const Child child = RunChild({"--child", "trap"}, /*seconds=*/10);
//   if (child.exit == 0) Use(child.output);
#ifndef ATHANOR_TESTS_GPU_PROCESS_H_
#define ATHANOR_TESTS_GPU_PROCESS_H_

#include <limits>
#include <string>
#include <vector>

namespace athanor {

struct Child {
  std::string End() const;  // "exit 0", "signal 31", "killed after 10 s"

  int exit = -1;  // -1: a signal ended it
  int signal = 0;
  bool timed_out = false;
  bool stays = false;       // still there kReapSeconds after its kill, as if stuck in the driver
  double seconds = 0;       // from its start until its end was seen
  double kill_seconds = 0;  // from the signal that ended what ran too long until it was gone
  std::string output;       // what it wrote to its standard output, or why it did not start
};

// The longest wait for a process that was killed, or that closed its output, to be gone.
inline constexpr double kReapSeconds = 10;

// A child beside its parent: it may wait for the end of its standard input, which Finish() closes.
// It must die with this process: DieWithParent(). Used by one thread, which has to outlive it.
class RunningChild {
 public:
  explicit RunningChild(const std::vector<std::string>& arguments);
  ~RunningChild();
  RunningChild(const RunningChild&) = delete;
  RunningChild& operator=(const RunningChild&) = delete;

  // Reports whether it has written something within `seconds`; it has not if it ended before.
  bool WaitForOutput(double seconds);
  // Tells it to end by closing its input, and waits. Kills it `seconds` from now, or
  // `after_output_seconds` after its first output. Call once.
  Child Finish(double seconds,
               double after_output_seconds = std::numeric_limits<double>::infinity());

 private:
  bool Read(double seconds);
  bool Reap();

  Child child_;
  int pid_ = -1;  // -1: it did not start, or is gone
  int to_ = -1, from_ = -1;
  double started_ = 0;  // seconds of the steady clock
  double first_output_ = std::numeric_limits<double>::infinity();
};

// Starts a child and finishes it.
Child RunChild(const std::vector<std::string>& arguments, double seconds,
               double after_output_seconds = std::numeric_limits<double>::infinity());

// Makes a child die with the thread that started it. Call it first.
void DieWithParent();

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_PROCESS_H_
