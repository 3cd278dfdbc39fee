#include "tests/conformance/kernel_runner.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "compiler/codegen/cpu/dialect.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/module.h"
#include "runtime/executor/one_launch_testing.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/guarded.h"

namespace athanor {
namespace {

Machine MachineOf(std::string name, const v1::Target& host, std::vector<std::string> features,
                  int bytes) {
  Machine m{std::move(name), {}, bytes / 4};
  m.target.set_device("cpu");
  m.target.set_triple(host.triple());
  m.target.set_cpu("x86-64");  // the baseline of the triple
  std::sort(features.begin(), features.end());
  for (const std::string& f : features) m.target.add_features(f);
  m.target.set_vector_bytes(bytes);
  return m;
}

std::vector<Machine> CpuMachines(const v1::Target& host) {
  auto has = [&](const char* f) {
    return std::find(host.features().begin(), host.features().end(), f) != host.features().end();
  };
  const std::vector<std::string> avx2 = {"+avx", "+avx2", "+fma", "+f16c", "+sse4.1"};
  std::vector<std::string> avx512 = avx2;
  avx512.insert(avx512.end(), {"+avx512f", "+avx512bw", "+avx512dq", "+avx512vl"});
  auto all = [&](const std::vector<std::string>& features) {
    return std::all_of(features.begin(), features.end(),
                       [&](const std::string& f) { return has(f.c_str()); });
  };
  std::vector<Machine> machines;
  if (all(avx512)) {
    machines.push_back(MachineOf("avx512", host, avx512, 64));
    machines.push_back(MachineOf("avx512_short", host, avx512, 64));
    machines.back().lanes = 4;
  }
  if (all(avx2)) machines.push_back(MachineOf("avx2", host, avx2, 32));
  machines.push_back(MachineOf("generic", host, {}, 16));
  return machines;
}

}  // namespace

std::vector<Machine> Machines() {
  std::vector<Machine> machines;
  if (const std::optional<v1::Target> cpu = TestCpu()) machines = CpuMachines(*cpu);
  machines.push_back(Machine{"gpu", {}, /*lanes=*/1});
  machines.back().target.set_device("cuda");
  return machines;
}

namespace {

absl::StatusOr<std::string> CodeOf(const kir::Kernel& kernel, const v1::Target& t) {
  if (t.device() == "cuda") {
    RETURN_IF_ERROR(VerifyCuda(kernel));
    return GpuCode(PrintCudaKernel(kernel, t));
  }
  return CpuCode(PrintCpuKernel(kernel, t), t, /*opt_level=*/1);
}

absl::Status Written(size_t buffer) {
  return absl::InternalError(Cat("b", buffer, ": an input was written"));
}

absl::StatusOr<KernelError> RunOnCpu(const std::string& code, const kir::Kernel& kernel,
                                     const std::vector<const Tensor*>& inputs,
                                     const std::vector<int64_t>& sizes, int64_t grid,
                                     std::vector<Tensor>* outputs) {
  ASSIGN_OR_RETURN(std::unique_ptr<CpuModule> module, CpuModule::Load(code));
  ASSIGN_OR_RETURN(void* symbol, module->Symbol(kCpuKernelSymbol));
  std::vector<std::unique_ptr<Guarded>> memory;
  std::vector<void*> buffers;
  auto add = [&](const Tensor& tensor) {
    memory.push_back(std::make_unique<Guarded>(tensor));
    buffers.push_back(memory.back()->data());
  };
  for (const Tensor* input : inputs) add(*input);
  for (const Tensor& output : *outputs) add(output);
  std::string scratch(kernel.ScratchBytes() + 64, Guarded::kPattern);
  KernelError error;
  reinterpret_cast<CpuKernel>(symbol)(buffers.data(), sizes.data(), 0, grid, scratch.data(),
                                      &error);
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i]->Intact())
      return absl::InternalError(Cat("b", i, ": written outside its tensor"));
    if (i < inputs.size()) {
      const std::string& given = inputs[i]->bytes;
      if (std::memcmp(memory[i]->data(), given.data(), given.size()) != 0) return Written(i);
      continue;
    }
    std::string& bytes = (*outputs)[i - inputs.size()].bytes;
    bytes.assign(memory[i]->data(), bytes.size());
  }
  return error;
}

