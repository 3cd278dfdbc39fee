// A libnvidia-ml.so.1 for the emulated GPU: clocks that never change.
#include <cstring>

#define ATHANOR_NVML extern "C" __attribute__((visibility("default"))) int

ATHANOR_NVML nvmlInit_v2() { return 0; }

ATHANOR_NVML nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  constexpr int kNotFound = 6;
  static int emulated;
  if (std::strcmp(bus_id, "0000:01:00.0") != 0) return kNotFound;
  *device = &emulated;
  return 0;
}

ATHANOR_NVML nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) {
  constexpr int kMultiprocessors = 1, kMemory = 2, kNotSupported = 3;
  if (kind != kMultiprocessors && kind != kMemory) return kNotSupported;
  *mhz = kind == kMultiprocessors ? 900 : 1'000;
  return 0;
}
