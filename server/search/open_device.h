// Opens the devices that execute models: those that --device names, or the GPU that `auto` finds.
//
//   ASSIGN_OR_RETURN(OpenedDevice opened,
//                    OpenDevice("auto", {.threads = 4},
//                               {.driver = [] { return CudaDriver::Load(); },
//                                .compiler = [](int gpu) { return FindCompiler(gpu); }}));
//   if (opened.gpu != nullptr) opened.gpu->properties();
#ifndef ATHANOR_SERVER_SEARCH_OPEN_DEVICE_H_
#define ATHANOR_SERVER_SEARCH_OPEN_DEVICE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/driver.h"
#include "runtime/device/device.h"

namespace athanor {

// `auto` leaves a GPU with less free memory to others: models would not fit.
inline constexpr int64_t kLeastFreeOnGpu = int64_t{1} << 30;

struct OpenedDevice {
  std::string name;  // "cpu" or "cuda:0"
  std::unique_ptr<Device> device;
  CudaDevice* gpu = nullptr;  // `device`, if it is one
  std::string reason;         // of `auto`: why it is none of the GPUs before it
};

// Answers for what a GPU needs.
struct GpuSupport {
  // Called only if a GPU may be needed.
  absl::FunctionRef<absl::StatusOr<const CudaDriver*>()> driver;
  // Says why kernels cannot be compiled for the GPU of a number, OK if they can. Called by `auto`.
  absl::FunctionRef<absl::Status(int ordinal)> compiler;
};

// `asked` is one name of --device. Named GPUs that are missing or unusable are errors, as of
// CudaDevice::Create; `auto` takes the first GPU that is usable and has a compiler, else the CPU.
absl::StatusOr<OpenedDevice> OpenDevice(absl::string_view asked, const ThreadPoolOptions& threads,
                                        const GpuSupport& gpus);

// Opens all that --device names, separated by commas, in that order; logs what `auto` chose.
absl::StatusOr<std::vector<OpenedDevice>> OpenDevices(absl::string_view asked,
                                                      const ThreadPoolOptions& threads,
                                                      const GpuSupport& gpus);

// Returns what a GPU reaches by its clocks and widths, as its vendor counts: its memory's bits at
// both edges, a multiply-add per lane and cycle. nullopt: its driver does not tell its clocks.
std::optional<internal::MachineReply> LimitsOf(const CudaProperties& gpu);

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_OPEN_DEVICE_H_
