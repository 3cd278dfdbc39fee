// Prints a kernel as CUDA C++:
//
//   RETURN_IF_ERROR(VerifyCuda(kernel));
//   const std::string text = PrintCudaKernel(kernel, target);
//   ASSIGN_OR_RETURN(Cubin cubin, nvrtc->Compile(CudaSourceOf(text, "sm_90a")));
//
// The text is one function, `athanor_kernel` (runtime/device/kernel_abi.h), that takes one struct
// by value, all of whose members have 8 bytes:
//
//   {pointer, bytes} of each buffer but scratch, in the order of the launch's buffer table
//   the sizes
//   work items; address of the workspace; bytes of it per team; address of an ErrorSlot
//
// so that a launch can build it, and read it, without knowing the kernel. Each buffer lies at a
// multiple of its elements' size. The workspace holds CudaWorkspaceBytes for every team that is
// launched; an ErrorSlot has 64 bytes, begins like KernelError (runtime/device/kernel_abi.h), and
// is zero before the launch. Any number of blocks of at most 128 threads, in whole teams, compute
// all items.
#ifndef ATHANOR_COMPILER_CODEGEN_CUDA_DIALECT_H_
#define ATHANOR_COMPILER_CODEGEN_CUDA_DIALECT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/codegen/kir/kir.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Checks what the dialect asks of a verified kernel, if it is no library call. INTERNAL names a
// vector that is not the team's, a library's product, or scratch of fragments that no shared memory
// holds, FAILED_PRECONDITION arguments that no launch takes.
absl::Status VerifyCuda(const kir::Kernel& kernel);

// Returns the bytes of a team's workspace that the kernel needs: none if scratch lies in shared
// memory, as that of teams of several threads does where it fits.
int64_t CudaWorkspaceBytes(const kir::Kernel& kernel);

// REQUIRES: kir::Verify(kernel).ok() and VerifyCuda(kernel).ok(). The text depends on the kernel
// alone; a target's architecture is the compiler's matter. That of a library call is its KIR.
std::string PrintCudaKernel(const kir::Kernel& kernel, const v1::Target& target);

// Returns what NVRTC compiles: the text, the headers that it includes, and the options under which
// operators round as on the CPU.
CudaSource CudaSourceOf(std::string_view text, std::string_view arch);

// Returns a hash of what CudaSourceOf adds to a text, part of a cubin's key.
std::string CudaHeadersHash();

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_CUDA_DIALECT_H_
