#include "runtime/cuda/driver.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {
namespace {

absl::StatusOr<std::unique_ptr<CudaDriver>> Open(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("this machine has no CUDA driver: ", dlerror()));
  }
  auto driver = std::make_unique<CudaDriver>();
  struct Entry {
    const char* symbol;
    void** member;
  };
#define ATHANOR_ENTRY(member, symbol, arguments) \
  {symbol, reinterpret_cast<void**>(&driver->member)},
  const Entry entries[] = {ATHANOR_CUDA_DRIVER(ATHANOR_ENTRY)};
#undef ATHANOR_ENTRY
  for (const Entry& entry : entries) {
    *entry.member = dlsym(library, entry.symbol);
    if (*entry.member == nullptr) {
      dlclose(library);
      return absl::FailedPreconditionError(absl::StrCat("the CUDA driver ", file, " has no ",
                                                        entry.symbol,
                                                        "; drivers from 525 (CUDA 12) have it"));
    }
  }
  return driver;
}

struct Meaning {
  CudaResult result;
  absl::StatusCode code;
  bool sticky;
  bool of_kernel = false;  // sticky, and what a kernel did can have led to it
};

// Any other result is INTERNAL; its context may be usable or not.
constexpr Meaning kMeanings[] = {
    {kCudaInvalidValue, absl::StatusCode::kInvalidArgument, false},
    {kCudaNotFound, absl::StatusCode::kInvalidArgument, false},
    {kCudaOutOfMemory, absl::StatusCode::kResourceExhausted, false},
    {kCudaLaunchOutOfResources, absl::StatusCode::kResourceExhausted, false},
    {kCudaNotInitialized, absl::StatusCode::kFailedPrecondition, false},
    {kCudaStubLibrary, absl::StatusCode::kFailedPrecondition, false},
    {kCudaNoDevice, absl::StatusCode::kFailedPrecondition, false},
    {kCudaInvalidDevice, absl::StatusCode::kFailedPrecondition, false},
    {kCudaDeviceNotLicensed, absl::StatusCode::kFailedPrecondition, false},
    {kCudaInvalidImage, absl::StatusCode::kFailedPrecondition, false},
    {kCudaNoBinaryForGpu, absl::StatusCode::kFailedPrecondition, false},
    {kCudaSystemDriverMismatch, absl::StatusCode::kFailedPrecondition, false},
    {kCudaCompatNotSupported, absl::StatusCode::kFailedPrecondition, false},
    {kCudaDeviceUnavailable, absl::StatusCode::kUnavailable, false},
    {kCudaOperatingSystem, absl::StatusCode::kUnavailable, false},
    {kCudaSystemNotReady, absl::StatusCode::kUnavailable, false},
    {kCudaMpsConnectionFailed, absl::StatusCode::kUnavailable, false},
    {kCudaMpsServerNotReady, absl::StatusCode::kUnavailable, false},
    {kCudaMpsMaxClientsReached, absl::StatusCode::kUnavailable, false},
    {kCudaMpsMaxConnectionsReached, absl::StatusCode::kUnavailable, false},
    {kCudaMpsClientTerminated, absl::StatusCode::kUnavailable, true},
    {kCudaNvlinkUncorrectable, absl::StatusCode::kUnavailable, true},
    {kCudaEccUncorrectable, absl::StatusCode::kUnavailable, true},
    {kCudaContained, absl::StatusCode::kUnavailable, true},
    {kCudaContextIsDestroyed, absl::StatusCode::kUnavailable, true},
    {kCudaIllegalAddress, absl::StatusCode::kUnavailable, true, true},
    {kCudaLaunchTimeout, absl::StatusCode::kUnavailable, true, true},
    {kCudaAssert, absl::StatusCode::kUnavailable, true, true},
    {kCudaHardwareStackError, absl::StatusCode::kUnavailable, true, true},
    {kCudaIllegalInstruction, absl::StatusCode::kUnavailable, true, true},
    {kCudaMisalignedAddress, absl::StatusCode::kUnavailable, true, true},
    {kCudaInvalidAddressSpace, absl::StatusCode::kUnavailable, true, true},
    {kCudaInvalidPc, absl::StatusCode::kUnavailable, true, true},
    {kCudaLaunchFailed, absl::StatusCode::kUnavailable, true, true},
    {kCudaTensorMemoryLeak, absl::StatusCode::kUnavailable, true, true},
    {kCudaUnknown, absl::StatusCode::kUnavailable, true, true},
};

Meaning MeaningOf(CudaResult result) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.result == result) return meaning;
  }
  return {result, absl::StatusCode::kInternal, false};
}

}  // namespace

absl::StatusOr<const CudaDriver*> CudaDriver::Load(const char* file) {
  static Mutex mutex;
  static std::map<std::string, std::unique_ptr<CudaDriver>>* const drivers =
      new std::map<std::string, std::unique_ptr<CudaDriver>>;
  MutexLock lock(mutex);
  std::unique_ptr<CudaDriver>& driver = (*drivers)[file];
  if (driver == nullptr) {
    absl::StatusOr<std::unique_ptr<CudaDriver>> opened = Open(file);
    if (!opened.ok()) return opened.status();
    driver = *std::move(opened);
  }
  return driver.get();
}

bool IsStickyError(CudaResult result) { return MeaningOf(result).sticky; }

bool IsKernelFault(CudaResult result) { return MeaningOf(result).of_kernel; }

absl::Status CudaStatus(const CudaDriver& cuda, CudaResult result, absl::string_view call) {
  if (result == kCudaSuccess) return absl::OkStatus();
  const char *name = nullptr, *text = nullptr;
  cuda.GetErrorName(result, &name);
  cuda.GetErrorString(result, &text);
  return absl::Status(MeaningOf(result).code,
                      absl::StrCat(call, ": ", name ? name : "unknown error", " (", result, ")",
                                   text ? ": " : "", text ? text : ""));
}

}  // namespace athanor
