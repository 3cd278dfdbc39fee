// f32 contractions against OpenBLAS, interleaved in one process, parity checked first.
//
//   contraction_bench [--json] [--rounds N]
//
// One row per size, thread count and kind: "inputs" packs the right operand in every call, as sgemm
// does; "weight" has it packed once by `prepare`. A product of one row is compared with sgemv where
// that is the faster of the two. Also measures the multiply-add peak of one core and of all, and in
// the rounds of products of few rows the bandwidth of memory, which bounds them.
#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compiler/codegen/cpu/clang.h"
#include "runtime/cpu/module.h"
#include "tests/conformance/harness.h"

extern "C" void openblas_set_num_threads(int);

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

// Multiply-adds on 24 independent vector accumulators: as many as the units can take.
double PeakGflops(int threads) {
  const std::string source = R"(
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
  std::string object = CompileToSharedObject(source, HostCpuTarget(), {}).value();
  auto module = CpuModule::Load(object).value();
  auto* run = reinterpret_cast<void (*)(float*, long)>(module->Symbol("peak").value());
  constexpr long kSteps = 4'000'000;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    auto start = Clock::now();
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&] {
        float out[16] = {0.999f, 0.001f};
        run(out, kSteps);
      });
    }
    for (std::thread& w : workers) w.join();
    best = std::max(best, 2.0 * 24 * 16 * kSteps * threads / Seconds(start) / 1e9);
  }
  return best;
}

// Reads more floats than any cache holds, to find the bandwidth of memory.
class MemoryReader {
 public:
  explicit MemoryReader(int threads)
      : threads_(threads), memory_(std::aligned_alloc(4096, kBytes), std::free) {
    const std::string source = R"(
typedef float V __attribute__((ext_vector_type(16)));
void sum(const V* x, long n, float* out) {
  V s[8] = {};
  for (long i = 0; i + 8 <= n; i += 8) {
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; ++j) s[j] += x[i + j];
  }
  for (int j = 1; j < 8; ++j) s[0] += s[j];
  for (int i = 0; i < 16; ++i) out[i] = s[0][i];
})";
    std::string object = CompileToSharedObject(source, HostCpuTarget(), {}).value();
    module_ = CpuModule::Load(object).value();
    sum_ = reinterpret_cast<Sum>(module_->Symbol("sum").value());
    std::memset(memory_.get(), 0, kBytes);
  }

  // Of one pass over the memory.
  double BytesPerSecond() const {
    const int64_t share = kBytes / threads_ / kVector;
    auto start = Clock::now();
    std::vector<std::thread> workers;
    for (int t = 0; t < threads_; ++t) {
      workers.emplace_back([&, t] {
        float out[16];
        sum_(static_cast<const char*>(memory_.get()) + t * share * kVector, share, out);
      });
    }
    for (std::thread& w : workers) w.join();
    return static_cast<double>(share * kVector * threads_) / Seconds(start);
  }

 private:
  using Sum = void (*)(const void*, long, float*);
  static constexpr int64_t kBytes = int64_t{512} << 20, kVector = 64;
  const int threads_;
  const std::unique_ptr<void, void (*)(void*)> memory_;
  std::unique_ptr<CpuModule> module_;
  Sum sum_;
};

struct Row {
  std::string kind, peer;
  int threads;
  int64_t m, n, k;
  std::vector<double> ours, theirs;  // seconds per call
  std::vector<double> read;          // bytes per second of memory; of products of few rows only
};

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

Compiled CompileContraction(int64_t m, int64_t n, int64_t k, bool weight, const Tensor& b,
                            int threads) {
  Graph g;
  GraphBuilder builder(&g);
  NodeId x = builder.Input("a", {DType::kF32, {m, k}}).value();
  TensorType right{DType::kF32, {k, n}};
  NodeId w = weight ? builder.Parameter("b", right).value() : builder.Input("b", right).value();
  builder.Output("c",
                 builder.Add(Op::kContract, {x, w}, {{"spec", std::string("mk,kn->mn")}}).value());
  v1::Target target = HostTarget();
  target.set_threads(threads);
  std::vector<Tensor> parameters;
  if (weight) parameters.push_back(b);
  return Compile(g, parameters, target, threads, /*poison=*/false).value();
}

// An OpenBLAS product, which leaves its result in `d`.
using Product = std::function<void()>;

double TimeOnce(const Product& product) {
  auto start = Clock::now();
  product();
  return Seconds(start);
}

// sgemm, or for one row the faster of sgemm and sgemv, with its name.
std::pair<std::string, Product> FasterPeer(int64_t m, int64_t n, int64_t k, const Tensor& a,
                                           const Tensor& b, Tensor* d) {
  Product gemm = [=, &a, &b] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a.data<float>(), k,
                b.data<float>(), n, 0, d->data<float>(), n);
  };
  if (m != 1) return {"sgemm", gemm};
  Product gemv = [=, &a, &b] {
    cblas_sgemv(CblasRowMajor, CblasTrans, k, n, 1, b.data<float>(), n, a.data<float>(), 1, 0,
                d->data<float>(), 1);
  };
  std::vector<double> gemm_times, gemv_times;
  for (int i = 0; i < 9; ++i) {
    gemm_times.push_back(TimeOnce(gemm));
    gemv_times.push_back(TimeOnce(gemv));
  }
  if (Median(gemv_times) < Median(gemm_times)) return {"sgemv", gemv};
  return {"sgemm", gemm};
}

void CheckParity(const Tensor& ours, const Tensor& theirs, int64_t k) {
  for (int64_t i = 0; i < ours.elements(); ++i) {
    if (!(std::abs(ours.data<float>()[i] - theirs.data<float>()[i]) <=
          1e-3 * std::sqrt(static_cast<double>(k)))) {
      std::fprintf(stderr, "element %ld differs: %g, OpenBLAS %g\n", static_cast<long>(i),
                   ours.data<float>()[i], theirs.data<float>()[i]);
      std::exit(1);
    }
  }
}

