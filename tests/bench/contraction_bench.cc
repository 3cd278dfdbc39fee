// f32 contractions against OpenBLAS, interleaved in one process, parity checked first.
//
//   contraction_bench [--json] [--rounds N]
//
// One row per size, thread count and kind: "inputs" packs the right operand in every call, as sgemm
// does; "weight" has it packed once by `prepare`. Also measures the multiply-add peak of one core
// and of all.
#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
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

struct Row {
  std::string name, kind;
  int threads;
  int64_t m, n, k;
  std::vector<double> ours, theirs;  // seconds per call
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

Row Measure(int64_t m, int64_t n, int64_t k, bool weight, int threads, int rounds) {
  std::mt19937 rng(7);
  Tensor a = RandomTensor(DType::kF32, {m, k}, rng), b = RandomTensor(DType::kF32, {k, n}, rng);
  Tensor c = Tensor::Zeros(DType::kF32, {m, n}), d = c;
  Compiled compiled = CompileContraction(m, n, k, weight, b, threads);
  std::vector<Tensor> inputs = {a};
  if (!weight) inputs.push_back(b);
  openblas_set_num_threads(threads);
  auto theirs = [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a.data<float>(), k,
                b.data<float>(), n, 0, d.data<float>(), n);
  };
  auto ours = [&] {
    if (absl::Status s = compiled.RunInto(inputs, {&c}); !s.ok()) {
      std::fprintf(stderr, "%s\n", s.ToString().c_str());
      std::exit(1);
    }
  };
  ours();
  theirs();
  for (int64_t i = 0; i < m * n; ++i) {
    if (!(std::abs(c.data<float>()[i] - d.data<float>()[i]) <=
          1e-3 * std::sqrt(static_cast<double>(k)))) {
      std::fprintf(stderr, "element %ld differs: %g, OpenBLAS %g\n", static_cast<long>(i),
                   c.data<float>()[i], d.data<float>()[i]);
      std::exit(1);
    }
  }
  Row row{"contraction", weight ? "weight" : "inputs", threads, m, n, k, {}, {}};
  const double flops = 2.0 * m * n * k;
  const int calls = std::max(1, static_cast<int>(0.02 * 2e11 / flops));
  for (int round = 0; round < rounds; ++round) {
    for (auto* side : {&row.ours, &row.theirs}) {
      // OpenBLAS's threads spin for some 30 ms after a call: not into the other side's turn.
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      side == &row.ours ? ours() : theirs();
      auto start = Clock::now();
      for (int i = 0; i < calls; ++i) side == &row.ours ? ours() : theirs();
      side->push_back(Seconds(start) / calls);
    }
  }
  return row;
}

void Print(const Row& row, double peak, bool json) {
  std::vector<double> ratios;
  for (size_t i = 0; i < row.ours.size(); ++i) ratios.push_back(row.ours[i] / row.theirs[i]);
  std::sort(ratios.begin(), ratios.end());
  const double flops = 2.0 * row.m * row.n * row.k;
  const double ours = flops / Median(row.ours) / 1e9, theirs = flops / Median(row.theirs) / 1e9;
  const double low = ratios[ratios.size() / 10], high = ratios[ratios.size() * 9 / 10];
  std::printf(json ? "{\"bench\":\"contraction\",\"kind\":\"%s\",\"threads\":%d,\"m\":%ld,\"n\":%"
                     "ld,\"k\":%ld,"
                     "\"gflops\":%.1f,\"openblas_gflops\":%.1f,\"ratio\":%.3f,\"ratio_p10\":%.3f,"
                     "\"ratio_p90\":%.3f,\"percent_of_peak\":%.1f}\n"
                   : "%-7s threads %d  %5ld x %5ld x %5ld  ours %7.1f GFLOP/s  OpenBLAS %7.1f  "
                     "time ratio %.3f "
                     "[%.3f, %.3f]  %.1f %% of peak\n",
              row.kind.c_str(), row.threads, static_cast<long>(row.m), static_cast<long>(row.n),
              static_cast<long>(row.k), ours, theirs, ratios[ratios.size() / 2], low, high,
              100 * ours / peak);
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
    for (int64_t size : {512, 1024}) {
      for (bool weight : {false, true})
        Print(Measure(size, size, size, weight, threads, rounds), peak, json);
    }
    Print(Measure(128, 1536, 384, true, threads, rounds), peak, json);
    Print(Measure(128, 384, 1536, true, threads, rounds), peak, json);
  }
  return 0;
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) { return athanor::Main(argc, argv); }
