#include "server/search/open_device.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Gpu {
  int compute = 80;
  int mode = kCudaComputeModeDefault;
  size_t free = size_t{8} << 30;
  bool compiler = true;
};
std::vector<Gpu>& Gpus() {
  static auto& gpus = *new std::vector<Gpu>;
  return gpus;
}
int current = 0, retained = 0;

// A driver that shows Gpus(), and does nothing else with them.
const CudaDriver* Driver() {
  static CudaDriver driver;
  driver.Init = [](unsigned) -> CudaResult { return kCudaSuccess; };
  driver.DriverGetVersion = [](int* version) -> CudaResult {
    return *version = 13000, kCudaSuccess;
  };
  driver.GetErrorName = [](CudaResult, const char** name) -> CudaResult {
    return *name = "CUDA_ERROR", kCudaSuccess;
  };
  driver.GetErrorString = driver.GetErrorName;
  driver.DeviceGetCount = [](int* count) -> CudaResult {
    return *count = static_cast<int>(Gpus().size()), kCudaSuccess;
  };
  driver.DeviceGet = [](CudaDeviceHandle* handle, int ordinal) -> CudaResult {
    return *handle = ordinal, kCudaSuccess;
  };
  driver.DeviceGetName = [](char* name, int bytes, CudaDeviceHandle) -> CudaResult {
    return std::strncpy(name, "a GPU", bytes), kCudaSuccess;
  };
  driver.DeviceGetPciBusId = [](char* id, int bytes, CudaDeviceHandle) -> CudaResult {
    return std::strncpy(id, "0000:02:00.0", bytes), kCudaSuccess;
  };
  driver.DeviceGetAttribute = [](int* value, int which, CudaDeviceHandle handle) -> CudaResult {
    const Gpu& gpu = Gpus()[handle];
    *value = which == kCudaComputeMajor   ? gpu.compute / 10
             : which == kCudaComputeMinor ? gpu.compute % 10
             : which == kCudaComputeMode  ? gpu.mode
                                          : 4;
    return kCudaSuccess;
  };
  driver.DeviceTotalMem = [](size_t* bytes, CudaDeviceHandle) -> CudaResult {
    return *bytes = size_t{16} << 30, kCudaSuccess;
  };
  driver.PrimaryCtxRetain = [](CudaContext* context, CudaDeviceHandle handle) -> CudaResult {
    *context = reinterpret_cast<CudaContext>(&Gpus()[handle]);
    return ++retained, kCudaSuccess;
  };
  driver.PrimaryCtxRelease = [](CudaDeviceHandle) -> CudaResult {
    return --retained, kCudaSuccess;
  };
  driver.CtxSetCurrent = [](CudaContext context) -> CudaResult {
    current = static_cast<int>(reinterpret_cast<Gpu*>(context) - Gpus().data());
    return kCudaSuccess;
  };
  driver.MemGranularity = [](size_t* bytes, const CudaAllocationProperties*, int) -> CudaResult {
    return *bytes = 2 << 20, kCudaSuccess;
  };
  driver.MemGetInfo = [](size_t* free, size_t* total) -> CudaResult {
    *free = Gpus()[current].free;
    return *total = size_t{16} << 30, kCudaSuccess;
  };
  return &driver;
}

absl::StatusOr<const CudaDriver*> TheDriver() { return Driver(); }
absl::Status HasCompiler(int ordinal) {
  return Gpus()[ordinal].compiler ? absl::OkStatus() : absl::FailedPreconditionError("no NVRTC");
}
const GpuSupport kSupport = {.driver = TheDriver, .compiler = HasCompiler};

absl::StatusOr<OpenedDevice> Open(const std::string& asked, std::vector<Gpu> gpus) {
  Gpus() = std::move(gpus);
  return OpenDevice(asked, {.threads = 1}, kSupport);
}

TEST(OpenDeviceTest, TheCpuNeedsNoDriver) {
  const absl::StatusOr<OpenedDevice> cpu =
      OpenDevice("cpu", {.threads = 1},
                 {.driver = []() -> absl::StatusOr<const CudaDriver*> {
                    ADD_FAILURE() << "asked for a driver";
                    return absl::FailedPreconditionError("no driver");
                  },
                  .compiler = HasCompiler});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ(cpu->name, "cpu");
  EXPECT_EQ(cpu->device->name(), "cpu");
  EXPECT_EQ(cpu->gpu, nullptr);
}

