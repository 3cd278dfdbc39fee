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
  double seconds = 0;       // from its start until its end was seen
  double kill_seconds = 0;  // from the signal that ended what ran too long until it was gone
  std::string output;       // what it wrote to its standard output, or why it did not start
};

// Kills the child when its time is over, or `after_output` seconds after its first output. It must
// die with this process: DieWithParent().
Child RunChild(const std::vector<std::string>& arguments, double seconds,
               double after_output = std::numeric_limits<double>::infinity());

// For a child, first thing.
void DieWithParent();

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_PROCESS_H_
