// Prints a kernel as Metal Shading Language 3.2:
//
//   RETURN_IF_ERROR(VerifyMetal(kernel));
//   const std::string text = PrintMetalKernel(kernel);
//   const std::string library = MetalSourceOf(text);  // what a Metal compiler takes, alone
//
// The text is one function, `athanor_kernel`, that takes one buffer of arguments, number 0, whose
// words are those of cuda/dialect.h: pointers are addresses in the device's memory. The workspace
// holds MetalWorkspaceBytes for every team that is launched. Threadgroups have up to 128 threads in
// one dimension: any number for teams of one, else whole teams, and SIMD-groups of 32.
#ifndef ATHANOR_COMPILER_CODEGEN_METAL_DIALECT_H_
#define ATHANOR_COMPILER_CODEGEN_METAL_DIALECT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/codegen/kir/kir.h"

namespace athanor {

// Checks what the dialect asks of a verified kernel. UNIMPLEMENTED names an f64, a team that is a
// part of a SIMD-group, or fragments; INTERNAL a vector that is not the team's, or a library's
// product.
absl::Status VerifyMetal(const kir::Kernel& kernel);

// Returns the bytes of a team's workspace that the kernel needs: none if scratch lies in the
// threadgroup's memory.
int64_t MetalWorkspaceBytes(const kir::Kernel& kernel);

// REQUIRES: kir::Verify(kernel).ok() and VerifyMetal(kernel).ok().
std::string PrintMetalKernel(const kir::Kernel& kernel);

// Returns the text with the headers that it includes in their places.
std::string MetalSourceOf(std::string_view text);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_METAL_DIALECT_H_
