#include "server/tuner/measure/machine.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compiler/search/kernels/cost.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/cpus.h"
#include "runtime/cpu/device.h"
#include "server/tuner/measure/pacer.h"
#include "server/tuner/measure/yardstick.h"
#include "server/tuner/run/target_device.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

// Number of passes over all limits. The thread sleeps between them: if another process computes,
// threads that have slept are preferred on their cores for the next milliseconds.
constexpr int kTurns = 12;
constexpr std::chrono::milliseconds kApart{4};
constexpr int64_t kChunk = 256 << 10;  // bytes of one work item
constexpr int64_t kMemory = 96 << 20;  // beyond the caches of most machines
constexpr int64_t kParts = 6;          // read one after the other

// Has the calling convention of runtime/device/kernel_abi.h.
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

// A launch that measures one of the limits by reading a known amount.
struct Load {
  const char* in;
  int64_t size, grid;    // of an item; number of items
  int64_t parts, times;  // parts of the input, used in rotation; repetitions of each item
  int64_t amount;        // bytes per launch
  double* limit;         // the best value so far
  int64_t rounds;        // rounds of a pass; the first wakes threads and fills the cache
  int64_t done = 0;
};

class Reach {
 public:
  Reach(const DeviceKernel* read, DeviceQueue* queue, const DeviceMemory* out, Pacer* pacer)
      : read_(*read), queue_(*queue), out_(*out), pacer_(*pacer) {}

  absl::Status Round(Load* load) {
    const int64_t sizes[] = {load->size, load->times};
    const int64_t part = load->done++ % load->parts, piece = load->grid * load->size;
    void* const buffers[] = {out_.data(), const_cast<char*>(load->in) + part * piece};
    const int64_t bytes[] = {out_.bytes(), piece};
    KernelError error;
    return Round(static_cast<double>(load->amount), load->limit, [&] {
      RETURN_IF_ERROR(queue_.Launch(read_, {.buffers = buffers,
                                            .bytes = bytes,
                                            .sizes = sizes,
                                            .grid = load->grid,
                                            .work = int64_t{1} << 40,
                                            .error = &error}));
      return queue_.Wait();
    });
  }
  absl::Status Round(Yardstick* yard, double* limit) {
    return Round(yard->flops(), limit, [&] { return yard->Run(); });
  }

 private:
  absl::Status Round(double amount, double* limit, absl::FunctionRef<absl::Status()> run) {
    pacer_.Yield(last_);
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(run());
    last_ = std::chrono::duration<double>(Clock::now() - start).count();
    *limit = std::max(*limit, amount / last_);
    return absl::OkStatus();
  }

  const DeviceKernel& read_;
  DeviceQueue& queue_;
  const DeviceMemory& out_;
  Pacer& pacer_;
  double last_ = 0;  // seconds of the previous round
};

// A GPU's limits are not measured yet: what its kind reaches.
internal::MachineReply Typical(const v1::Target& target) {
  const Machine machine = Machine::Typical(target);
  internal::MachineReply reply;
  reply.set_read_bytes_per_second(machine.read_bytes_per_second);
  reply.set_cache_bytes_per_second(machine.cache_bytes_per_second);
  reply.set_near_bytes_per_second(machine.near_bytes_per_second);
  reply.set_f32_flops_per_second(machine.f32_flops_per_second);
  return reply;
}

struct Limits {
  double read = 0, cache = 0, near = 0, flops = 0;
};

absl::Status Measure(const internal::MachineRequest& request, const std::string& arithmetic,
                     const std::string& read, const TrafficReader& traffic, Limits* limits) {
  const int threads = std::max(1, request.threads());
  const std::unique_ptr<PacerView> view = MakePacerView(&traffic);
  Pacer pacer({.cores = UsableCores(), .threads = threads}, view.get());
  // Pins each thread to a CPU: threads woken on a busy CPU would share it for whole rounds.
  auto device = CpuDevice::Create({.threads = threads, .pin = true});
  if (!device.ok()) return device.status();
  const std::vector<int> cpus = UsableCpus();
  if (static_cast<int>(cpus.size()) >= threads) UseCpus({cpus.front()});
  auto yard =
      Yardstick::Create(device->get(), arithmetic, request.target().vector_bytes(), threads);
  if (!yard.ok()) return yard.status();
  auto sum = (*device)->LoadKernel(read);
  if (!sum.ok()) return sum.status();
  constexpr int64_t kPart = kMemory / kParts;
  const int64_t cached =
      std::clamp<int64_t>(request.target().l3_bytes() / 4, kChunk * 8, 8 << 20) / kChunk * kChunk;
  // Gives each thread a piece that fits its second-level cache, repeated so often that the launch
  // time does not matter.
  const int64_t l2 = request.target().l2_bytes() > 0 ? request.target().l2_bytes() : 512 << 10;
  const int64_t own = std::clamp<int64_t>(l2 / 4, 16 << 10, kChunk);
  constexpr int64_t kTimes = 64;
  const int64_t near = kMemory + cached, all = near + own * threads;
  auto out = (*device)->Allocate(MemoryKind::kArena,
                                 kMemory / kChunk * std::max(4, request.target().vector_bytes()));
  auto memory = (*device)->Allocate(MemoryKind::kArena, all);
  if (!out.ok()) return out.status();
  if (!memory.ok()) return memory.status();
  auto queue = (*device)->NewQueue(0);
  if (!queue.ok()) return queue.status();
  // Writes the pages, since unwritten pages all map to one page of zeros. The pieces for caches lie
  // apart.
  char* const in = static_cast<char*>((*memory)->data());
  std::fill_n(in, all, 1);
  Load loads[] = {
      {in, kChunk, kPart / kChunk, kParts, 1, kPart, &limits->read, 2},
      {in + kMemory, kChunk, cached / kChunk, 1, 1, cached, &limits->cache, 4},
      {in + near, own, threads, 1, kTimes, own * threads * kTimes, &limits->near, 4},
  };
  Reach reach(sum->get(), queue->get(), out->get(), &pacer);
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn > 0) std::this_thread::sleep_for(kApart);
    // The first of a pass wakes threads.
    for (int round = 0; round < 2; ++round) {
      RETURN_IF_ERROR(reach.Round(&*yard, &limits->flops));
    }
    for (Load& load : loads) {
      for (int64_t round = 0; round < load.rounds; ++round) {
        RETURN_IF_ERROR(reach.Round(&load));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<internal::MachineReply> MeasureMachine(const internal::MachineRequest& request,
                                                      const IsolationLimits& limits,
                                                      const TrafficReader& traffic) {
  if (!RunsOnHost(request.target())) return Typical(request.target());
  absl::StatusOr<std::string> arithmetic = Yardstick::Compile(request.target());
  if (!arithmetic.ok()) return arithmetic.status();
  absl::StatusOr<std::string> read = CompileForMeasuring(kRead, request.target());
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