absl::StatusOr<KernelError> RunOnGpu(const std::string& code, const kir::Kernel& kernel,
                                     const std::vector<Tensor*>& tensors,
                                     const std::vector<int64_t>& sizes, int64_t grid) {
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaDevice> device, TestGpu());
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceKernel> loaded, device->LoadKernel(code));
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceQueue> queue,
                   device->NewQueue(CudaWorkspaceBytes(kernel)));
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<void*> buffers;
  std::vector<int64_t> lengths;
  for (const Tensor* tensor : tensors) {
    lengths.push_back(static_cast<int64_t>(tensor->bytes.size()));
    ASSIGN_OR_RETURN(memory.emplace_back(),
                     device->Allocate(MemoryKind::kArena, std::max<int64_t>(lengths.back(), 1)));
    RETURN_IF_ERROR(memory.back()->Commit(0, lengths.back()));
    buffers.push_back(memory.back()->data());
    RETURN_IF_ERROR(
        queue->Copy(buffers.back(), tensor->bytes.data(), lengths.back(), CopyKind::kToDevice));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<OneLaunch> launch,
                   OneLaunch::Record(*device, *queue,
                                     {.kernel = loaded.get(),
                                      .buffers = static_cast<int>(buffers.size()),
                                      .sizes = static_cast<int>(sizes.size()),
                                      .most_items = grid,
                                      .team = kernel.team}));
  launch->Set(buffers, lengths, sizes, grid);
  RETURN_IF_ERROR(launch->Enqueue(*queue));
  RETURN_IF_ERROR(queue->Wait());
  for (size_t i = 0; i < tensors.size(); ++i) {
    RETURN_IF_ERROR(
        queue->Copy(tensors[i]->bytes.data(), buffers[i], lengths[i], CopyKind::kToHost));
  }
  RETURN_IF_ERROR(queue->Wait());
  return launch->error();
}

// Returns the code of a kernel. Keeps it, so that a kernel that runs at several sizes is compiled
// once.
absl::StatusOr<std::string> KnownCode(const kir::Kernel& kernel, const Machine& machine) {
  RETURN_IF_ERROR(kir::Verify(kernel));
  static std::map<std::string, std::string>& codes = *new std::map<std::string, std::string>;
  std::string& known = codes[Cat(machine.name, kir::ToText(kernel))];
  if (known.empty()) {
    ASSIGN_OR_RETURN(known, CodeOf(kernel, machine.target));
  }
  return known;
}

}  // namespace

absl::StatusOr<KernelError> RunGpuKernel(const kir::Kernel& kernel,
                                         const std::vector<Tensor*>& tensors,
                                         const std::vector<int64_t>& sizes, int64_t grid) {
  ASSIGN_OR_RETURN(const std::string code, KnownCode(kernel, Machines().back()));
  return RunOnGpu(code, kernel, tensors, sizes, grid);
}

absl::StatusOr<KernelError> RunKernel(const kir::Kernel& kernel, const Machine& machine,
                                      const std::vector<const Tensor*>& inputs,
                                      const std::vector<int64_t>& sizes, int64_t grid,
                                      std::vector<Tensor>* outputs) {
  ASSIGN_OR_RETURN(const std::string code, KnownCode(kernel, machine));
  for (Tensor& output : *outputs) {
    std::fill(output.bytes.begin(), output.bytes.end(), Guarded::kPattern);
  }
  if (machine.target.device() != "cuda") {
    return RunOnCpu(code, kernel, inputs, sizes, grid, outputs);
  }
  std::vector<Tensor> copies;
  for (const Tensor* input : inputs) copies.push_back(*input);
  std::vector<Tensor*> tensors;
  for (Tensor& copy : copies) tensors.push_back(&copy);
  for (Tensor& output : *outputs) tensors.push_back(&output);
  ASSIGN_OR_RETURN(const KernelError error, RunOnGpu(code, kernel, tensors, sizes, grid));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (copies[i].bytes != inputs[i]->bytes) return Written(i);
  }
  return error;
}

}  // namespace athanor
