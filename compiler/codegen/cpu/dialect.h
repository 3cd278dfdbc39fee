// Prints a kernel as one C translation unit for CPUs: Clang's vector types, no includes, one
// exported function `athanor_kernel` with the calling convention of runtime/device/kernel_abi.h.
//
//   std::string source = PrintCpuKernel(kernel, target);
//   CompileToSharedObject(source, cpu_target, {});           // clang.h
//
// Equal kernels (names do not count) give equal text for equal targets.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_DIALECT_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_DIALECT_H_

#include <string>

#include "compiler/codegen/kir/kir.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// REQUIRES: kir::Verify(kernel).ok().
std::string PrintCpuKernel(const kir::Kernel& kernel, const v1::Target& target);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_DIALECT_H_
