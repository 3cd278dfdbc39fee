// A driver whose kernels do nothing and whose copies are the host's, so that what is left of a call
// is the time of the host; and a plan of a chain of steps for it. For tests and benchmarks.
#ifndef ATHANOR_RUNTIME_CUDA_EMPTY_DRIVER_TESTING_H_
#define ATHANOR_RUNTIME_CUDA_EMPTY_DRIVER_TESTING_H_

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/cuda/driver.h"

namespace athanor {

inline const CudaDriver& EmptyDriver() {
  static const CudaDriver driver = [] {
    CudaDriver d;
#define ATHANOR_SUCCEED(member, symbol, arguments) \
  d.member = [] arguments -> CudaResult { return kCudaSuccess; };
    ATHANOR_CUDA_DRIVER(ATHANOR_SUCCEED)
#undef ATHANOR_SUCCEED
    d.DeviceGetCount = [](int* count) -> CudaResult { return *count = 1, kCudaSuccess; };
    d.DriverGetVersion = [](int* version) -> CudaResult { return *version = 13000, kCudaSuccess; };
    d.DeviceGetAttribute = [](int* value, int attribute, CudaDeviceHandle) -> CudaResult {
      *value = attribute == kCudaComputeMajor               ? 9
               : attribute == kCudaMultiprocessors          ? 132
               : attribute == kCudaThreadsPerMultiprocessor ? 2048
                                                            : 0;
      return kCudaSuccess;
    };
    d.DeviceTotalMem = [](size_t* bytes, CudaDeviceHandle) -> CudaResult {
      return *bytes = size_t{1} << 36, kCudaSuccess;
    };
    d.MemAlloc = [](CudaPointer* pointer, size_t bytes) -> CudaResult {
      *pointer = reinterpret_cast<CudaPointer>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
      return kCudaSuccess;
    };
    d.MemFree = [](CudaPointer pointer) -> CudaResult {
      std::free(reinterpret_cast<void*>(pointer));
      return kCudaSuccess;
    };
    d.MemHostAlloc = [](void** pointer, size_t bytes, unsigned) -> CudaResult {
      return *pointer = std::malloc(bytes), kCudaSuccess;
    };
    d.MemFreeHost = [](void* pointer) -> CudaResult { return std::free(pointer), kCudaSuccess; };
    d.CopyToDevice = [](CudaPointer to, const void* from, size_t bytes, CudaStream) -> CudaResult {
      std::memcpy(reinterpret_cast<void*>(to), from, bytes);
      return kCudaSuccess;
    };
    d.CopyToHost = [](void* to, CudaPointer from, size_t bytes, CudaStream) -> CudaResult {
      std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
      return kCudaSuccess;
    };
    d.CopyOnDevice = [](CudaPointer to, CudaPointer from, size_t bytes, CudaStream) -> CudaResult {
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
      return kCudaSuccess;
    };
    d.FillBytes = [](CudaPointer to, unsigned char value, size_t bytes, CudaStream) -> CudaResult {
      std::memset(reinterpret_cast<void*>(to), value, bytes);
      return kCudaSuccess;
    };
    return d;
  }();
  return driver;
}

// Returns some whole object; none of it is run.
inline std::string EmptyObject() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  return {std::istreambuf_iterator<char>(self), std::istreambuf_iterator<char>()};
}

// Rows b, 1 to 64, of 64 bytes: an input goes through `steps` steps, each of which reads the one
// before it and the input, to an output. With `turns`, a loop repeats the last step so often.
inline v1::Plan ChainPlan(int steps, int turns = 0) {
  const std::string rows =
      "dtype: 'u8' bytes { terms { coefficient: 64 factors { symbol: 'b' } } } "
      "shape { terms { coefficient: 1 factors { symbol: 'b' } } } "
      "shape { terms { coefficient: 64 } } ";
  std::string text = absl::StrCat(
      "format: ", turns > 0 ? 2 : 1,
      " plan_id: 'p-0' dims { name: 'b' min: 1 max: 64 } kernels { name: 'empty' } ",
      "buffers { kind: INPUT name: 'x' ", rows, "} buffers { kind: OUTPUT name: 'y' ", rows, "} ");
  for (int i = 0; i + 1 < steps; ++i) {
    absl::StrAppend(&text, "buffers { kind: ARENA arena_offset: ", 4096 * i, " ", rows, "} ");
  }
  for (int i = 0; i < steps; ++i) {
    absl::StrAppend(&text, "run { kernel: 0 label: 'step' buffers: [0, ", i == 0 ? 0 : i + 1, ", ",
                    i + 1 == steps ? 1 : i + 2,
                    "] sizes { terms { coefficient: 1 factors { symbol: 'b' } } } "
                    "grid { terms { coefficient: 1 factors { symbol: 'b' } } } } ");
  }
  if (turns > 0) {
    absl::StrAppend(&text, "loops { first: ", steps - 1,
                    " steps: 1 count { terms { coefficient: ", turns, " } } } ");
  }
  absl::StrAppend(&text, "outputs { name: 'y' buffer: 1 } arena_bytes: ", 4096 * steps);
  v1::Plan plan;
  if (!google::protobuf::TextFormat::ParseFromString(text, &plan)) plan.Clear();
  return plan;
}

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CUDA_EMPTY_DRIVER_TESTING_H_
