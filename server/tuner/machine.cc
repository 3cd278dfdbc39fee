#include "server/tuner/machine.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "compiler/codegen/cpu/clang.h"
#include "runtime/cpu/device.h"
#include "server/tuner/host_target.h"
#include "server/tuner/pacer.h"
#include "server/tuner_channel.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRounds = 25;
constexpr int64_t kChunk = 256 << 10;   // bytes of one work item
constexpr int64_t kMemory = 192 << 20;  // beyond the caches of most machines
constexpr int64_t kParts = 6;           // read in turn, each in less than a slice
constexpr int64_t kSteps = 20'000;      // of the reduction of one arithmetic item
constexpr int64_t kSums = 16;           // independent ones
constexpr int64_t kItems = 64;

// Both have the calling convention of runtime/kernel_abi.h.
constexpr char kArithmetic[] = R"(
typedef float V __attribute__((vector_size($BYTES)));
void athanor_kernel(void* const* buffers, const long* sizes, long begin, long end, void* scratch,
                    void* error) {
  for (long item = begin; item < end; ++item) {
    V* out = (V*)buffers[0] + item * $SUMS;
    V x = out[0] + 0.5f, y = out[1] + 0.25f, sums[$SUMS];
    for (int i = 0; i < $SUMS; ++i) sums[i] = out[i];
    for (long n = 0; n < sizes[0]; ++n)
      for (int i = 0; i < $SUMS; ++i) sums[i] = __builtin_elementwise_fma(sums[i], x, y);
    for (int i = 0; i < $SUMS; ++i) out[i] = sums[i];
  }
}
)";

constexpr char kRead[] = R"(
typedef float V __attribute__((vector_size($BYTES)));
void athanor_kernel(void* const* buffers, const long* sizes, long begin, long end, void* scratch,
                    void* error) {
  for (long item = begin; item < end; ++item) {
    const V* in = (const V*)((const char*)buffers[1] + item * sizes[0]);
    V a = in[0], b = in[1], c = in[2], d = in[3];
    for (long again = 0; again < sizes[1]; ++again) {
      for (long n = 4; n < sizes[0] / $BYTES; n += 4) {
        a += in[n];
        b += in[n + 1];
        c += in[n + 2];
        d += in[n + 3];
      }
    }
    ((V*)buffers[0])[item] = a + b + c + d;
  }
}
)";

absl::StatusOr<std::string> CompileFor(const char* source, const v1::Target& target) {
  const CompileFlags flags = CompileFlags::For(target);
  const std::string text = absl::StrReplaceAll(
      source,
      {{"$BYTES", std::to_string(target.vector_bytes())}, {"$SUMS", std::to_string(kSums)}});
  return CompileToSharedObject(
      text, ToCpuTarget(target),
      {.opt_level = flags.opt_level, .prefer_vector_width = flags.prefer_vector_width});
}

class Reach {
 public:
  Reach(DeviceQueue* queue, char* out, char* in, Pacer* pacer)
      : queue_(*queue), out_(out), in_(in), pacer_(*pacer) {}

  // Least seconds of a launch of `grid` items, each done so many `times`. `parts` of the input are
  // taken in turn, each as large as what one launch reads.
  double BestSeconds(const DeviceKernel& kernel, int64_t size, int64_t grid, int64_t parts = 1,
                     int64_t times = 1) {
    const int64_t sizes[] = {size, times};
    static_assert(kRounds > kParts);
    double best = 1e30, last = 0;
    for (int64_t round = 0; round < kRounds; ++round) {
      pacer_.Yield(last);
      void* const buffers[] = {out_, in_ + round % parts * grid * size};
      KernelError error;
      const Clock::time_point start = Clock::now();
      queue_.Launch(kernel, {.buffers = buffers,
                             .sizes = sizes,
                             .grid = grid,
                             .work = int64_t{1} << 40,
                             .error = &error});
      queue_.Wait();
      last = std::chrono::duration<double>(Clock::now() - start).count();
      best = std::min(best, last);
    }
    return best;
  }

 private:
  DeviceQueue& queue_;
  char* const out_;
  char* const in_;
  Pacer& pacer_;
};

struct Limits {
  double read = 0, cache = 0, near = 0, flops = 0;
};

absl::Status Measure(const internal::MachineRequest& request, const std::string& arithmetic,
                     const std::string& read, const TrafficReader& traffic, Limits* limits) {
  const int threads = std::max(1, request.threads());
  const std::unique_ptr<PacerView> view = MakePacerView(&traffic);
  Pacer pacer({.cores = UsableCores(), .threads = threads}, view.get());
  auto device = CpuDevice::Create({.threads = threads, .pin = false});
  if (!device.ok()) return device.status();
  auto fma = (*device)->LoadKernel(arithmetic), sum = (*device)->LoadKernel(read);
  if (!fma.ok()) return fma.status();
  if (!sum.ok()) return sum.status();
  auto out = (*device)->Allocate(MemoryKind::kArena, 1 << 20);
  auto in = (*device)->Allocate(MemoryKind::kArena, kMemory);
  if (!out.ok()) return out.status();
  if (!in.ok()) return in.status();
  auto queue = (*device)->NewQueue(0);
  if (!queue.ok()) return queue.status();
  // Pages that were never written are all one page of zeros.
  std::fill_n(static_cast<char*>((*in)->data()), kMemory, 1);
  Reach reach(queue->get(), static_cast<char*>((*out)->data()), static_cast<char*>((*in)->data()),
              &pacer);
  const double flops = 2.0 * request.target().vector_bytes() / 4 * kSums * kSteps * kItems;
  limits->flops = flops / reach.BestSeconds(**fma, kSteps, kItems);
  limits->read =
      kMemory / kParts / reach.BestSeconds(**sum, kChunk, kMemory / kParts / kChunk, kParts);
  const int64_t cached =
      std::max<int64_t>(kChunk * 8, std::min<int64_t>(request.target().l3_bytes() / 4, 8 << 20));
  limits->cache = static_cast<double>(cached) / reach.BestSeconds(**sum, kChunk, cached / kChunk);
  // A piece per thread that its second-level cache holds, so often that the launch does not count.
  const int64_t l2 = request.target().l2_bytes() > 0 ? request.target().l2_bytes() : 512 << 10;
  const int64_t own = std::clamp<int64_t>(l2 / 4, 16 << 10, kChunk);
  constexpr int64_t kTimes = 64;
  limits->near = static_cast<double>(own * threads * kTimes) /
                 reach.BestSeconds(**sum, own, threads, 1, kTimes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<internal::MachineReply> MeasureMachine(const internal::MachineRequest& request,
                                                      const IsolationLimits& limits,
                                                      const TrafficReader& traffic) {
  absl::StatusOr<std::string> arithmetic = CompileFor(kArithmetic, request.target());
  if (!arithmetic.ok()) return arithmetic.status();
  absl::StatusOr<std::string> read = CompileFor(kRead, request.target());
  if (!read.ok()) return read.status();
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create(sizeof(Limits));
  if (!memory.ok()) return memory.status();
  Limits* found = new (memory->data()) Limits();
  absl::Status status = RunIsolated("measuring the machine", limits, [&] {
    return Measure(request, *arithmetic, *read, traffic, found);
  });
  if (!status.ok()) return status;
  internal::MachineReply reply;
  reply.set_read_bytes_per_second(found->read);
  reply.set_cache_bytes_per_second(found->cache);
  reply.set_near_bytes_per_second(found->near);
  reply.set_f32_flops_per_second(found->flops);
  return reply;
}

}  // namespace athanor
