// The parts that run Athanor's own kernels: tests of googletest that this program links, each in a
// process of its own, so that a kernel that faults or hangs costs its own test only.
#ifndef ATHANOR_TESTS_GPU_SUITES_H_
#define ATHANOR_TESTS_GPU_SUITES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace athanor {

// A run of tests in one process.
struct TestTask {
  std::string name() const;  // "PlanTest.Contractions", with its share if it has some

  std::string test;
  int share = 0, shares = 1;  // of a test that draws its cases at random
};

// Returns the tasks of a part whose tests' names match a pattern as of file names; "": all.
std::vector<TestTask> TasksOf(absl::string_view part, const std::string& pattern);

// Runs a task on the GPU of this machine, in a folder with the files that tests read, and prints an
// object of how it went. Returns how to exit.
int RunTestTask(const TestTask& task, const std::string& nvrtc, const std::string& folder);

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_SUITES_H_
