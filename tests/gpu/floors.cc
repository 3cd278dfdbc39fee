// Rates by the bytes and operations that a kernel must move and do, over the time of events.
#include <chrono>
#include <limits>

#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLarge = 2048 * kMiB;  // many times any L2
constexpr int kSamples = 15;
constexpr unsigned kThreads = 256;

// Datasheet rates, for shares: leads, not measurements.
double PeakBytesPerMs(const Gpu& gpu) {
  // Two transfers a cycle.
  return 2.0 * gpu.Attribute(kCudaMemoryClockKilohertz) * gpu.Attribute(kCudaMemoryBusBits) / 8;
}
double MmaPerCycle(const Gpu& gpu) {  // dense, f16 and bf16, of one multiprocessor
  const int major = gpu.Attribute(kCudaComputeMajor);
  return major >= 10                             ? 8192
         : major == 9                            ? 4096
         : gpu.Attribute(kCudaComputeMinor) == 0 ? 2048
                                                 : 1024;
}

Json Details(const Timing& timing, Json more) {
  more["ms"] = Spread(timing.ms);
  more["ghz"] = {timing.ghz_before, timing.ghz_after};
  more["steady"] = timing.Steady();
  return more;
}

// Turns times into `amount` over time over `peak` a millisecond; the order of the ends turns.
Median Share(const Median& ms, double amount, double peak) {
  return {amount / ms.value / peak, amount / ms.high / peak, amount / ms.low / peak, ms.samples};
}

absl::Status Bandwidth(PartRun& run, Gpu& gpu) {
  const double peak = PeakBytesPerMs(gpu);
  if (peak == 0) return absl::FailedPreconditionError("the driver tells no memory clock");
  ASSIGN_OR_RETURN(const CudaPointer from, gpu.Allocate(kLarge));
  ASSIGN_OR_RETURN(const CudaPointer to, gpu.Allocate(kLarge));
  ASSIGN_OR_RETURN(const CudaFunction noise, gpu.Kernel("floors.cu", "fill_noise"));
  ASSIGN_OR_RETURN(const CudaFunction read, gpu.Kernel("floors.cu", "read_all"));
  ASSIGN_OR_RETURN(const CudaFunction write, gpu.Kernel("floors.cu", "write_all"));
  ASSIGN_OR_RETURN(const CudaFunction copy, gpu.Kernel("floors.cu", "copy_all"));
  const Grid grid = {static_cast<unsigned>(gpu.multiprocessors()) * 8, kThreads};
  RETURN_IF_ERROR(gpu.Launch(noise, grid, from, uint64_t{kLarge / 4}));
  const uint64_t words = kLarge / 16;
  struct Case {
    const char* question;
    double bytes;
    absl::FunctionRef<absl::Status()> work;
  };
  const auto reads = [&] { return gpu.Launch(read, grid, from, words, to); };
  const auto writes = [&] { return gpu.Launch(write, grid, to, words, 77u); };
  const auto copies = [&] { return gpu.Launch(copy, grid, from, to, words); };
  const auto engine = [&]() -> absl::Status {
    RETURN_IF_CUDA_ERROR(gpu.cuda(), CopyOnDevice(to, from, kLarge, gpu.stream()));
    return absl::OkStatus();
  };
  for (const Case& one : {Case{"floors.read_share", 1.0 * kLarge, reads},
                          Case{"floors.write_share", 1.0 * kLarge, writes},
                          Case{"floors.copy_share", 2.0 * kLarge, copies},
                          Case{"floors.driver_copy_share", 2.0 * kLarge, engine}}) {
    ASSIGN_OR_RETURN(const Timing timing, gpu.Time(kSamples, 1, one.work));
    run.report().Answer(
        one.question, Share(timing.ms, one.bytes, peak),
        Details(timing, {{"gb_per_s", one.bytes / timing.ms.value / 1e6}, {"peak", peak / 1e6}}));
  }

  // The same bytes in all, by passes over more or less memory.
  double inside = 0, outside = 0;
  Json sizes;
  for (int64_t mib : {4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 1024}) {
    const int64_t bytes = mib * kMiB;
    const int passes = static_cast<int>(std::max<int64_t>(1, 1024 / mib));
    const auto work = [&]() -> absl::Status {
      for (int i = 0; i < passes; ++i) {
        RETURN_IF_ERROR(gpu.Launch(read, grid, from, uint64_t(bytes) / 16, to));
      }
      return absl::OkStatus();
    };
    ASSIGN_OR_RETURN(const Timing timing, gpu.Time(9, passes, work));
    const double rate = static_cast<double>(bytes) / timing.ms.value / 1e6;
    sizes[std::to_string(mib) + " MiB"] = rate;
    // Launches alone limit the smallest, so the best within half the cache counts.
    if (bytes <= gpu.Attribute(kCudaL2Bytes) / 2) inside = std::max(inside, rate);
    outside = rate;
  }
  run.report().Answer("floors.l2_gain", inside / outside, {{"gb_per_s", std::move(sizes)}});
  gpu.FreeAll();
  return absl::OkStatus();
}

