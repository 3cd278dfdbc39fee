// How much times by events differ where the work does not.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

constexpr int kSamples = 200;

// Half of all samples lie this share of the median apart.
double MiddleHalf(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  return (samples[3 * n / 4] - samples[n / 4]) / samples[n / 2];
}

// Milliseconds between the events around `work`, once for each sample.
absl::StatusOr<std::vector<double>> Times(Gpu& gpu, absl::FunctionRef<absl::Status()> work) {
  const CudaDriver& cuda = gpu.cuda();
  CudaEvent begin = nullptr, end = nullptr;
  RETURN_IF_CUDA_ERROR(cuda, EventCreate(&begin, 0));
  RETURN_IF_CUDA_ERROR(cuda, EventCreate(&end, 0));
  std::vector<double> times;
  for (int i = -20; i < kSamples; ++i) {
    RETURN_IF_CUDA_ERROR(cuda, EventRecord(begin, gpu.stream()));
    RETURN_IF_ERROR(work());
    RETURN_IF_CUDA_ERROR(cuda, EventRecord(end, gpu.stream()));
    RETURN_IF_CUDA_ERROR(cuda, EventSynchronize(end));
    float ms = 0;
    RETURN_IF_CUDA_ERROR(cuda, EventElapsedTime(&ms, begin, end));
    if (i >= 0) times.push_back(ms);
  }
  RETURN_IF_CUDA_ERROR(cuda, EventDestroy(begin));
  RETURN_IF_CUDA_ERROR(cuda, EventDestroy(end));
  return times;
}

}  // namespace

absl::Status RunEvents(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  ASSIGN_OR_RETURN(std::vector<double> empty, Times(*gpu, [] { return absl::OkStatus(); }));
  for (double& ms : empty) ms *= 1e3;
  run.report().Answer("events.empty_us", MedianOf(empty));

  ASSIGN_OR_RETURN(const CudaFunction spin, gpu->Kernel("probes.cu", "spin"));
  ASSIGN_OR_RETURN(const double ghz, gpu->Gigahertz());
  if (ghz <= 0) return absl::InternalError("the device's clock stands still");
  Json lengths;
  double of_twenty = 0;
  for (const int us : {5, 20, 100, 1000}) {
    const auto cycles = static_cast<uint64_t>(us * 1e3 * ghz);
    ASSIGN_OR_RETURN(const std::vector<double> times,
                     Times(*gpu, [&] { return gpu->Launch(spin, {}, cycles, CudaPointer{0}); }));
    lengths[absl::StrCat(us, " us")] = {{"ms", Spread(MedianOf(times))},
                                        {"middle_half", MiddleHalf(times)}};
    if (us == 20) of_twenty = MiddleHalf(times);
  }
  run.report().Answer("events.noise", of_twenty, {{"lengths", std::move(lengths)}});

  // Two versions that are the same must not look different: medians of samples taken in turn.
  const auto cycles = static_cast<uint64_t>(20e3 * ghz);
  double apart = 0;
  for (int round = 0; round < 3; ++round) {
    const auto work = [&] { return gpu->Launch(spin, {}, cycles, CudaPointer{0}); };
    ASSIGN_OR_RETURN(const std::vector<double> a, Times(*gpu, work));
    ASSIGN_OR_RETURN(const std::vector<double> b, Times(*gpu, work));
    apart = std::max(apart, std::abs(PairedRatio(a, b).value - 1));
  }
  run.report().Answer("events.same_apart", apart);
  return absl::OkStatus();
}

}  // namespace athanor
