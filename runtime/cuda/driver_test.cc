#include "runtime/cuda/driver.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

TEST(CudaDriverTest, AMachineWithoutADriverIsToldSo) {
  const absl::Status status = CudaDriver::Load("libno-such-driver.so.1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("this machine has no CUDA driver"));
  EXPECT_THAT(status.message(), HasSubstr("libno-such-driver.so.1"));
}

TEST(CudaDriverTest, ALibraryWithoutAFunctionIsRefusedByName) {
  const absl::Status status = CudaDriver::Load("libm.so.6").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("libm.so.6 has no cuInit"));
}

CudaDriver WithNames() {
  CudaDriver cuda;
  cuda.GetErrorName = [](CudaResult result, const char** name) -> CudaResult {
    *name = result == kCudaIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : nullptr;
    return *name ? kCudaSuccess : kCudaInvalidValue;
  };
  cuda.GetErrorString = [](CudaResult result, const char** text) -> CudaResult {
    *text = result == kCudaIllegalAddress ? "an illegal memory access" : nullptr;
    return *text ? kCudaSuccess : kCudaInvalidValue;
  };
  return cuda;
}

TEST(CudaStatusTest, CodesSayWhatToDoNext) {
  const CudaDriver cuda = WithNames();
  EXPECT_TRUE(CudaStatus(cuda, kCudaSuccess, "cuInit").ok());
  EXPECT_EQ(CudaStatus(cuda, kCudaIllegalAddress, "cuStreamSynchronize"),
            absl::UnavailableError("cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): an "
                                   "illegal memory access"));
  EXPECT_EQ(CudaStatus(cuda, kCudaOutOfMemory, "cuMemAlloc").code(),
            absl::StatusCode::kResourceExhausted);
  for (CudaResult result : {kCudaNoDevice, kCudaStubLibrary, kCudaDeviceNotLicensed}) {
    EXPECT_EQ(CudaStatus(cuda, result, "cuInit").code(), absl::StatusCode::kFailedPrecondition)
        << result;
  }
  EXPECT_EQ(CudaStatus(cuda, 12345, "cuInit"),
            absl::InternalError("cuInit: unknown error (12345)"));
}

TEST(CudaStatusTest, OnlyAFaultedContextIsLost) {
  for (CudaResult result :
       {kCudaIllegalAddress, kCudaLaunchFailed, kCudaIllegalInstruction, kCudaContained,
        kCudaContextIsDestroyed, kCudaTensorMemoryLeak, kCudaUnknown}) {
    EXPECT_TRUE(IsStickyError(result)) << result;
  }
  for (CudaResult result : {kCudaSuccess, kCudaOutOfMemory, kCudaNotReady, kCudaInvalidValue}) {
    EXPECT_FALSE(IsStickyError(result)) << result;
  }
}

TEST(CudaStatusTest, AKernelIsToBlameForItsFaultsOnly) {
  for (CudaResult result :
       {kCudaIllegalAddress, kCudaLaunchTimeout, kCudaAssert, kCudaHardwareStackError,
        kCudaIllegalInstruction, kCudaMisalignedAddress, kCudaInvalidAddressSpace, kCudaInvalidPc,
        kCudaLaunchFailed, kCudaTensorMemoryLeak, kCudaUnknown}) {
    EXPECT_TRUE(IsStickyError(result)) << result;
    EXPECT_TRUE(IsKernelFault(result)) << result;
  }
  for (CudaResult result :
       {kCudaEccUncorrectable, kCudaNvlinkUncorrectable, kCudaContained, kCudaContextIsDestroyed,
        kCudaMpsClientTerminated, kCudaMpsConnectionFailed, kCudaDeviceUnavailable, kCudaSuccess,
        kCudaOutOfMemory}) {
    EXPECT_FALSE(IsKernelFault(result)) << result;
  }
}

}  // namespace
}  // namespace athanor
