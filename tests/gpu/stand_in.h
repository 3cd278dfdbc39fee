// The device of stand_in_driver.cc: its clock, its faults, and its kernels, computed on the host.
#ifndef ATHANOR_TESTS_GPU_STAND_IN_H_
#define ATHANOR_TESTS_GPU_STAND_IN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "runtime/cuda/driver.h"

namespace athanor {

struct StandIn {
  double now_ms = 1;
  CudaResult lost = kCudaSuccess;  // the error that ended the context
  bool hanging = false;
  std::map<uint64_t, size_t> memory;  // allocated bytes by address
};
extern StandIn device;

// Reports whether the device is wrong in the way that ATHANOR_STAND_IN names.
bool Defect(std::string_view word);

struct StandInKernel {
  const char* name;
  std::vector<int> argument_bytes;
  void (*run)(void** arguments, int blocks);
};
// Kernels without a row have no result that a part looks at.
const std::vector<StandInKernel>& StandInKernels();

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_STAND_IN_H_
