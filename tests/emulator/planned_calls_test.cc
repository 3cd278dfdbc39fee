// Plans with library calls as the planner makes them from KIR, on the emulated GPU: calls between
// kernels of code, with workspaces in the arena, by the objects that the library's proposals are.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/kir/emitter.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/plan/planner.h"
#include "gtest/gtest.h"
#include "runtime/cuda/device.h"
#include "runtime/executor/executor.h"
#include "runtime/program/program.h"
#include "tests/emulator/testing.h"

namespace athanor {
namespace {

constexpr int64_t kInner = 8, kColumns = 12, kMost = 40;

// result[n, columns] = left[n, kInner] * right[kInner, columns] (+ bias[columns]).
kir::Kernel Call(int64_t columns, bool bias, int64_t workspace, const std::string& ways, int rank) {
  kir::Kernel kernel = *kir::ParseKernel(absl::StrCat(
      "kernel(s0) grid 1\nb0: f32 out\nb1: f32 in\nb2: f32 in\n", bias ? "b3: f32 in\n" : "",
      workspace > 0 ? absl::StrCat(bias ? "b4" : "b3", ": u8 launch ", workspace, "\n") : "",
      "call b0[0] stride ", columns, " = b1[0] stride ", kInner, " * b2[0] stride ", columns,
      bias ? " + b3" : "", ": f32 rows s0 columns ", columns, " sums ", kInner, " batch 1 ways ",
      ways, " proposal ", rank, "\n"));
  EXPECT_TRUE(kir::Verify(kernel).ok()) << kir::Verify(kernel);
  kernel.name = "product";
  kernel.sizes = {"n"};
  return kernel;
}

// result[n, kInner] = 2 * operand.
kir::Kernel Twice() {
  Bounds bounds;
  bounds.Set("n", 0, kMost);
  kir::Emitter e(bounds);
  const int out = e.Global(DType::kF32, true), in = e.Global(DType::kF32, false);
  const Expr i = Expr::Symbol(kir::kGrid);
  const kir::Var x = e.Load(in, i, 1, {});
  e.Store(out, i, e.Compute(Op::kAdd, DType::kF32, {x, x}), {});
  return std::move(e).Finish("twice", kInner * Expr::Symbol("n"));
}

struct Planned {
  PlanInput in;

