// Measures rates: the bytes and operations that a kernel must move and do, over the time of events.
#include <algorithm>
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

// Gives datasheet rates, for shares: leads, not measurements.
double PeakBytesPerMs(const Gpu& gpu) {
  // Two transfers a cycle.
  return 2.0 * gpu.Attribute(kCudaMemoryClockKilohertz) * gpu.Attribute(kCudaMemoryBusBits) / 8;
}
// Returns operations, two a multiply-add, per cycle and multiprocessor; dense, f16 and bf16.
double MmaOperations(const Gpu& gpu) {
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
  more["rounds"] = timing.rounds;
  more["largest_clock_change"] = timing.largest_change;
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
  ASSIGN_OR_RETURN(const CudaFunction around, gpu.Kernel("floors.cu", "read_around"));
  ASSIGN_OR_RETURN(const CudaFunction write, gpu.Kernel("floors.cu", "write_all"));
  ASSIGN_OR_RETURN(const CudaFunction copy, gpu.Kernel("floors.cu", "copy_all"));
  const Grid grid = {static_cast<unsigned>(gpu.multiprocessors()) * 8, kThreads};
  RETURN_IF_ERROR(gpu.Launch(noise, grid, from, uint64_t{kLarge / 4}));
  const uint64_t words = kLarge / 16;
  struct Case {
    const char* question;
    double bytes;
    absl::FunctionRef<absl::Status()> work;
    bool over_last = false;  // the answer is its rate over that of the case before, no share
  };
  double kernel_ms = 0;
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
                          Case{"floors.driver_copy", 2.0 * kLarge, engine, true}}) {
    ASSIGN_OR_RETURN(const Timing timing, gpu.Time(kSamples, 1, one.work));
    Json details =
        Details(timing, {{"gb_per_s", one.bytes / timing.ms.value / 1e6}, {"peak", peak / 1e6}});
    if (one.over_last) {
      run.report().Answer(one.question, Share(timing.ms, kernel_ms, 1), std::move(details));
    } else {
      run.report().Answer(one.question, Share(timing.ms, one.bytes, peak), std::move(details));
    }
    kernel_ms = timing.ms.value;  // the copying kernel's, when the driver's turn comes
  }

  // Reads the same bytes in all, in one launch, from more or less memory.
  const int64_t row = int64_t{16} * grid.blocks * grid.threads;  // one load of each thread
  const int loads = static_cast<int>(kLarge / row / 4 * 4);
  double inside = 0, outside = 0;
  Json sizes;
  for (int64_t mib : {4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 1024}) {
    const int64_t bytes = mib * kMiB;
    const auto work = [&] {
      return gpu.Launch(around, grid, from, uint64_t(bytes) / 16, loads, to);
    };
    ASSIGN_OR_RETURN(const Timing timing, gpu.Time(9, 1, work));
    const double rate = static_cast<double>(row * loads) / timing.ms.value / 1e6;
    sizes[std::to_string(mib) + " MiB"] = rate;
    if (bytes <= gpu.Attribute(kCudaL2Bytes) / 2) inside = std::max(inside, rate);
    outside = rate;
  }
  run.report().Answer("floors.l2_gain", inside / outside, {{"gb_per_s", std::move(sizes)}});
  gpu.FreeAll();
  return absl::OkStatus();
}

// Each launch stores its clock in a slot of its own; slots are used round and round.
constexpr size_t kClocks = 128;

struct Clocks {
  double lowest = 0, highest = 0;  // GHz
};
// Returns the clocks of the last `count` of `launches`.
absl::StatusOr<Clocks> ClocksOf(Gpu& gpu, CudaPointer took, size_t launches, size_t count) {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> all, gpu.Download<uint64_t>(took, 2 * kClocks));
  std::vector<double> ghz;
  for (size_t i = launches - std::min({count, launches, kClocks}); i < launches; ++i) {
    const uint64_t cycles = all[i % kClocks * 2], ns = all[i % kClocks * 2 + 1];
    if (cycles == 0 || ns == 0) return absl::InternalError("the device's clock stands still");
    ghz.push_back(static_cast<double>(cycles) / static_cast<double>(ns));
  }
  const auto [lowest, highest] = std::minmax_element(ghz.begin(), ghz.end());
  return Clocks{*lowest, *highest};
}

absl::Status Arithmetic(PartRun& run, Gpu& gpu) {
  ASSIGN_OR_RETURN(const CudaPointer out, gpu.Allocate(64));
  ASSIGN_OR_RETURN(const CudaPointer took, gpu.Allocate(2 * kClocks * sizeof(uint64_t)));
  const unsigned units = gpu.multiprocessors();
  struct Case {
    const char* question;
    const char* kernel;
    bool f32;
    int steps;
    unsigned blocks, threads;
    double per_thread_step;  // operations
    double per_unit_cycle;   // of the datasheet
  };
  double change = 0;
  Json changes;
  for (const Case& one :
       {Case{"floors.f32_share", "fma_f32", true, 1024, 8, 256, 2.0 * 8 * 16, 2.0 * 128},
        Case{"floors.mma_f16_share", "mma_f16", false, 8192, 4, 256, 8 * 2.0 * 16 * 8 * 16 / 32,
             MmaOperations(gpu)},
        Case{"floors.mma_bf16_share", "mma_bf16", false, 8192, 4, 256, 8 * 2.0 * 16 * 8 * 16 / 32,
             MmaOperations(gpu)}}) {
    ASSIGN_OR_RETURN(const CudaFunction kernel, gpu.Kernel("floors.cu", one.kernel));
    const Grid grid = {units * one.blocks, one.threads};
    size_t launches = 0;
    const auto work = [&] {
      const CudaPointer slot = took + launches++ % kClocks * 2 * sizeof(uint64_t);
      if (one.f32) return gpu.Launch(kernel, grid, out, slot, one.steps, 0.9999f, 0.5f);
      return gpu.Launch(kernel, grid, out, slot, one.steps);
    };
    ASSIGN_OR_RETURN(const Timing timing, gpu.Time(kSamples, 1, work));
    ASSIGN_OR_RETURN(const Clocks all,
                     ClocksOf(gpu, took, launches, size_t{kSamples} * timing.rounds));
    ASSIGN_OR_RETURN(const Clocks kept, ClocksOf(gpu, took, launches, kSamples));
    const double operations =
        one.per_thread_step * one.steps * static_cast<double>(grid.blocks) * grid.threads;
    // At the clock there was while all of the chip multiplied, not the one of the datasheet.
    const double peak = one.per_unit_cycle * units * (kept.lowest + kept.highest) / 2 * 1e6;
    run.report().Answer(one.question, Share(timing.ms, operations, peak),
                        Details(timing, {{"tflops", operations / timing.ms.value / 1e9},
                                         {"ghz_while_multiplying", {kept.lowest, kept.highest}}}));
    changes[one.kernel] = all.highest / all.lowest - 1;
    change = std::max(change, all.highest / all.lowest - 1);
  }
  // Among all rounds: the one that was kept was chosen for its steady clock.
  run.report().Answer("floors.clock_change", change, {{"by_kernel", std::move(changes)}});
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
  // A group that fails leaves the others their answers.
  for (const auto& part : {Bandwidth, Arithmetic, Launches, HostCopies}) {
    if (absl::Status status = part(run, *gpu); !status.ok()) {
      run.report().Failed("floors", status.ToString());
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor
