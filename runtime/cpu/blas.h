// OpenBLAS as kernels may call it: loaded at run time where the machine has it, one thread a call.
//
//   std::string version = BlasVersion();               // "OpenBLAS 0.3.21"; empty: there is none
//   CpuGemm sgemm = BlasGemm(kCpuSgemmSymbol);          // runtime/kernel_abi.h
//
// Nothing but these products can be reached by name. The library is Debian's build with pthreads,
// held at one thread before it makes any: it locks its buffers, as calls from several threads need
// and a build without threads need not. Threads come from the executor's work items alone.
//
// Thread-safe. The first call sets an environment variable while it loads the library, so processes
// that read theirs on other threads make it before they start those.
#ifndef ATHANOR_RUNTIME_CPU_BLAS_H_
#define ATHANOR_RUNTIME_CPU_BLAS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/kernel_abi.h"

namespace athanor {

inline constexpr char kBlasFile[] = "libopenblas.so.0";

// Name and version; what was timed with another is to be timed again.
std::string BlasVersion();

// nullptr: no such function, or no library. Products of no rows or columns do nothing, of no sums
// give zeros; strides are not looked at where an extent is 1 or less.
CpuGemm BlasGemm(absl::string_view symbol);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CPU_BLAS_H_