TEST(OpenDeviceTest, AutoTakesTheFirstThatIsUsable) {
  const absl::StatusOr<OpenedDevice> opened =
      Open("auto", {{.compute = 75}, {.mode = 3}, {.free = 5 << 20}, {.compiler = false}, {}, {}});
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->name, "cuda:4");
  ASSERT_NE(opened->gpu, nullptr);
  EXPECT_EQ(opened->gpu, opened->device.get());
  EXPECT_THAT(opened->reason,
              AllOf(HasSubstr("cuda:0: a GPU is sm_75"), HasSubstr("cuda:1: its compute mode is 3"),
                    HasSubstr("cuda:2: 5242880 of 17179869184 bytes are free"),
                    HasSubstr("device cuda:3: no NVRTC"), HasSubstr("cuda:5 on: not tried")));
  EXPECT_EQ(retained, 1);  // those that were left are given back
}

TEST(OpenDeviceTest, AutoIsTheCpuWhereNoGpuIsUsable) {
  for (const std::vector<Gpu>& gpus : {std::vector<Gpu>{}, std::vector<Gpu>{{.compute = 61}}}) {
    const absl::StatusOr<OpenedDevice> opened = Open("auto", gpus);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->name, "cpu");
    EXPECT_EQ(opened->device->name(), "cpu");
    EXPECT_EQ(opened->gpu, nullptr);
    EXPECT_THAT(opened->reason,
                HasSubstr(gpus.empty() ? "the CUDA driver shows no GPU" : "a GPU is sm_61"));
  }
  const absl::StatusOr<OpenedDevice> none =
      OpenDevice("auto", {.threads = 1},
                 {.driver = []() -> absl::StatusOr<const CudaDriver*> {
                    return absl::FailedPreconditionError("this machine has no CUDA driver");
                  },
                  .compiler = HasCompiler});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->name, "cpu");
  EXPECT_EQ(none->reason, "this machine has no CUDA driver");
}

TEST(OpenDeviceTest, SeveralInTheirOrder) {
  Gpus() = {{}, {.compute = 90}};
  const auto opened = OpenDevices("cuda:1,cpu,cuda:0", {.threads = 1}, kSupport);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_EQ(opened->size(), 3u);
  EXPECT_EQ((*opened)[0].name, "cuda:1");
  EXPECT_EQ((*opened)[0].gpu->properties().compute, 90);
  EXPECT_EQ((*opened)[1].name, "cpu");
  EXPECT_EQ((*opened)[2].name, "cuda:0");
  EXPECT_THAT(std::string(OpenDevices("cpu,cuda:7", {.threads = 1}, kSupport).status().message()),
              HasSubstr("cuda:7: there is no such GPU"));
}

TEST(OpenDeviceTest, LimitsAreTheVendors) {
  CudaProperties h100;
  h100.compute = 90;
  h100.multiprocessors = 132;
  h100.core_hertz = 1.98e9;
  h100.memory_hertz = 2.619e9;
  h100.memory_bits = 5120;
  const auto limits = LimitsOf(h100);
  ASSERT_TRUE(limits.has_value());
  EXPECT_NEAR(limits->read_bytes_per_second(), 3.35e12, 0.01e12);
  EXPECT_NEAR(limits->f32_flops_per_second(), 66.9e12, 0.1e12);
  EXPECT_GT(limits->cache_bytes_per_second(), limits->read_bytes_per_second());
  h100.memory_hertz = 0;
  EXPECT_FALSE(LimitsOf(h100).has_value());
}

TEST(OpenDeviceTest, ANamedGpuIsTakenOrRefused) {
  // Its limit of memory says how little there is; what the cache has needs no compiler.
  const absl::StatusOr<OpenedDevice> small =
      Open("cuda:1", {{}, {.free = 5 << 20, .compiler = false}});
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->name, "cuda:1");
  EXPECT_EQ(small->reason, "");
  EXPECT_EQ(
      Open("cuda:2", {{}, {}}).status(),
      absl::FailedPreconditionError("device cuda:2: there is no such GPU; the driver shows 2, "
                                    "numbered from cuda:0"));
  EXPECT_THAT(std::string(Open("cuda:0", {{.compute = 75}, {}}).status().message()),
              HasSubstr("device cuda:0: a GPU is sm_75; kernels need sm_80"));
}

}  // namespace
}  // namespace athanor
