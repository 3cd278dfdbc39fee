// The calling conventions of kernels: the one function that each kernel object exports.
//
// On a CPU it is a C function:
//
//   auto* kernel = reinterpret_cast<CpuKernel>(module->Symbol(kCpuKernelSymbol).value());
//   kernel(buffers, sizes, /*begin=*/0, /*end=*/grid, scratch, &error);
//
// A call computes work items [begin, end) of the step's grid. Disjoint ranges may run at the same
// time on different threads, each with its own scratch and its own error record.
#ifndef ATHANOR_RUNTIME_DEVICE_KERNEL_ABI_H_
#define ATHANOR_RUNTIME_DEVICE_KERNEL_ABI_H_

#include <cstdint>

namespace athanor {

// Written by a guarded access: the first index found outside its tensor. Nothing outside is read or
// written; the element computed from it is zero.
struct KernelError {
  int64_t code = 0;    // 0: none; 1: index out of range
  int64_t index = 0;   // the offending index
  int64_t extent = 0;  // valid indices are [0, extent)
  int64_t item = 0;    // work item; tells the row
};

using CpuKernel = void (*)(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end,
                           void* scratch, KernelError* error);
inline constexpr char kCpuKernelSymbol[] = "athanor_kernel";

// A matrix product by a library: result = left * right, of `rows` x `columns` elements, each a sum
// of `sums` products. The result's former contents are not read. Element (i, j) of a matrix is at
// [i * stride + j] or, if transposed, at [j * stride + i]. The result is not transposed and shares
// no memory with the operands. A kernel that calls a product defines a variable of the symbol's
// name, which the loader sets (runtime/cpu/blas.h). REQUIRES: extents and strides below 2^31.
using CpuGemm = void (*)(int64_t rows, int64_t columns, int64_t sums, const void* left,
                         int64_t left_stride, int64_t left_transposed, const void* right,
                         int64_t right_stride, int64_t right_transposed, void* result,
                         int64_t result_stride);
inline constexpr char kCpuSgemmSymbol[] = "athanor_sgemm";  // f32
inline constexpr char kCpuDgemmSymbol[] = "athanor_dgemm";  // f64

// A GPU's kernel takes the address, in the device's memory, of its arguments: words of 8 bytes in
// the order of this struct's members. Any number of blocks of at most kCudaBlockThreads threads, in
// whole teams, compute all items. That they are read when the kernel runs lets a launch be recorded
// once and run with other sizes.
struct ArgumentWords {
  int64_t* words = nullptr;  // where the host writes them
  int buffers = 0, sizes = 0;

  int64_t count() const { return 2 * int64_t{buffers} + sizes + 4; }
  int64_t& address(int buffer) const { return words[2 * buffer]; }
  int64_t& bytes(int buffer) const { return words[2 * buffer + 1]; }
  int64_t& size(int i) const { return words[2 * buffers + i]; }
  int64_t& items() const { return size(sizes); }  // [0, items)
  int64_t& workspace() const { return size(sizes + 1); }
  int64_t& bytes_per_team() const { return size(sizes + 2); }  // of the workspace
  int64_t& error() const { return size(sizes + 3); }           // of an ErrorSlot
};
inline constexpr char kCudaKernelSymbol[] = "athanor_kernel";
inline constexpr int kCudaBlockThreads = 128;

// Receives the error of the lowest failed item of a launch; zero before it.
struct alignas(64) ErrorSlot {
  KernelError error;
  uint32_t lock = 0;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_DEVICE_KERNEL_ABI_H_