Row Measure(int64_t m, int64_t n, int64_t k, bool weight, int threads, int rounds,
            const MemoryReader& reader) {
  std::mt19937 rng(7);
  Tensor a = RandomTensor(DType::kF32, {m, k}, rng), b = RandomTensor(DType::kF32, {k, n}, rng);
  Tensor c = Tensor::Zeros(DType::kF32, {m, n}), d = c;
  Compiled compiled = CompileContraction(m, n, k, weight, b, threads);
  std::vector<Tensor> inputs = {a};
  if (!weight) inputs.push_back(b);
  openblas_set_num_threads(threads);
  const auto [peer, theirs] = FasterPeer(m, n, k, a, b, &d);
  Product ours = [&] {
    if (absl::Status s = compiled.RunInto(inputs, {&c}); !s.ok()) {
      std::fprintf(stderr, "%s\n", s.ToString().c_str());
      std::exit(1);
    }
  };
  ours();
  theirs();
  CheckParity(c, d, k);
  Row row{weight ? "weight" : "inputs", peer, threads, m, n, k, {}, {}, {}};
  // Some 20 ms a turn.
  const double expected = std::max(2.0 * m * n * k / 2e11, 4.0 * k * n / 4e10);
  const int calls = std::max(1, static_cast<int>(0.02 / expected));
  for (int round = 0; round < rounds; ++round) {
    for (bool mine : {round % 2 == 0, round % 2 != 0}) {
      // OpenBLAS's threads spin for some 30 ms after a call: not into the other side's turn.
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      const Product& side = mine ? ours : theirs;
      side();
      auto start = Clock::now();
      for (int i = 0; i < calls; ++i) side();
      (mine ? row.ours : row.theirs).push_back(Seconds(start) / calls);
    }
    if (m <= 16) row.read.push_back(reader.BytesPerSecond());
  }
  return row;
}

// Of the round's measured bandwidth, the part that reading each operand once takes; -1 if unknown.
double PercentOfBandwidth(const Row& row) {
  const double bytes = 4.0 * (row.m * row.k + row.k * row.n + row.m * row.n);
  std::vector<double> percent;
  for (size_t i = 0; i < row.read.size(); ++i)
    percent.push_back(100 * bytes / row.ours[i] / row.read[i]);
  return percent.empty() ? -1 : Median(percent);
}

void Print(const Row& row, double peak, bool json) {
  std::vector<double> ratios;
  for (size_t i = 0; i < row.ours.size(); ++i) ratios.push_back(row.ours[i] / row.theirs[i]);
  std::sort(ratios.begin(), ratios.end());
  auto at = [&](double part) { return ratios[static_cast<size_t>(part * (ratios.size() - 1))]; };
  const double flops = 2.0 * row.m * row.n * row.k / 1e9;
  const double ours = Median(row.ours), theirs = Median(row.theirs);
  std::printf(
      json ? "{\"bench\":\"contraction\",\"kind\":\"%s\",\"threads\":%d,\"m\":%ld,\"n\":%ld,"
             "\"k\":%ld,\"us\":%.2f,\"openblas_us\":%.2f,\"openblas\":\"%s\",\"gflops\":%.1f,"
             "\"openblas_gflops\":%.1f,\"ratio\":%.3f,\"ratio_p10\":%.3f,\"ratio_q1\":%.3f,"
             "\"ratio_q3\":%.3f,\"ratio_p90\":%.3f,\"percent_of_peak\":%.1f"
           : "%-7s threads %d  %5ld x %5ld x %5ld  ours %9.1f us  OpenBLAS %9.1f us (%s)  %7.1f "
             "and %7.1f GFLOP/s  time ratio %.3f [p10 %.3f, q1 %.3f, q3 %.3f, p90 %.3f]  %5.1f %% "
             "of peak",
      row.kind.c_str(), row.threads, static_cast<long>(row.m), static_cast<long>(row.n),
      static_cast<long>(row.k), 1e6 * ours, 1e6 * theirs, row.peer.c_str(), flops / ours,
      flops / theirs, at(0.5), at(0.1), at(0.25), at(0.75), at(0.9), 100 * flops / ours / peak);
  if (const double percent = PercentOfBandwidth(row); percent >= 0) {
    std::printf(json ? ",\"read_gb_s\":%.2f,\"percent_of_read_bandwidth\":%.1f"
                     : "  %.2f GB/s read bandwidth, %.1f %% of it",
                Median(row.read) / 1e9, percent);
  }
  std::puts(json ? "}" : "");
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  bool json = false;
  int rounds = 15;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) json = true;
    if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = std::atoi(argv[++i]);
  }
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  for (int threads : {1, all}) {
    const double peak = PeakGflops(threads);
    std::printf(json ? "{\"bench\":\"peak\",\"threads\":%d,\"gflops\":%.1f}\n"
                     : "multiply-add peak, threads %d: %.1f GFLOP/s\n",
                threads, peak);
    const MemoryReader reader(threads);
    auto row = [&](int64_t m, int64_t n, int64_t k, bool weight) {
      Print(Measure(m, n, k, weight, threads, rounds, reader), peak, json);
    };
    for (int64_t size : {512, 1024, 2048}) {
      for (bool weight : {false, true}) row(size, size, size, weight);
    }
    for (int64_t m : {1, 4, 16}) {
      for (bool weight : {false, true}) row(m, 4096, 4096, weight);
    }
    row(128, 1536, 384, true);
    row(128, 384, 1536, true);
  }
  return 0;
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) { return athanor::Main(argc, argv); }
