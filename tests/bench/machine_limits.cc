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

// Four stretches of n vectors each.
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

// Seconds until each of so many threads has done its part.
double Seconds(int threads, absl::FunctionRef<void(int thread)> part) {
  const double start = Now(threads);
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back([&, t] { part(t); });
  part(0);
  for (std::thread& other : others) other.join();
  return Now(threads) - start;
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
    : threads_(threads),
      module_(Load(kPeakSource)),
      run_(reinterpret_cast<Run>(module_->Symbol("peak").value())) {}

double ArithmeticPeak::FlopsPerSecond() const {
  constexpr int64_t kSteps = 50'000;
  const double seconds = Seconds(threads_, [&](int) {
    float out[16] = {0.999f, 0.001f};
    run_(out, kSteps);
  });
  return 2.0 * kSums * 16 * kSteps * threads_ / seconds;
}

MemoryReader::MemoryReader(int threads)
    : threads_(threads),
      memory_(kMemory),
      module_(Load(kSumSource)),
      sum_(reinterpret_cast<Sum>(module_->Symbol("sum").value())) {}

double MemoryReader::BytesPerSecond() const {
  const int64_t stretch = kMemory / threads_ / kStretches / kVector;
  const int64_t share = stretch * kStretches;
  const double seconds = Seconds(threads_, [&](int t) {
    float out[16];
    sum_(static_cast<const char*>(memory_.data()) + t * share * kVector, stretch, out);
  });
  return static_cast<double>(share * kVector * threads_) / seconds;
}

}  // namespace athanor
