// How the runtime calls a kernel: the one C function each CPU kernel object exports.
//
//   auto* kernel = reinterpret_cast<CpuKernel>(module->Symbol(kCpuKernelSymbol).value());
//   kernel(buffers, sizes, /*begin=*/0, /*end=*/grid, scratch, &error);
//
// Work items [begin, end) of the step's grid are computed; disjoint ranges may run at the same time on
// different threads, each with its own scratch and its own error record.
#ifndef ATHANOR_RUNTIME_KERNEL_ABI_H_
#define ATHANOR_RUNTIME_KERNEL_ABI_H_

#include <cstdint>

namespace athanor {

// Written by a guarded access: the first index found outside its tensor. Nothing outside is read or
// written; the element computed from it is zero.
struct KernelError {
  int64_t code = 0;    // 0: none; 1: index out of range
  int64_t index = 0;   // the offending index
  int64_t extent = 0;  // valid indices are [0, extent)
  int64_t item = 0;    // work item: tells the row
};

using CpuKernel = void (*)(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end,
                           void* scratch, KernelError* error);
inline constexpr char kCpuKernelSymbol[] = "athanor_kernel";

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_KERNEL_ABI_H_
