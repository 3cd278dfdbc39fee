// Copies a tile by the copy engine, with its descriptor in each place that a plan could keep it.
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

constexpr int kSide = 32;  // of a tile; kernels/tensor_map.cu has the same
constexpr int kRows = 96, kColumns = 128;
constexpr int kX = 64, kY = 32;  // of the tile that is copied
constexpr float kPoison = -1;

absl::Status Describe(const Gpu& gpu, CudaPointer matrix, CudaTensorMap* map) {
  const uint64_t sizes[] = {kColumns, kRows};
  const uint64_t strides[] = {kColumns * sizeof(float)};
  const uint32_t box[] = {kSide, kSide}, steps[] = {1, 1};
  RETURN_IF_CUDA_ERROR(
      gpu.cuda(), TensorMapEncodeTiled(map, kCudaTensorMapF32, 2, reinterpret_cast<void*>(matrix),
                                       sizes, strides, box, steps, /*interleave=*/0, /*swizzle=*/0,
                                       /*promotion=*/0, /*fill=*/0));
  return absl::OkStatus();
}

float Value(int matrix, int row, int column) {
  return static_cast<float>(matrix * 100000 + row * kColumns + column);
}

// Counts wrong elements of the tile that `out` should hold of a matrix; poisons it again.
absl::StatusOr<int> CountWrong(Gpu& gpu, CudaPointer out, int matrix) {
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

// Makes a graph that copies a descriptor from pinned memory into `block`, and then a tile by it.
absl::StatusOr<CudaGraphExec> CopyNode(const Gpu& gpu, void* pinned, CudaPointer block,
                                       CudaFunction kernel, CudaPointer out) {
  const CudaDriver& cuda = gpu.cuda();
  const CudaCopyNode copy = {.from = {.type = kCudaCopyOfHost, .host = pinned},
                             .to = {.device = block},
                             .bytes = sizeof(CudaTensorMap)};
  CudaGraphNode first = nullptr, second = nullptr;
  int x = kX, y = kY;
  void* arguments[] = {&block, &out, &x, &y};
  const CudaKernelNode node = {.function = kernel, .block_x = 128, .arguments = arguments};
  return gpu.Record([&](CudaGraph graph) -> absl::Status {
    RETURN_IF_CUDA_ERROR(cuda, GraphAddCopy(&first, graph, nullptr, 0, &copy, gpu.context()));
    RETURN_IF_CUDA_ERROR(cuda, GraphAddKernel(&second, graph, &first, 1, &node));
    return absl::OkStatus();
  });
}

// Tries a descriptor, and its place in memory, of 64 bytes' alignment, which the call's text asks
// for where the header has 128. A fact; last, since a fault would cost later answers.
absl::Status TryAlignment64(PartRun& run, Gpu& gpu, CudaPointer matrix, CudaPointer block,
                            CudaPointer out, CudaFunction plain) {
  alignas(128) static char bytes[64 + sizeof(CudaTensorMap)];
  const auto wrong = [&]() -> absl::StatusOr<int> {
    RETURN_IF_ERROR(Describe(gpu, matrix, reinterpret_cast<CudaTensorMap*>(bytes + 64)));
    RETURN_IF_CUDA_ERROR(gpu.cuda(),
                         CopyToDevice(block + 64, bytes + 64, sizeof(CudaTensorMap), gpu.stream()));
    RETURN_IF_ERROR(gpu.Launch(plain, {1, 128}, block + 64, out, kX, kY));
    return CountWrong(gpu, out, 0);
  }();
  run.report().Fact(
      "tensor-map", "alignment of 64 bytes",
      wrong.ok() ? Json{{"wrong", *wrong}} : Json{{"why", wrong.status().ToString()}});
  return absl::OkStatus();
}

}  // namespace

