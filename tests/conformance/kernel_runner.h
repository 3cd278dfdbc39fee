// Compiles one KIR kernel for a target and runs it over tensors: on the CPU in guarded, unaligned
// memory, on the GPU (devices.h) in memory whose every access the emulator checks.
//
//   std::vector<Tensor> outputs = {Tensor::Zeros(DType::kF32, {n})};
//   KernelError e = RunKernel(kernel, Machines()[0], {&x}, {n}, /*grid=*/1, &outputs).value();
#ifndef ATHANOR_TESTS_CONFORMANCE_KERNEL_RUNNER_H_
#define ATHANOR_TESTS_CONFORMANCE_KERNEL_RUNNER_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/ir/value/tensor.h"
#include "proto/athanor/v1/target.pb.h"
#include "runtime/device/kernel_abi.h"

namespace athanor {

struct Machine {
  std::string name;
  v1::Target target;
  int lanes = 4;  // lanes of the vectors to test with
};

inline std::ostream& operator<<(std::ostream& out, const Machine& m) { return out << m.name; }

// Returns every kind of target that this program can run: CPUs, the widest first, and the GPU.
std::vector<Machine> Machines();

// Runs a kernel. `inputs` are the first global buffers; `outputs` are the others, filled with a
// pattern before. INTERNAL if the kernel wrote outside its outputs. Sizes are s0, s1, ...
absl::StatusOr<KernelError> RunKernel(const kir::Kernel& kernel, const Machine& machine,
                                      const std::vector<const Tensor*>& inputs,
                                      const std::vector<int64_t>& sizes, int64_t grid,
                                      std::vector<Tensor>* outputs);

// Runs a kernel on the GPU. `tensors` are its global buffers in order, and receive what it writes.
absl::StatusOr<KernelError> RunGpuKernel(const kir::Kernel& kernel,
                                         const std::vector<Tensor*>& tensors,
                                         const std::vector<int64_t>& sizes, int64_t grid);

}  // namespace athanor

#endif  // ATHANOR_TESTS_CONFORMANCE_KERNEL_RUNNER_H_
