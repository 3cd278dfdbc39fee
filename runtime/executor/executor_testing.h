// A small plan of every kind of buffer, and a CPU device whose kernel objects
// are names of the functions below. For tests.
//
//   rows b of 8 f32:  t = x + p,  y = t * c,  g = t[row, idx[row]]
//   where p = 2 * w is prepared, w a parameter, c a constant
#ifndef ATHANOR_RUNTIME_EXECUTOR_EXECUTOR_TESTING_H_
#define ATHANOR_RUNTIME_EXECUTOR_EXECUTOR_TESTING_H_

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/text_format.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/cpu/device.h"
#include "runtime/executor/executor.h"

namespace athanor {

inline constexpr int kWidth = 8;

// Buffers need no alignment.
template <typename T>
T LoadAt(const void* base, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void StoreAt(void* base, int64_t i, T value) {
  std::memcpy(static_cast<char*>(base) + i * sizeof(T), &value, sizeof(T));
}

inline void DoubleKernel(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end,
                         void*, KernelError*) {
  for (int64_t i = begin; i < end; ++i) {
    StoreAt(buffers[1], i, 2 * LoadAt<float>(buffers[0], i));
  }
}

inline void AddRowKernel(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end,
                         void* scratch, KernelError*) {
  for (int64_t i = begin * sizes[0]; i < end * sizes[0]; ++i) {
    const int64_t column = i % sizes[0];
    // Goes through scratch: scratch shared by threads would show under ThreadSanitizer.
    StoreAt(scratch, column, LoadAt<float>(buffers[1], column));
    StoreAt(buffers[2], i, LoadAt<float>(buffers[0], i) + LoadAt<float>(scratch, column));
  }
}

inline void MulRowKernel(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end,
                         void*, KernelError*) {
  for (int64_t i = begin * sizes[0]; i < end * sizes[0]; ++i) {
    StoreAt(buffers[2], i, LoadAt<float>(buffers[0], i) * LoadAt<float>(buffers[1], i % sizes[0]));
  }
}

inline void GatherKernel(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end,
                         void*, KernelError* error) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t index = LoadAt<int64_t>(buffers[1], i);
    float value = 0;
    if (0 <= index && index < sizes[0]) {
      value = LoadAt<float>(buffers[0], i * sizes[0] + index);
    } else if (error->code == 0) {
      *error = {1, index, sizes[0], i};
    }
    StoreAt(buffers[2], i, value);
  }
}

// Counts its launches, and stores their number in each element.
inline void CountKernel(void* const* buffers, const int64_t*, int64_t begin, int64_t end, void*,
                        KernelError*) {
  const uint32_t count = LoadAt<uint32_t>(buffers[1], 0) + 1;
  StoreAt(buffers[1], 0, count);
  for (int64_t i = begin; i < end; ++i) StoreAt(buffers[0], i, static_cast<float>(count));
}

class FunctionDevice : public CpuDevice {
 public:
  static std::unique_ptr<FunctionDevice> Make(int threads) {
    return std::make_unique<FunctionDevice>(ThreadPool::Create({.threads = threads}).value());
  }
  explicit FunctionDevice(std::unique_ptr<ThreadPool> pool) : CpuDevice(std::move(pool)) {}

  absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadKernel(absl::string_view object) override {
    static const std::map<std::string, CpuKernel> kKernels = {{"double", DoubleKernel},
                                                              {"add_row", AddRowKernel},
                                                              {"mul_row", MulRowKernel},
                                                              {"gather", GatherKernel},
                                                              {"count", CountKernel}};
    const auto found = kKernels.find(std::string(object));
    if (found == kKernels.end()) return CpuDevice::LoadKernel(object);
    return WrapKernel(found->second);
  }
};

inline std::vector<absl::string_view> RowPlanObjects() {
  return {"double", "add_row", "mul_row", "gather"};
}

// b is in 0..64. Each step's work is `work` flops, which decides whether it is shared among
// threads.
inline v1::Plan RowPlan(int64_t work = 1 << 20) {
  const std::string row = "bytes { terms { coefficient: 32 } } ";
  const std::string rows =
      "bytes { terms { coefficient: 32 factors { symbol: 'b' } } } "
      "shape { terms { coefficient: 1 factors { symbol: 'b' } } } "
      "shape { terms { coefficient: 8 } } ";
  const std::string width = "sizes { terms { coefficient: 8 } } ";
  const std::string grid =
      absl::StrCat("grid { terms { coefficient: 1 factors { symbol: 'b' } } } ",
                   "flops { terms { coefficient: ", work, " } } ");
  const std::string text = absl::StrCat(
      "format: 1 plan_id: 'p-0' dims { name: 'b' min: 0 max: 64 } "
      "kernels { name: 'double' } kernels { name: 'add_row' } "
      "kernels { name: 'mul_row' } kernels { name: 'gather' } ",
      "buffers { kind: INPUT name: 'x' dtype: 'f32' ", rows, "} ",
      "buffers { kind: PARAMETER name: 'w' dtype: 'f32' ", row, "} ",
      "buffers { kind: CONSTANT dtype: 'f32' ", row, "} ", "buffers { kind: PREPARED dtype: 'f32' ",
      row, "} ", "buffers { kind: ARENA dtype: 'f32' arena_offset: 64 ", rows, "} ",
      "buffers { kind: OUTPUT name: 'y' dtype: 'f32' ", rows, "} ",
      "buffers { kind: INPUT name: 'idx' dtype: 'i64' bytes { terms { "
      "coefficient: 8 factors { symbol: 'b' } } } } ",
      "buffers { kind: OUTPUT name: 'g' dtype: 'f32' bytes { terms { "
      "coefficient: 4 factors { symbol: 'b' } } } } ",
      "prepare { kernel: 0 buffers: [1, 3] grid { terms { coefficient: 8 } } "
      "label: 'double w' } ",
      "run { kernel: 1 buffers: [0, 3, 4] label: 'add' scratch_bytes: 32 ", width, grid,
      "} run { kernel: 2 buffers: [4, 2, 5] label: 'mul' ", width, grid,
      "} run { kernel: 3 buffers: [4, 6, 7] label: 'pick' ", width, grid,
      "} outputs { name: 'y' buffer: 5 } outputs { name: 'g' buffer: 7 } "
      "arena_bytes: 2112");
  v1::Plan plan;
  if (!google::protobuf::TextFormat::ParseFromString(text, &plan)) plan.Clear();
  std::string literal;
  for (int i = 0; i < kWidth; ++i) {
    const float value = 1.5f + i;
    literal.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  plan.mutable_buffers(2)->set_literal(literal);
  return plan;
}

// Tensors of a call of RowPlan, and the expected results.
struct RowCall {
  explicit RowCall(int64_t b, float seed = 0.25f)
      : rows(b), x(b * kWidth), idx(b), y(b * kWidth), g(b) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = seed + 0.5f * i;
    for (size_t i = 0; i < idx.size(); ++i) idx[i] = (3 * i) % kWidth;
  }

  template <typename T>
  static absl::string_view View(const std::vector<T>& v) {
    return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
  }
  template <typename T>
  static absl::Span<char> Span(std::vector<T>& v) {
    return {reinterpret_cast<char*>(v.data()), v.size() * sizeof(T)};
  }

  absl::Status Run(const Executable& executable, Executable::Context* context,
                   const RunOptions& options = {}) {
    const int64_t dims[] = {rows};
    const absl::string_view inputs[] = {View(x), View(idx)};
    const absl::Span<char> outputs[] = {Span(y), Span(g)};
    return executable.Run(context, dims, inputs, outputs, options);
  }

  // `w` is the parameter's value in every column.
  bool Right(float w) const {
    for (int64_t i = 0; i < rows * kWidth; ++i) {
      if (y[i] != (x[i] + 2 * w) * (1.5f + i % kWidth)) return false;
    }
    for (int64_t i = 0; i < rows; ++i) {
      if (g[i] != x[i * kWidth + idx[i]] + 2 * w) return false;
    }
    return true;
  }

  int64_t rows;
  std::vector<float> x;
  std::vector<int64_t> idx;
  std::vector<float> y, g;
};

inline ParameterView RowParameter(float w) {
  auto bytes = std::make_shared<std::vector<float>>(kWidth, w);
  return {"w", RowCall::View(*bytes), bytes};
}

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_EXECUTOR_EXECUTOR_TESTING_H_
