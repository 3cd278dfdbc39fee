// Has cuBLASLt multiply as plans do: whether its products are exact where they can be, how fast its
// proposals are, and what recording one costs.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cuda/device.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

constexpr int kProposals = 8;
constexpr int64_t kMostWorkspace = 32 << 20;
constexpr int kSamples = 9;

// Names a type of elements; all hold small whole numbers.
struct Type {
  const char* name;
  int64_t bytes;
};
constexpr Type kF32 = {"f32", 4}, kF64 = {"f64", 8}, kF16 = {"f16", 2}, kBf16 = {"bf16", 2},
               kI8 = {"i8", 1}, kI32 = {"i32", 4};

void Put(const Type& type, int value, int64_t i, std::string* data) {
  const auto put = [&](auto element) {
    std::memcpy(data->data() + i * sizeof(element), &element, sizeof(element));
  };
  const std::string name = type.name;
  const auto f = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &f, sizeof(bits));
  if (name == "f32") return put(f);
  if (name == "f64") return put(static_cast<double>(value));
  if (name == "f16") return put(static_cast<_Float16>(f));
  if (name == "bf16") return put(static_cast<uint16_t>(bits >> 16));
  if (name == "i8") return put(static_cast<int8_t>(value));
  return put(static_cast<int32_t>(value));
}

// Is a small product, and what differs from a plain one.
struct Case {
  Type operand, result;
  bool left_transposed = false, right_transposed = false, bias = false;
  int64_t batch = 1;
  int64_t offset = 0;  // of the left matrix, in elements
};

// Has no side that is a multiple of a tile; i8 wants multiples of 4.
LibraryCall CallOf(const Case& c) {
  LibraryCall call = {.dtype = c.operand.name,
                      .result_dtype = c.result.name,
                      .rows = 36,
                      .columns = 52,
                      .sums = 44,
                      .batch = c.batch,
                      .bias = c.bias};
  call.left = {.offset = c.offset,
               .stride = c.left_transposed ? call.rows : call.sums,
               .transposed = c.left_transposed};
  call.right = {.stride = c.right_transposed ? call.sums : call.columns,
                .transposed = c.right_transposed};
  call.result = {.stride = call.columns};
  if (c.batch > 1) {
    call.left.batch_stride = call.rows * call.sums;  // the right matrix is the same for all
    call.result.batch_stride = call.rows * call.columns;
  }
  return call;
}

int64_t Place(const LibraryCall::Matrix& m, int64_t batch, int64_t i, int64_t j) {
  return m.offset + batch * m.batch_stride + (m.transposed ? j * m.stride + i : i * m.stride + j);
}

// -2 to 2, so that sums of 44 products fit every type exactly.
int Number(int64_t i, int seed) { return static_cast<int>((i * 7 + seed) % 5) - 2; }

std::string Numbers(const Type& type, int64_t count, int seed) {
  std::string data(count * type.bytes, '\0');
  for (int64_t i = 0; i < count; ++i) Put(type, Number(i, seed), i, &data);
  return data;
}

std::string Expected(const Case& c, const LibraryCall& call) {
  std::string result(call.batch * call.rows * call.columns * c.result.bytes, '\0');
  for (int64_t b = 0; b < call.batch; ++b) {
    for (int64_t i = 0; i < call.rows; ++i) {
      for (int64_t j = 0; j < call.columns; ++j) {
        int sum = call.bias ? Number(j, 4) : 0;
        for (int64_t k = 0; k < call.sums; ++k) {
          sum += Number(Place(call.left, b, i, k), 1) * Number(Place(call.right, b, k, j), 3);
        }
        Put(c.result, sum, Place(call.result, b, i, j), &result);
      }
    }
  }
  return result;
}

// Counts over all cases.
struct Counts {
  int64_t wrong = 0;  // elements
  int unknown = 0;    // cases without a proposal
  int products = 0;
  std::vector<std::string> wrong_cases, unknown_cases;
};

