// Says what went wrong in a kernel, for whoever mends it: which thread of which kernel, and where.
#ifndef ATHANOR_TESTS_EMULATOR_FAULTS_H_
#define ATHANOR_TESTS_EMULATOR_FAULTS_H_

#include <string>

#include "runtime/cuda/driver.h"
#include "tests/emulator/athanor/launch.h"

namespace athanor::emulator {

// Returns what a driver returns after such a fault.
CudaResult ResultOf(Fault fault);
// Returns the text of a fault of the thread that `launch` is at.
std::string TextOf(const Launch& launch, Fault fault, const Access& access);
// Returns "k: thread 3 of team 1 writes 4 bytes 8 bytes into an argument of 64".
std::string TextOf(const Launch& launch, const Access& access);
// Returns "8 bytes into an argument of 64", or a part of the team's memory.
std::string PlaceOf(const Launch& launch, const Access& access);
// Returns "k: thread 3 of 8", or "k: thread 3 of team 1" where teams have several.
std::string ThreadText(const Launch& launch);

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_FAULTS_H_
