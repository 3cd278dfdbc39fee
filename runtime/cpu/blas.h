// OpenBLAS for kernels: loaded at run time if the machine has it, with one thread per call.
//
//   std::string version = BlasVersion();               // "OpenBLAS 0.3.21"; empty: there is none
//   CpuGemm sgemm = BlasGemm(kCpuSgemmSymbol);          // runtime/device/kernel_abi.h
//
// Only these products can be reached by name. The library is Debian's build with pthreads, limited
// to one thread before it creates any: it locks its buffers, which calls from several threads need
// and a build without threads may not do. Threads come from the executor's work items alone.
//
// Thread-safe. The first call sets an environment variable while it loads the library, so a process
// whose other threads read the environment must make it before it starts those.
#ifndef ATHANOR_RUNTIME_CPU_BLAS_H_
#define ATHANOR_RUNTIME_CPU_BLAS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/device/kernel_abi.h"

namespace athanor {

inline constexpr char kBlasFile[] = "libopenblas.so.0";

// Returns name and version; timings made with another version are out of date.
std::string BlasVersion();

// Returns nullptr if there is no such function or no library. Products of no rows or columns do
// nothing, products of no sums give zeros; strides are ignored where an extent is 1 or less.
CpuGemm BlasGemm(absl::string_view symbol);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CPU_BLAS_H_
