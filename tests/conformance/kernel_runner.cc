#include "tests/conformance/kernel_runner.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cpu/dialect.h"
#include "compiler/ir/value/message.h"
#include "runtime/cpu/module.h"
#include "tests/conformance/guarded.h"

namespace athanor {
namespace {

Machine MachineOf(std::string name, const std::string& cpu, std::vector<std::string> features,
                  int bytes) {
  Machine m{std::move(name), {}, bytes / 4};
  m.target.set_triple(HostCpuTarget().triple);
  m.target.set_cpu(cpu);
  std::sort(features.begin(), features.end());
  for (const std::string& f : features) m.target.add_features(f);
  m.target.set_vector_bytes(bytes);
  return m;
}

}  // namespace

std::vector<Machine> Machines() {
  const CpuTarget host = HostCpuTarget();
  auto has = [&](const char* f) {
    return std::find(host.features.begin(), host.features.end(), f) != host.features.end();
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
    machines.push_back(MachineOf("avx512", "x86-64", avx512, 64));
    machines.push_back(MachineOf("avx512_short", "x86-64", avx512, 64));
    machines.back().lanes = 4;
  }
  if (all(avx2)) machines.push_back(MachineOf("avx2", "x86-64", avx2, 32));
  // Adds the baseline of the target triple.
  machines.push_back(MachineOf("generic", "x86-64", {}, 16));
  return machines;
}

absl::StatusOr<KernelError> RunKernel(const kir::Kernel& kernel, const Machine& machine,
                                      const std::vector<const Tensor*>& inputs,
                                      const std::vector<int64_t>& sizes, int64_t grid,
                                      std::vector<Tensor>* outputs) {
  if (absl::Status s = kir::Verify(kernel); !s.ok()) return s;
  const v1::Target& t = machine.target;
  const CpuTarget target{t.triple(), t.cpu(), {t.features().begin(), t.features().end()}};
  ClangOptions options;
  options.opt_level = 1;
  const std::string source = PrintCpuKernel(kernel, t);
  // Keeps objects, so that a kernel that runs at several sizes is compiled once.
  static std::map<std::string, std::string>& objects = *new std::map<std::string, std::string>;
  std::string& known = objects[Cat(machine.name, source)];
  if (known.empty()) {
    absl::StatusOr<std::string> object = CompileToSharedObject(source, target, options);
    if (!object.ok()) return Prefixed(Cat(source, "\n"), object.status());
    known = *std::move(object);
  }
  absl::StatusOr<std::unique_ptr<CpuModule>> module = CpuModule::Load(known);
  if (!module.ok()) return module.status();
  absl::StatusOr<void*> symbol = (*module)->Symbol(kCpuKernelSymbol);
  if (!symbol.ok()) return symbol.status();

  std::vector<std::unique_ptr<Guarded>> memory;
  std::vector<void*> buffers;
  auto add = [&](const Tensor& tensor) {
    memory.push_back(std::make_unique<Guarded>(tensor));
    buffers.push_back(memory.back()->data());
  };
  for (const Tensor* input : inputs) add(*input);
  for (Tensor& output : *outputs) {
    std::fill(output.bytes.begin(), output.bytes.end(), Guarded::kPattern);
    add(output);
  }
  std::string scratch(kernel.ScratchBytes() + 64, Guarded::kPattern);
  KernelError error;
  reinterpret_cast<CpuKernel>(*symbol)(buffers.data(), sizes.data(), 0, grid, scratch.data(),
                                       &error);
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i]->Intact())
      return absl::InternalError(Cat("b", i, ": written outside its tensor"));
    if (i < inputs.size()) {
      if (std::memcmp(memory[i]->data(), inputs[i]->bytes.data(), inputs[i]->bytes.size()) != 0) {
        return absl::InternalError(Cat("b", i, ": an input was written"));
      }
      continue;
    }
    std::string& bytes = (*outputs)[i - inputs.size()].bytes;
    bytes.assign(memory[i]->data(), bytes.size());
  }
  return error;
}

}  // namespace athanor
