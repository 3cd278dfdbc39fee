// Runs kernels whose teams have several threads: teams one after another, of each the threads in
// turns, which change where threads meet.
#ifndef ATHANOR_TESTS_EMULATOR_TEAMS_H_
#define ATHANOR_TESTS_EMULATOR_TEAMS_H_

#include <cstdint>
#include <string>

#include "runtime/cuda/driver.h"
#include "tests/emulator/athanor/launch.h"
#include "tests/emulator/counters.h"

namespace athanor::emulator {

// Says in which order teams run, and which thread of a team goes on among those that can.
struct Order {
  enum Kind { kAscending, kDescending, kSeeded } kind = kAscending;
  uint64_t seed = 0;

  // Returns the i-th of n.
  long At(long i, long n) const;
};

// Is a kernel's machine code: one thread's run.
using Entry = void (*)(void** arguments, const Launch* launch);

// Describes what ended a launch early.
struct Stop {
  CudaResult result = kCudaSuccess;
  std::string why;
};

// Runs all teams of a launch, in blocks of `block` threads; `shared_bytes` is a team's. What of
// `launch` is of single teams is set here.
Stop RunTeams(Entry entry, void** arguments, const Launch& launch, long block, long shared_bytes,
              const Order& order);

// Counts what a launch asks of memory, where ATHANOR_EMULATOR_COUNTS is set: RunTeams() those of
// teams of several threads.
Counting& TheCounting();

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_TEAMS_H_
