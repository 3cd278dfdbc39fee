// A tile copied by the copy engine, with its descriptor in each place that a plan could keep it.
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

constexpr int kSide = 32;  // of a tile; kernels/tensor_map.cu has the same
constexpr int kRows = 96, kColumns = 128;
constexpr int kX = 64, kY = 32;  // of the tile that is copied
constexpr float kPoison = -1;

absl::StatusOr<CudaTensorMap> Describe(const Gpu& gpu, CudaPointer matrix) {
  CudaTensorMap map;
  const uint64_t sizes[] = {kColumns, kRows};
  const uint64_t strides[] = {kColumns * sizeof(float)};
  const uint32_t box[] = {kSide, kSide}, steps[] = {1, 1};
  RETURN_IF_CUDA_ERROR(
      gpu.cuda(), TensorMapEncodeTiled(&map, kCudaTensorMapF32, 2, reinterpret_cast<void*>(matrix),
                                       sizes, strides, box, steps, /*interleave=*/0, /*swizzle=*/0,
                                       /*promotion=*/0, /*fill=*/0));
  return map;
}

float Value(int matrix, int row, int column) {
  return static_cast<float>(matrix * 100000 + row * kColumns + column);
}

// Wrong elements of the tile that `out` should hold of a matrix; poisons it again.
absl::StatusOr<int> Wrong(Gpu& gpu, CudaPointer out, int matrix) {
  ASSIGN_OR_RETURN(const std::vector<float> tile, gpu.Download<float>(out, kSide * kSide));
  int wrong = 0;
  for (int i = 0; i < kSide * kSide; ++i) {
    wrong += tile[i] != Value(matrix, kY + i / kSide, kX + i % kSide);
  }
  const std::vector<float> poison(kSide * kSide, kPoison);
  RETURN_IF_CUDA_ERROR(gpu.cuda(),
                       CopyToDevice(out, poison.data(), poison.size() * 4, gpu.stream()));
  RETURN_IF_ERROR(gpu.Wait());
  return wrong;
}

}  // namespace

absl::Status RunTensorMap(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  if (!Runs("tensor_map.cu", gpu->arch())) {
    return absl::FailedPreconditionError(absl::StrCat(gpu->arch(), " has no copy engine"));
  }
  CudaTensorMap maps[2];
  for (int matrix = 0; matrix < 2; ++matrix) {
    std::vector<float> values(kRows * kColumns);
    for (int i = 0; i < kRows * kColumns; ++i)
      values[i] = Value(matrix, i / kColumns, i % kColumns);
    ASSIGN_OR_RETURN(const CudaPointer place, gpu->Upload(values));
    ASSIGN_OR_RETURN(maps[matrix], Describe(*gpu, place));
  }
  const std::vector<float> poison(kSide * kSide, kPoison);
  ASSIGN_OR_RETURN(const CudaPointer out, gpu->Upload(poison));
  ASSIGN_OR_RETURN(const CudaFunction argument, gpu->Kernel("tensor_map.cu", "by_argument"));
  ASSIGN_OR_RETURN(const CudaFunction plain, gpu->Kernel("tensor_map.cu", "by_pointer"));
  ASSIGN_OR_RETURN(const CudaFunction fenced, gpu->Kernel("tensor_map.cu", "by_pointer_fenced"));

  RETURN_IF_ERROR(gpu->Launch(argument, {1, 128}, maps[0], out, kX, kY));
  ASSIGN_OR_RETURN(int wrong, Wrong(*gpu, out, 0));
  run.report().Answer("tensor-map.argument", wrong);

  // Behind sizes and pointers, as in a block of parameters.
  constexpr size_t kOffset = 4096 + 192;
  ASSIGN_OR_RETURN(const CudaPointer block, gpu->Allocate(2 * 4096));
  const CudaPointer inside = block + kOffset;
  const auto put = [&](int matrix) -> absl::Status {
    RETURN_IF_CUDA_ERROR(gpu->cuda(),
                         CopyToDevice(inside, &maps[matrix], sizeof(CudaTensorMap), gpu->stream()));
    return absl::OkStatus();
  };
  // Replaced between launches many times: an old descriptor in some cache would show.
  for (const bool with_fence : {false, true}) {
    int first = 0, later = 0;
    for (int turn = 0; turn < 100; ++turn) {
      RETURN_IF_ERROR(put(turn % 2));
      RETURN_IF_ERROR(gpu->Launch(with_fence ? fenced : plain, {1, 128}, inside, out, kX, kY));
      ASSIGN_OR_RETURN(wrong, Wrong(*gpu, out, turn % 2));
      (turn == 0 ? first : later) += wrong;
    }
    if (with_fence) {
      run.report().Answer("tensor-map.fenced", first + later);
    } else {
      run.report().Answer("tensor-map.block", first);
      run.report().Answer("tensor-map.replaced", later);
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor
