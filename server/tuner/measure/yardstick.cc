#include "server/tuner/measure/yardstick.h"

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "compiler/codegen/cpu/clang.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/child/compile_flags.h"
#include "server/tuner/run/host_target.h"

namespace athanor {
namespace {

constexpr int64_t kSteps = 4'000;  // of the reduction of one item
constexpr int64_t kSums = 16;      // independent sums
constexpr int64_t kItems = 32;     // items per thread

// Has the calling convention of runtime/device/kernel_abi.h.
constexpr char kArithmetic[] = R"(
typedef float V __attribute__((vector_size($BYTES)));
void athanor_kernel(void* const* buffers, const long* sizes, long begin, long end, void* scratch,
                    void* error) {
  for (long item = begin; item < end; ++item) {
    V* out = (V*)buffers[0] + item * 16;
    V x = out[0] + 0.5f, y = out[1] + 0.25f, sums[16];
    for (int i = 0; i < 16; ++i) sums[i] = out[i];
    for (long n = 0; n < sizes[0]; ++n)
      for (int i = 0; i < 16; ++i) sums[i] = __builtin_elementwise_fma(sums[i], x, y);
    for (int i = 0; i < 16; ++i) out[i] = sums[i];
  }
}
)";

}  // namespace

absl::StatusOr<std::string> CompileForMeasuring(absl::string_view source,
                                                const v1::Target& target) {
  const CompileFlags flags = CompileFlags::For(target);
  const std::string text =
      absl::StrReplaceAll(source, {{"$BYTES", std::to_string(target.vector_bytes())}});
  return CompileToSharedObject(
      text, ToCpuTarget(target),
      {.opt_level = flags.opt_level, .prefer_vector_width = flags.prefer_vector_width});
}

absl::StatusOr<std::string> Yardstick::Compile(const v1::Target& target) {
  return CompileForMeasuring(kArithmetic, target);
}

absl::StatusOr<Yardstick> Yardstick::Create(Device* device, absl::string_view object,
                                            int vector_bytes, int threads) {
  Yardstick yard;
  const int64_t vector = vector_bytes;
  yard.items_ = kItems * std::max(1, threads);
  yard.flops_ = static_cast<double>(2 * vector / 4 * kSums * kSteps * yard.items_);
  ASSIGN_OR_RETURN(yard.kernel_, device->LoadKernel(object));
  ASSIGN_OR_RETURN(yard.out_, device->Allocate(MemoryKind::kArena, yard.items_ * kSums * vector));
  ASSIGN_OR_RETURN(yard.queue_, device->NewQueue(0));
  return yard;
}

absl::Status Yardstick::Run() {
  const int64_t sizes[] = {kSteps};
  void* const buffers[] = {out_->data()};
  const int64_t bytes[] = {out_->bytes()};
  KernelError error;
  RETURN_IF_ERROR(queue_->Launch(*kernel_, {.buffers = buffers,
                                            .bytes = bytes,
                                            .sizes = sizes,
                                            .grid = items_,
                                            .work = int64_t{1} << 40,
                                            .error = &error}));
  return queue_->Wait();
}

}  // namespace athanor
