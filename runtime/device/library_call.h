// A product of matrices by a device's library, as a step of a plan (v1::LibraryCall) asks for it,
// checked.
//
//   for each b of batch:  result[b] = left[b] * right[b] (+ bias in each row)
#ifndef ATHANOR_RUNTIME_DEVICE_LIBRARY_CALL_H_
#define ATHANOR_RUNTIME_DEVICE_LIBRARY_CALL_H_

#include <cstdint>
#include <string>

namespace athanor {

struct LibraryCall {
  // Element (i, j) of matrix b is at [offset + b * batch_stride + i * stride + j] or, if
  // transposed, at [... + j * stride + i].
  struct Matrix {
    int64_t offset = 0, stride = 0, batch_stride = 0;  // elements
    bool transposed = false;                           // not the result
  };
  std::string library;  // with its version: "cuBLASLt 13.1.0"; empty until CompleteCall()
  // Tell the element of both operands, and that of result and bias. Sums are in f32 for f16 and
  // bf16, in i32 for i8, else in the operands' own.
  std::string dtype, result_dtype;
  int64_t rows = 1, columns = 1, sums = 1, batch = 1;  // rows, columns, sums and batch fit 31 bits
  Matrix left, right, result;
  bool bias = false;
  std::string algorithm;  // bytes that the library gave; empty until CompleteCall()
  int64_t workspace_bytes = 0;
};

// Says where a call's buffers lie in the device's memory; each is aligned to 64 bytes, the
// workspace to 256 (kWorkspaceAlignment).
struct LibraryBuffers {
  void* result = nullptr;
  const void *left = nullptr, *right = nullptr;
  const void* bias = nullptr;  // null: none
  void* workspace = nullptr;   // null: none
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_DEVICE_LIBRARY_CALL_H_