  int Value(ValueKind kind, TensorType type, const std::string& name = "") {
    in.values.push_back({kind, std::move(type), name, {}});
    return static_cast<int>(in.values.size()) - 1;
  }
  int Floats(ValueKind kind, Shape shape, const std::string& name = "") {
    return Value(kind, {DType::kF32, std::move(shape)}, name);
  }
  // Adds a launch, with a value for each buffer that is memory of it; returns its result.
  int Launch(kir::Kernel kernel, Shape shape, std::vector<int> operands) {
    const int result = Floats(ValueKind::kComputed, std::move(shape));
    operands.insert(operands.begin(), result);
    for (const kir::Buffer& b : kernel.buffers) {
      if (b.space != kir::Space::kLaunch) continue;
      operands.push_back(Value(ValueKind::kLaunch, {b.dtype, {b.elements}}));
    }
    in.launches.push_back({std::move(kernel), std::move(operands), "l", 1, 1});
    return result;
  }
};

// rows of x go through  t = x * w (library),  u = 2 * t (kernel),  y = u * v + b (library).
v1::Plan MakePlan(const std::string& ways, int rank, int64_t workspace) {
  Planned p;
  const Expr n = Expr::Symbol("n");
  p.in.dims = {{"n", 0, kMost}};
  p.in.dim_names = {"rows"};
  p.in.target.set_device("cuda");
  p.in.scratch_bytes = CudaWorkspaceBytes;
  const int x = p.Floats(ValueKind::kInput, {n, kInner}, "x");
  const int w = p.Floats(ValueKind::kParameter, {kInner, kInner}, "w");
  const int v = p.Floats(ValueKind::kParameter, {kInner, kColumns}, "v");
  const int b = p.Floats(ValueKind::kParameter, {kColumns}, "b");
  const int t = p.Launch(Call(kInner, /*bias=*/false, workspace, ways, rank), {n, kInner}, {x, w});
  const int u = p.Launch(Twice(), {n, kInner}, {t});
  const int y =
      p.Launch(Call(kColumns, /*bias=*/true, workspace, ways, rank), {n, kColumns}, {u, v, b});
  p.in.outputs = {{"y", y}};
  for (const PlanLaunch& launch : p.in.launches) EXPECT_TRUE(VerifyCuda(launch.kernel).ok());
  absl::StatusOr<v1::Plan> plan = MakePlan(p.in, [&](const kir::Kernel& k, const std::string&) {
    return PrintCudaKernel(k, p.in.target);
  });
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : v1::Plan();
}

// Returns an object for each kernel: code of the compiler, or the library's algorithms of the rank
// that the KIR asks for.
std::vector<std::string> ObjectsOf(const v1::Plan& plan, const CudaDevice& device) {
  const Program program = BuildProgram(plan).value();
  std::vector<std::string> objects;
  for (const v1::Kernel& kernel : plan.kernels()) {
    if (kernel.library_call()) {
      objects.emplace_back();
      continue;
    }
    const absl::StatusOr<Cubin> cubin =
        emulator::Compiler().value()->Compile(CudaSourceOf(kernel.source(), "sm_80"));
    EXPECT_TRUE(cubin.ok()) << cubin.status();
    objects.push_back(cubin.ok() ? cubin->code : "");
  }
  EXPECT_TRUE(device.Enter().ok());
  for (const Program::Step& step : program.run) {
    if (step.call < 0) continue;
    const kir::Kernel kernel = *kir::ParseKernel(plan.kernels(step.kernel).source());
    v1::LibraryObject object;
    for (const LibraryCall& way : program.calls[step.call].ways) {
      const auto proposals = device.library().value()->Propose(way, 8, way.workspace_bytes).value();
      const LibraryCall& proposed = proposals[kir::CallOf(kernel)->proposal];
      object.set_library(proposed.library);
      object.add_algorithms(proposed.algorithm);
    }
    objects[step.kernel] = object.SerializeAsString();
  }
  return objects;
}

TEST(PlannedCallsTest, CallsAmongKernels) {
  const auto device = CudaDevice::Create(*emulator::NewDevice().value(),
                                         {.library_folder = emulator::kLibraryFolder})
                          .value();
  std::vector<float> w(kInner * kInner), v(kInner * kColumns), b(kColumns);
  for (std::vector<float>* weights : {&w, &v, &b}) {
    for (size_t i = 0; i < weights->size(); ++i) (*weights)[i] = static_cast<float>(i % 5) - 2;
  }
  const auto view = [](const std::vector<float>& f) {
    return absl::string_view(reinterpret_cast<const char*>(f.data()), f.size() * sizeof(float));
  };
  const ParameterView parameters[] = {
      {"w", view(w), nullptr}, {"v", view(v), nullptr}, {"b", view(b), nullptr}};
  // Two of the ranks want a workspace where there is one.
  for (const auto& [ways, rank, workspace] : {std::tuple("40", 0, 0),
                                              {"40", 0, 4096},
                                              {"1 7 40", 1, 0},
                                              {"1 7 40", 0, 4096},
                                              {"1 7 40", 3, 65536}}) {
    SCOPED_TRACE(absl::StrCat(ways, " rank ", rank, " workspace ", workspace));
    const v1::Plan plan = MakePlan(ways, rank, workspace);
    const std::vector<std::string> objects = ObjectsOf(plan, *device);
    const std::vector<absl::string_view> views(objects.begin(), objects.end());
    const auto loaded = Executable::Load(plan, views, parameters, device.get(), {.poison = true});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto context = (*loaded)->NewContext().value();
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, int64_t{8}, kMost}) {
      std::vector<float> x(rows * kInner), y(rows * kColumns), want(rows * kColumns);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((rows + i) % 7);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < kColumns; ++c) {
          want[r * kColumns + c] = b[c];
          for (int64_t k = 0; k < kInner; ++k) {
            float t = 0;
            for (int64_t i = 0; i < kInner; ++i) t += x[r * kInner + i] * w[i * kInner + k];
            want[r * kColumns + c] += 2 * t * v[k * kColumns + c];
          }
        }
      }
      const absl::Span<char> out(reinterpret_cast<char*>(y.data()), y.size() * sizeof(float));
      const absl::Status status = (*loaded)->Run(context.get(), {rows}, {view(x)}, {out}, {});
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(y, want) << rows;
    }
  }
}

}  // namespace
}  // namespace athanor