// Computes a case in each way that the library proposes, recorded as steps of plans are.
absl::Status Compare(CudaDevice& device, DeviceQueue& queue, const Case& c, Counts* counts) {
  const std::string name = absl::StrCat(
      c.operand.name, " to ", c.result.name, c.left_transposed ? ", left transposed" : "",
      c.right_transposed ? ", right transposed" : "", c.bias ? ", bias" : "",
      c.batch > 1 ? ", batch" : "", c.offset > 0 ? ", not aligned" : "");
  const LibraryCall call = CallOf(c);
  RETURN_IF_ERROR(device.Enter());
  ASSIGN_OR_RETURN(const CudaLibrary* const library, device.library());
  ASSIGN_OR_RETURN(const std::vector<LibraryCall> calls,
                   library->Propose(call, kProposals, kMostWorkspace));
  if (calls.empty()) {
    ++counts->unknown;
    counts->unknown_cases.push_back(name);
  }
  const std::string left =
      Numbers(c.operand, call.left.offset + call.batch * call.rows * call.sums, 1);
  const std::string right = Numbers(c.operand, call.sums * call.columns, 3);
  const std::string bias = Numbers(c.result, call.columns, 4);
  const std::string expected = Expected(c, call);
  const auto upload =
      [&](const std::string& data) -> absl::StatusOr<std::unique_ptr<DeviceMemory>> {
    ASSIGN_OR_RETURN(auto memory, device.Allocate(MemoryKind::kScratch, data.size()));
    RETURN_IF_ERROR(queue.Copy(memory->data(), data.data(), data.size(), CopyKind::kToDevice));
    RETURN_IF_ERROR(queue.Wait());
    return memory;
  };
  ASSIGN_OR_RETURN(const auto on_left, upload(left));
  ASSIGN_OR_RETURN(const auto on_right, upload(right));
  ASSIGN_OR_RETURN(const auto on_bias, upload(bias));
  ASSIGN_OR_RETURN(const auto workspace, device.Allocate(MemoryKind::kScratch, kMostWorkspace));
  for (const LibraryCall& proposed : calls) {
    RETURN_IF_ERROR(device.CheckCall(proposed));
    // All bits set are no number that is expected.
    ASSIGN_OR_RETURN(const auto result, upload(std::string(expected.size(), '\xff')));
    const LibraryBuffers buffers = {result->data(), on_left->data(), on_right->data(),
                                    c.bias ? on_bias->data() : nullptr,
                                    proposed.workspace_bytes > 0 ? workspace->data() : nullptr};
    ASSIGN_OR_RETURN(const auto recording,
                     queue.Record({{.call = &proposed, .call_buffers = buffers}}));
    RETURN_IF_ERROR(queue.Replay(*recording));
    std::string got(expected.size(), '\0');
    RETURN_IF_ERROR(queue.Copy(got.data(), result->data(), got.size(), CopyKind::kToHost));
    RETURN_IF_ERROR(queue.Wait());
    int64_t wrong = 0;
    for (size_t i = 0; i < got.size(); i += c.result.bytes) {
      wrong += got.compare(i, c.result.bytes, expected, i, c.result.bytes) != 0;
    }
    if (wrong > 0) counts->wrong_cases.push_back(name);
    counts->wrong += wrong;
    ++counts->products;
  }
  return absl::OkStatus();
}

absl::Status Exactness(PartRun& run, CudaDevice& device, DeviceQueue& queue) {
  std::vector<Case> cases;
  for (const auto& [operand, result] :
       {std::pair(kF32, kF32), std::pair(kF64, kF64), std::pair(kF16, kF16), std::pair(kF16, kF32),
        std::pair(kBf16, kBf16), std::pair(kBf16, kF32)}) {
    for (int way = 0; way < 4; ++way) {
      cases.push_back({operand, result, (way & 1) != 0, (way & 2) != 0});
    }
    cases.push_back({.operand = operand, .result = result, .bias = true});
    cases.push_back({.operand = operand, .result = result, .batch = 3});
    cases.push_back({.operand = operand, .result = result, .offset = 1});
  }
  cases.push_back({.operand = kI8, .result = kI32, .right_transposed = true});
  Counts counts;
  for (const Case& c : cases) RETURN_IF_ERROR(Compare(device, queue, c, &counts));
  run.report().Answer("library.wrong", static_cast<double>(counts.wrong),
                      {{"products", counts.products}, {"cases", counts.wrong_cases}});
  run.report().Answer("library.unknown", counts.unknown, {{"cases", counts.unknown_cases}});
  return absl::OkStatus();
}

