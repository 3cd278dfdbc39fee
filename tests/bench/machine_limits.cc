#include "tests/bench/machine_limits.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "compiler/codegen/cpu/clang.h"

namespace athanor {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kMemory = int64_t{512} << 20;
constexpr int64_t kVector = 64;
constexpr int64_t kSums = 24;
constexpr int64_t kStretches = 4;
// Pieces of work per thread; a thread that starts late does fewer.
constexpr int64_t kPieces = 16;

constexpr char kPeakSource[] = R"(
typedef float V __attribute__((ext_vector_type(16)));
void peak(float* out, long n) {
  V a[24];
  for (int i = 0; i < 24; ++i) a[i] = (V)(float)(i + 1);
  V x = (V)out[0], y = (V)out[1];
  for (long k = 0; k < n; ++k) {
#pragma clang loop unroll(full)
    for (int i = 0; i < 24; ++i) a[i] = __builtin_elementwise_fma(a[i], x, y);
  }
  V s = a[0];
  for (int i = 1; i < 24; ++i) s += a[i];
  for (int i = 0; i < 16; ++i) out[i] = s[i];
})";

// Sums four stretches of n vectors each.
constexpr char kSumSource[] = R"(
typedef float V __attribute__((ext_vector_type(16)));
void sum(const V* x, long n, float* out) {
  V s[8] = {};
  for (long i = 0; i + 8 <= n; i += 8) {
#pragma clang loop unroll(full)
    for (int t = 0; t < 4; ++t) {
#pragma clang loop unroll(full)
      for (int j = 0; j < 8; ++j) s[j] += x[t * n + i + j];
    }
  }
  for (int j = 1; j < 8; ++j) s[0] += s[j];
  for (int i = 0; i < 16; ++i) out[i] = s[0][i];
})";

std::unique_ptr<CpuModule> Load(const char* source) {
  return CpuModule::Load(CompileToSharedObject(source, HostCpuTarget(), {}).value()).value();
}

std::unique_ptr<ThreadPool> Threads(int count) {
  return ThreadPool::Create({.threads = count, .pin = false}).value();
}

int64_t Pieces(const ThreadPool& pool) { return pool.threads() * kPieces; }

// Returns the seconds until all pieces are done. Runs the last few once before, which wakes the
// threads.
double Seconds(ThreadPool* pool, absl::FunctionRef<void(int64_t piece)> work) {
  const int64_t pieces = Pieces(*pool), before = 2 * pool->threads();
  const auto range = [&](int64_t offset) {
    return [&work, offset](int, int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) work(offset + piece);
    };
  };
  pool->ParallelFor(before, range(pieces - before));
  const double start = Now(pool->threads());
  pool->ParallelFor(pieces, range(0));
  return Now(pool->threads()) - start;
}

}  // namespace

double Now(int threads) {
  timespec now;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

HugeBuffer::HugeBuffer(int64_t bytes)
    : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage),
      memory_(std::aligned_alloc(kHugePage, bytes_), std::free) {
  madvise(memory_.get(), bytes_, MADV_HUGEPAGE);
  std::memset(memory_.get(), 0, bytes_);
}

ArithmeticPeak::ArithmeticPeak(int threads)
    : pool_(Threads(threads)),
      module_(Load(kPeakSource)),
      run_(reinterpret_cast<Run>(module_->Symbol("peak").value())) {}

double ArithmeticPeak::FlopsPerSecond() const {
  constexpr int64_t kSteps = 80'000;  // per piece
  const double seconds = Seconds(pool_.get(), [&](int64_t) {
    float out[16] = {0.999f, 0.001f};
    run_(out, kSteps);
  });
  return 2.0 * kSums * 16 * kSteps * static_cast<double>(Pieces(*pool_)) / seconds;
}

MemoryReader::MemoryReader(int threads)
    : pool_(Threads(threads)),
      memory_(kMemory),
      module_(Load(kSumSource)),
      sum_(reinterpret_cast<Sum>(module_->Symbol("sum").value())) {}

double MemoryReader::BytesPerSecond() const {
  const int64_t stretch = kMemory / Pieces(*pool_) / kStretches / kVector;
  const int64_t share = stretch * kStretches * kVector;
  const double seconds = Seconds(pool_.get(), [&](int64_t piece) {
    float out[16];
    sum_(static_cast<const char*>(memory_.data()) + piece * share, stretch, out);
  });
  return static_cast<double>(share * Pieces(*pool_)) / seconds;
}

}  // namespace athanor
