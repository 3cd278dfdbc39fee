// Reads the counters of the emulator (counters.h) for a test.
//
//   setenv("ATHANOR_EMULATOR_COUNTS", "1", 1);  // before kernels are compiled
//   EXPECT_EQ(CountersText(CountersOf(path)), "loads ...");
#ifndef ATHANOR_TESTS_EMULATOR_COUNTERS_TESTING_H_
#define ATHANOR_TESTS_EMULATOR_COUNTERS_TESTING_H_

#include <dlfcn.h>

#include <string>

#include "gtest/gtest.h"
#include "tests/emulator/counters.h"

namespace athanor::emulator {

// Returns what the last launch of the device asked of memory. `path`: the file of its driver, which
// NewDevice() tells.
inline Counters CountersOf(const std::string& path) {
  Counters counters;
  void* const driver = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(driver, nullptr) << path;
  if (driver == nullptr) return counters;
  using Read = void (*)(Counters*);
  reinterpret_cast<Read>(dlsym(driver, "athanor_emulator_counters"))(&counters);
  dlclose(driver);
  return counters;
}

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_COUNTERS_TESTING_H_