absl::Status RunTensorMap(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  if (!CanRun("tensor_map.cu", gpu->arch())) {
    return absl::FailedPreconditionError(absl::StrCat(gpu->arch(), " has no copy engine"));
  }
  CudaTensorMap maps[2];
  CudaPointer places[2] = {};
  for (int matrix = 0; matrix < 2; ++matrix) {
    std::vector<float> values(kRows * kColumns);
    for (int i = 0; i < kRows * kColumns; ++i)
      values[i] = Value(matrix, i / kColumns, i % kColumns);
    ASSIGN_OR_RETURN(places[matrix], gpu->Upload(values));
    RETURN_IF_ERROR(Describe(*gpu, places[matrix], &maps[matrix]));
  }
  const std::vector<float> poison(kSide * kSide, kPoison);
  ASSIGN_OR_RETURN(const CudaPointer out, gpu->Upload(poison));
  ASSIGN_OR_RETURN(const CudaFunction argument, gpu->Kernel("tensor_map.cu", "by_argument"));
  ASSIGN_OR_RETURN(const CudaFunction plain, gpu->Kernel("tensor_map.cu", "by_pointer"));
  ASSIGN_OR_RETURN(const CudaFunction fenced, gpu->Kernel("tensor_map.cu", "by_pointer_fenced"));

  RETURN_IF_ERROR(gpu->Launch(argument, {1, 128}, maps[0], out, kX, kY));
  ASSIGN_OR_RETURN(const int by_argument, CountWrong(*gpu, out, 0));
  run.report().Answer("tensor-map.argument", by_argument);

  // Behind sizes and pointers, as in a block of parameters.
  ASSIGN_OR_RETURN(const CudaPointer block, gpu->Allocate(2 * 4096));
  const CudaPointer inside = block + 4096 + 256;
  ASSIGN_OR_RETURN(void* const host, gpu->AllocatePinned(sizeof(CudaTensorMap)));
  ASSIGN_OR_RETURN(const CudaGraphExec replay, CopyNode(*gpu, host, inside, plain, out));
  absl::Cleanup destroy = [&] { gpu->cuda().GraphExecDestroy(replay); };
  const auto from = [&](const void* map, CudaFunction kernel) -> absl::Status {
    RETURN_IF_CUDA_ERROR(gpu->cuda(),
                         CopyToDevice(inside, map, sizeof(CudaTensorMap), gpu->stream()));
    return gpu->Launch(kernel, {1, 128}, inside, out, kX, kY);
  };
  const auto with_fence = [&](int matrix) { return from(&maps[matrix], fenced); };
  const auto pageable = [&](int matrix) { return from(&maps[matrix], plain); };
  const auto pinned = [&](int matrix) {
    std::memcpy(host, &maps[matrix], sizeof(CudaTensorMap));
    return from(host, plain);
  };
  const auto by_node = [&](int matrix) -> absl::Status {
    std::memcpy(host, &maps[matrix], sizeof(CudaTensorMap));
    RETURN_IF_CUDA_ERROR(gpu->cuda(), GraphLaunch(replay, gpu->stream()));
    return absl::OkStatus();
  };
  struct Way {
    const char *first, *later;  // questions
    absl::FunctionRef<absl::Status(int matrix)> copy;
  };
  // Replaced between launches many times: an old descriptor in some cache would show. The fence
  // first, since a wrong descriptor may lose the context.
  for (const Way& way : {Way{"", "tensor-map.fenced", with_fence},
                         Way{"tensor-map.block", "tensor-map.replaced", pageable},
                         Way{"", "tensor-map.replaced_pinned", pinned},
                         Way{"", "tensor-map.replaced_node", by_node}}) {
    int first = 0, later = 0;
    for (int turn = 0; turn < 100; ++turn) {
      RETURN_IF_ERROR(way.copy(turn % 2));
      ASSIGN_OR_RETURN(const int wrong, CountWrong(*gpu, out, turn % 2));
      (turn == 0 && *way.first ? first : later) += wrong;
    }
    if (*way.first) run.report().Answer(way.first, first);
    run.report().Answer(way.later, later);
  }
  return TryAlignment64(run, *gpu, places[0], block, out, plain);
}

}  // namespace athanor
