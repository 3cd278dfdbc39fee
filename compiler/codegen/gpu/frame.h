// Writes what the frames of GPU kernels share: arguments, and where scratch lies.
#ifndef ATHANOR_COMPILER_CODEGEN_GPU_FRAME_H_
#define ATHANOR_COMPILER_CODEGEN_GPU_FRAME_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/codegen/print/c_text.h"

namespace athanor::kir {

// Returns INTERNAL that names a vector that is not the team's, or a library's product. `language`:
// "CUDA".
absl::Status VerifyTeam(const Kernel& kernel, const char* language);

// Reports whether statements make fragments or copy beside the threads.
bool HasMatrices(const std::vector<Stmt>& body);

// Reports whether a buffer is an argument of the kernel.
inline bool IsArgument(const Buffer& b) { return b.space != Space::kScratch; }

// Returns what reductions and tickets take of the shared memory of a team.
int64_t ReservedBytes(const Kernel& kernel);
// Reports whether scratch lies in shared memory: that of all teams of a block fits `most` bytes.
bool SharesScratch(const Kernel& kernel, int64_t most);
// Returns the bytes of shared memory of each team.
int64_t SharedBytes(const Kernel& kernel, int64_t most);

// Defines struct Arguments: of the calling convention of cuda/dialect.h. `space` stands before what
// pointers point to.
void DefineArguments(const Kernel& kernel, const char* space, CodeText* code);

std::string UnrollHint(AxisRole role, bool vectors);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_GPU_FRAME_H_
