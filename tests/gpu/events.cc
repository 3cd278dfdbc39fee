// Compares times by events where the work is the same.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

constexpr int kSamples = 200;

// Returns how far apart the middle half of all samples lies, as a share of the median.
double MiddleHalf(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  return (samples[3 * n / 4] - samples[n / 4]) / samples[n / 2];
}

// Times works in turn, each once a round, after some rounds that do not count.
absl::StatusOr<std::vector<std::vector<double>>> InTurn(
    Gpu& gpu, absl::Span<const absl::FunctionRef<absl::Status()>> works) {
  std::vector<std::vector<double>> times(works.size());
  for (int i = -20; i < kSamples; ++i) {
    for (size_t at = 0; at < works.size(); ++at) {
      ASSIGN_OR_RETURN(const double ms, gpu.OnceMs(works[at]));
      if (i >= 0) times[at].push_back(ms);
    }
  }
  return times;
}

absl::StatusOr<std::vector<double>> Times(Gpu& gpu, absl::FunctionRef<absl::Status()> work) {
  ASSIGN_OR_RETURN(std::vector<std::vector<double>> times, InTurn(gpu, {work}));
  return std::move(times[0]);
}

// Returns the clock under which a kernel takes as long as it was told, within 5 %.
absl::StatusOr<double> UsableGigahertz(Gpu& gpu, CudaFunction spin) {
  constexpr double kUs = 1000;
  std::string found;
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSIGN_OR_RETURN(double ghz, gpu.Gigahertz());
    const auto work = [&] {
      return gpu.Launch(spin, {}, static_cast<uint64_t>(kUs * 1e3 * ghz), CudaPointer{0});
    };
    RETURN_IF_ERROR(gpu.WarmUp(work));
    ASSIGN_OR_RETURN(ghz, gpu.Gigahertz());  // `work` has it from now on
    ASSIGN_OR_RETURN(const std::vector<double> times, Times(gpu, work));
    const double us = MedianOf(times).value * 1e3;
    if (ghz > 0 && us > 0.95 * kUs && us < 1.05 * kUs) return ghz;
    absl::StrAppend(&found, found.empty() ? "" : ", ", us);
  }
  return absl::InternalError(
      absl::StrCat("kernels of ", kUs, " us by the device's clock took ", found, " us"));
}

}  // namespace

absl::Status RunEvents(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  ASSIGN_OR_RETURN(const CudaFunction spin, gpu->Kernel("probes.cu", "spin"));
  ASSIGN_OR_RETURN(const double ghz, UsableGigahertz(*gpu, spin));
  ASSIGN_OR_RETURN(std::vector<double> empty, Times(*gpu, [] { return absl::OkStatus(); }));
  for (double& ms : empty) ms *= 1e3;
  run.report().Answer("events.empty_us", MedianOf(empty));

  Json lengths;
  double of_twenty = 0;
  for (const int us : {5, 20, 100, 1000}) {
    const auto cycles = static_cast<uint64_t>(us * 1e3 * ghz);
    ASSIGN_OR_RETURN(const std::vector<double> times,
                     Times(*gpu, [&] { return gpu->Launch(spin, {}, cycles, CudaPointer{0}); }));
    const Median median = MedianOf(times);
    lengths[absl::StrCat(us, " us")] = {{"ms", Spread(median)},
                                        {"of_wished", median.value * 1e3 / us},
                                        {"middle_half", MiddleHalf(times)}};
    if (us == 20) of_twenty = MiddleHalf(times);
  }
  run.report().Answer("events.noise", of_twenty, {{"lengths", std::move(lengths)}});

  // Two versions that are the same must not look different.
  const auto cycles = static_cast<uint64_t>(20e3 * ghz);
  const auto work = [&] { return gpu->Launch(spin, {}, cycles, CudaPointer{0}); };
  double apart = 0;
  for (int round = 0; round < 3; ++round) {
    ASSIGN_OR_RETURN(const std::vector<std::vector<double>> times, InTurn(*gpu, {work, work}));
    apart = std::max(apart, std::abs(PairedRatio(times[0], times[1]).value - 1));
  }
  run.report().Answer("events.same_apart", apart);
  return absl::OkStatus();
}

}  // namespace athanor
