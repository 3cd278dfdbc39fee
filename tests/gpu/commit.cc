// Memory as an arena of virtual addresses would take it: reserved once, mapped piece by piece.
#include <chrono>

#include "absl/cleanup/cleanup.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

struct Costs {
  std::vector<double> create, map, access, unmap, release;  // ms, of each piece
};

// Maps `bytes` in pieces, calls `use`, and gives them back.
absl::Status Mapped(Gpu& gpu, size_t bytes, size_t piece, Costs* costs,
                    absl::FunctionRef<absl::Status(CudaPointer)> use) {
  const CudaDriver& cuda = gpu.cuda();
  const CudaAllocationProperties properties = {.location = {.id = gpu.device()}};
  const CudaAccess access = {.location = {.id = gpu.device()}};
  CudaPointer base = 0;
  RETURN_IF_CUDA_ERROR(cuda, AddressReserve(&base, bytes, 0, 0, 0));
  std::vector<CudaAllocation> pieces;
  const auto timed = [](std::vector<double>* to, auto call) {
    const auto begin = std::chrono::steady_clock::now();
    const CudaResult result = call();
    to->push_back(MsSince(begin));
    return result;
  };
  absl::Cleanup give_back = [&] {
    for (size_t i = 0; i < pieces.size(); ++i) {
      timed(&costs->unmap, [&] { return cuda.MemUnmap(base + i * piece, piece); });
      timed(&costs->release, [&] { return cuda.MemRelease(pieces[i]); });
    }
    cuda.AddressFree(base, bytes);
  };
  for (size_t at = 0; at < bytes; at += piece) {
    CudaAllocation physical = 0;
    RETURN_IF_ERROR(CudaStatus(
        cuda,
        timed(&costs->create, [&] { return cuda.MemCreate(&physical, piece, &properties, 0); }),
        "cuMemCreate"));
    pieces.push_back(physical);
    RETURN_IF_ERROR(CudaStatus(
        cuda, timed(&costs->map, [&] { return cuda.MemMap(base + at, piece, 0, physical, 0); }),
        "cuMemMap"));
    RETURN_IF_ERROR(CudaStatus(
        cuda,
        timed(&costs->access, [&] { return cuda.MemSetAccess(base + at, piece, &access, 1); }),
        "cuMemSetAccess"));
  }
  RETURN_IF_ERROR(use(base));
  return gpu.Wait();
}

Json Row(const Costs& costs) {
  return {{"create_ms", Spread(MedianOf(costs.create))},
          {"map_ms", Spread(MedianOf(costs.map))},
          {"access_ms", Spread(MedianOf(costs.access))},
          {"unmap_ms", Spread(MedianOf(costs.unmap))},
          {"release_ms", Spread(MedianOf(costs.release))}};
}

Median Commit(const Costs& costs, double scale) {
  std::vector<double> sums;
  for (size_t i = 0; i < costs.create.size(); ++i) {
    sums.push_back((costs.create[i] + costs.map[i] + costs.access[i]) * scale);
  }
  return MedianOf(std::move(sums));
}

}  // namespace

absl::Status RunCommit(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  const CudaAllocationProperties properties = {.location = {.id = gpu->device()}};
  size_t granule = 0;
  RETURN_IF_CUDA_ERROR(gpu->cuda(), MemGranularity(&granule, &properties, kCudaGranularityMinimum));
  run.report().Fact("commit", "granularity", {{"bytes", granule}});
  const auto nothing = [](CudaPointer) { return absl::OkStatus(); };
  Costs small, large;
  for (int i = 0; i < 2; ++i) RETURN_IF_ERROR(Mapped(*gpu, kGiB / 8, granule, &small, nothing));
  for (int i = 0; i < 7; ++i) RETURN_IF_ERROR(Mapped(*gpu, kGiB, kGiB, &large, nothing));
  run.report().Answer("commit.granule_us", Commit(small, 1e3), Row(small));
  run.report().Answer("commit.gib_ms", Commit(large, 1), Row(large));

  // Memory that held noise, given back and taken again.
  ASSIGN_OR_RETURN(const CudaFunction noise, gpu->Kernel("floors.cu", "fill_noise"));
  ASSIGN_OR_RETURN(const CudaFunction count, gpu->Kernel("probes.cu", "count_nonzero"));
  ASSIGN_OR_RETURN(const CudaPointer found, gpu->Allocate(8));
  const Grid grid = {static_cast<unsigned>(gpu->multiprocessors()) * 8, 256};
  RETURN_IF_ERROR(gpu->Fill(found, 0, 8));
  Costs ignored;
  uint64_t words = 0;
  double fill_ms = 0;
  for (int round = 0; round < 4; ++round) {
    RETURN_IF_ERROR(Mapped(*gpu, 4 * kGiB, kGiB, &ignored, [&](CudaPointer base) -> absl::Status {
      RETURN_IF_ERROR(gpu->Launch(count, grid, base, uint64_t{4 * kGiB / 16}, found));
      words += round == 0 ? 0 : 4 * kGiB / 4;
      // The first round finds what others left, if anything: a fact, not the question.
      if (round == 0) {
        ASSIGN_OR_RETURN(const std::vector<uint64_t> first, gpu->Download<uint64_t>(found, 1));
        run.report().Fact("commit", "first touch", {{"nonzero_words", first[0]}});
        RETURN_IF_ERROR(gpu->Fill(found, 0, 8));
        ASSIGN_OR_RETURN(const Timing fill, gpu->Time(9, 1, [&]() -> absl::Status {
          RETURN_IF_CUDA_ERROR(gpu->cuda(), FillBytes(base, 0, 4 * kGiB, gpu->stream()));
          return absl::OkStatus();
        }));
        fill_ms = fill.ms.value;
      }
      return gpu->Launch(noise, grid, base, uint64_t{4 * kGiB / 4});
    }));
  }
  ASSIGN_OR_RETURN(const std::vector<uint64_t> nonzero, gpu->Download<uint64_t>(found, 1));
  run.report().Answer("commit.nonzero_share",
                      static_cast<double>(nonzero[0]) / static_cast<double>(words),
                      {{"nonzero_words", nonzero[0]}, {"words", words}});
  run.report().Answer("commit.fill_gib_ms", fill_ms / 4);
  return absl::OkStatus();
}

}  // namespace athanor
