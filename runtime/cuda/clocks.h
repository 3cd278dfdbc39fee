// Clocks of a GPU as they are now, which the driver's management library (NVML) tells.
//
//   const CudaClocks now = ReadClocks("0000:01:00.0");   // as cuDeviceGetPCIBusId names it
//   now.core_mhz;                                        // 1980; 0: not told
#ifndef ATHANOR_RUNTIME_CUDA_CLOCKS_H_
#define ATHANOR_RUNTIME_CUDA_CLOCKS_H_

#include <string>

namespace athanor {

inline constexpr char kCudaManagementFile[] = "libnvidia-ml.so.1";

struct CudaClocks {
  int core_mhz = 0;  // of its multiprocessors
  int memory_mhz = 0;
};

// Opens the library at the first call, for the life of the process. 0 for what it does not tell, as
// where there is no library, or a part of a GPU that has no clock of its own. Thread-safe.
CudaClocks ReadClocks(const std::string& bus_id, const char* file = kCudaManagementFile);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CUDA_CLOCKS_H_
