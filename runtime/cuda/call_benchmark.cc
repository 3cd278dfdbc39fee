// Time of the host in a call on a GPU: of a driver that does nothing, so it is a floor of the rest.
//   bazel-bin/runtime/cuda/call_benchmark
#include <memory>
#include <string>

#include "benchmark/benchmark.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/empty_driver_testing.h"
#include "runtime/executor/executor.h"

namespace athanor {
namespace {

// A chain of `range(0)` steps, the last repeated `range(1)` times; each call has other sizes than
// the one before if `range(2)`.
void BM_Call(benchmark::State& state) {
  const auto device = CudaDevice::Create(EmptyDriver(), {}).value();
  const std::string object = EmptyObject();
  const auto executable =
      Executable::Load(ChainPlan(state.range(0), state.range(1)), {object}, {}, device.get(), {})
          .value();
  const auto context = executable->NewContext().value();
  const std::string in(4096, 'x');
  std::string out(4096, 'y');
  int64_t rows = 64;
  for (auto unused : state) {
    if (state.range(2) != 0) rows = 65 - rows;
    const int64_t dims[] = {rows};
    const absl::string_view inputs[] = {absl::string_view(in).substr(0, 64 * rows)};
    const absl::Span<char> outputs[] = {absl::MakeSpan(out).first(64 * rows)};
    const absl::Status status = executable->Run(context.get(), dims, inputs, outputs, {});
    if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
  }
}
BENCHMARK(BM_Call)
    ->ArgNames({"steps", "turns", "sizes"})
    ->ArgsProduct({{1, 20, 100}, {0}, {0, 1}})
    ->Args({4, 100, 0});

}  // namespace
}  // namespace athanor