// Times the proposals for a large product. `best` is how many times as fast the best one is as the
// first.
struct Speed {
  Timing fastest;
  double best = 0;
  Json details;
};
absl::StatusOr<Speed> Race(Gpu& gpu, const CudaLibrary& library, const Type& type, int64_t rows,
                           int64_t columns, int64_t sums) {
  const LibraryCall call = {.dtype = type.name,
                            .result_dtype = type.name,
                            .rows = rows,
                            .columns = columns,
                            .sums = sums,
                            .left = {.stride = sums},
                            .right = {.stride = columns},
                            .result = {.stride = columns}};
  ASSIGN_OR_RETURN(const std::vector<LibraryCall> calls,
                   library.Propose(call, kProposals, kMostWorkspace));
  if (calls.empty()) {
    return absl::NotFoundError(absl::StrCat("cuBLASLt proposes nothing for ", type.name, " of ",
                                            rows, " x ", columns, " x ", sums));
  }
  // Noise: a chip that multiplies zeros takes less power, and is faster.
  ASSIGN_OR_RETURN(const CudaFunction noise, gpu.Kernel("floors.cu", "fill_noise"));
  const Grid grid = {static_cast<unsigned>(gpu.multiprocessors()) * 8, 256};
  const auto allocate = [&](int64_t bytes) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(const CudaPointer pointer, gpu.Allocate(bytes));
    RETURN_IF_ERROR(gpu.Launch(noise, grid, pointer, static_cast<uint64_t>(bytes / 4)));
    return reinterpret_cast<void*>(pointer);
  };
  LibraryBuffers buffers;
  ASSIGN_OR_RETURN(buffers.left, allocate(rows * sums * type.bytes));
  ASSIGN_OR_RETURN(buffers.right, allocate(sums * columns * type.bytes));
  ASSIGN_OR_RETURN(buffers.result, allocate(rows * columns * type.bytes));
  ASSIGN_OR_RETURN(buffers.workspace, allocate(kMostWorkspace));
  Speed speed;
  double first = 0;
  Json all = Json::array();
  for (const LibraryCall& proposed : calls) {
    ASSIGN_OR_RETURN(const Timing timing, gpu.Time(kSamples, 1, [&] {
      return library.Enqueue(proposed, buffers, gpu.stream());
    }));
    all.push_back({{"ms", Spread(timing.ms)}, {"workspace", proposed.workspace_bytes}});
    if (first == 0) first = timing.ms.value;
    if (all.size() == 1 || timing.ms.value < speed.fastest.ms.value) speed.fastest = timing;
  }
  gpu.FreeAll();
  speed.best = first / speed.fastest.ms.value;
  const double operations =
      2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(sums);
  speed.details = {{"type", type.name},
                   {"sizes", {rows, columns, sums}},
                   {"tflops", operations / speed.fastest.ms.value / 1e9},
                   {"proposals", std::move(all)}};
  return speed;
}

}  // namespace

absl::Status RunLibrary(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  ASSIGN_OR_RETURN(const std::unique_ptr<CudaDevice> device, CudaDevice::Create(gpu->cuda(), {}));
  RETURN_IF_ERROR(device->Enter());
  auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const CudaLibrary* const library, device->library());
  run.report().Fact("library", "opened", {{"version", library->version()}, {"ms", MsSince(begin)}});
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceQueue> queue, device->NewQueue(0));
  begin = std::chrono::steady_clock::now();
  Counts first;
  RETURN_IF_ERROR(Compare(*device, *queue, {kBf16, kBf16}, &first));
  const double first_ms = MsSince(begin);
  begin = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(Compare(*device, *queue, {kBf16, kBf16}, &first));
  run.report().Answer("library.first_ms", first_ms - MsSince(begin), {{"with_all", first_ms}});
  RETURN_IF_ERROR(Exactness(run, *device, *queue));

  // Few rows, as when tokens are generated; a block of a large model; one that fills the device.
  double best = 0;
  Json races = Json::array();
  for (const auto& [type, rows, columns, sums] :
       {std::tuple(kBf16, 16, 4096, 4096), std::tuple(kBf16, 2048, 14336, 4096),
        std::tuple(kF32, 4096, 4096, 4096), std::tuple(kBf16, 8192, 8192, 8192)}) {
    ASSIGN_OR_RETURN(const Speed speed, Race(*gpu, *library, type, rows, columns, sums));
    best = std::max(best, speed.best);
    races.push_back(speed.details);
  }
  run.report().Answer("library.best_of_8", best, {{"products", std::move(races)}});
  return absl::OkStatus();
}

}  // namespace athanor