absl::Status Arithmetic(PartRun& run, Gpu& gpu) {
  ASSIGN_OR_RETURN(const CudaPointer out, gpu.Allocate(64));
  const unsigned units = gpu.multiprocessors();
  struct Case {
    const char* question;
    const char* kernel;
    unsigned blocks, threads;
    double per_thread_step;  // operations
    double per_unit_cycle;   // of the datasheet
  };
  double change = 0;
  for (const Case& one : {Case{"floors.f32_share", "fma_f32", 8, 256, 2.0 * 8 * 16, 2.0 * 128},
                          Case{"floors.mma_f16_share", "mma_f16", 4, 256,
                               8 * 2.0 * 16 * 8 * 16 / 32, MmaPerCycle(gpu)},
                          Case{"floors.mma_bf16_share", "mma_bf16", 4, 256,
                               8 * 2.0 * 16 * 8 * 16 / 32, MmaPerCycle(gpu)}}) {
    ASSIGN_OR_RETURN(const CudaFunction kernel, gpu.Kernel("floors.cu", one.kernel));
    constexpr int kSteps = 8192;
    const Grid grid = {units * one.blocks, one.threads};
    const auto work = [&] {
      if (std::string_view(one.kernel) == "fma_f32") {
        return gpu.Launch(kernel, grid, out, kSteps / 8, 0.9999f, 0.5f);
      }
      return gpu.Launch(kernel, grid, out, kSteps);
    };
    ASSIGN_OR_RETURN(const Timing timing, gpu.Time(kSamples, 1, work));
    const int steps = std::string_view(one.kernel) == "fma_f32" ? kSteps / 8 : kSteps;
    const double operations =
        one.per_thread_step * steps * static_cast<double>(grid.blocks) * grid.threads;
    // At the clock there was, not the one of the datasheet.
    const double peak = one.per_unit_cycle * units * timing.ghz_after * 1e6;
    run.report().Answer(one.question, Share(timing.ms, operations, peak),
                        Details(timing, {{"tflops", operations / timing.ms.value / 1e9}}));
    change = std::max(change, std::abs(timing.ghz_after / timing.ghz_before - 1));
  }
  run.report().Answer("floors.clock_change", change);
  return absl::OkStatus();
}

absl::Status Launches(PartRun& run, Gpu& gpu) {
  ASSIGN_OR_RETURN(const CudaFunction empty, gpu.Kernel("probes.cu", "empty"));
  constexpr int kLaunches = 500;
  const auto many = [&]() -> absl::Status {
    for (int i = 0; i < kLaunches; ++i) RETURN_IF_ERROR(gpu.Launch(empty, {}));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(Timing timing, gpu.Time(kSamples, kLaunches, many));
  Median us = {timing.ms.value * 1e3, timing.ms.low * 1e3, timing.ms.high * 1e3, timing.ms.samples};
  run.report().Answer("floors.launch_us", us, Details(timing, Json::object()));
  std::vector<double> waits;
  for (int i = 0; i < 200; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(gpu.Launch(empty, {}));
    RETURN_IF_ERROR(gpu.Wait());
    waits.push_back(MsSince(begin) * 1e3);
  }
  run.report().Answer("floors.launch_wait_us", MedianOf(waits));
  return absl::OkStatus();
}

absl::Status HostCopies(PartRun& run, Gpu& gpu) {
  constexpr int64_t kMost = 256 * kMiB;
  ASSIGN_OR_RETURN(void* host, gpu.AllocatePinned(kMost));
  ASSIGN_OR_RETURN(const CudaPointer device, gpu.Allocate(kMost));
  std::memset(host, 0x5a, kMost);
  for (const bool up : {true, false}) {
    Json sizes;
    Median small, large;
    for (int64_t bytes = 4096; bytes <= kMost; bytes *= 4) {
      std::vector<double> us;
      // The first two are warming up.
      for (int i = -2; i < (bytes < kMiB ? 100 : 15); ++i) {
        const auto begin = std::chrono::steady_clock::now();
        if (up) {
          RETURN_IF_CUDA_ERROR(gpu.cuda(), CopyToDevice(device, host, bytes, gpu.stream()));
        } else {
          RETURN_IF_CUDA_ERROR(gpu.cuda(), CopyToHost(host, device, bytes, gpu.stream()));
        }
        RETURN_IF_ERROR(gpu.Wait());
        if (i >= 0) us.push_back(MsSince(begin) * 1e3);
      }
      large = MedianOf(us);
      if (bytes == 4096) small = large;
      sizes[std::to_string(bytes)] = {{"us", Spread(large)},
                                      {"gb_per_s", static_cast<double>(bytes) / large.value / 1e3}};
    }
    const double gb = kMost / 1e3;
    const Median rate = {gb / large.value, gb / large.high, gb / large.low, large.samples};
    run.report().Answer(up ? "floors.upload_us" : "floors.download_us", small);
    run.report().Answer(up ? "floors.upload_gb" : "floors.download_gb", rate,
                        {{"by_bytes", std::move(sizes)}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunFloors(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  // One that fails leaves the others their answers.
  for (const auto& part : {Bandwidth, Arithmetic, Launches, HostCopies}) {
    if (absl::Status status = part(run, *gpu); !status.ok()) {
      run.report().Failed("floors", status.ToString());
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor
