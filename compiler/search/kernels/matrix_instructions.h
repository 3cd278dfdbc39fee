// The matrix instructions of GPUs that schedules may use, as data: a wave multiplies a matrix of m
// rows and k columns with one of k rows and n columns and adds the product to its sums.
//
//   const MatrixInstruction* mma = FindMatrixInstruction(DType::kBF16);
//   // mma->m == 16, mma->n == 8, mma->k == 16
//
// Shapes are those of PTX ISA 8.0, 9.7.13, "mma". Products are exact, and so are sums of integers,
// modulo 2^32; how sums of floats are rounded is the chip's matter, at least as f32 does.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_MATRIX_INSTRUCTIONS_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_MATRIX_INSTRUCTIONS_H_

#include "compiler/ir/value/dtype.h"

namespace athanor {

struct MatrixInstruction {
  const char* name;  // of its fragments (codegen/cuda/fragments.h)
  int m, n, k;
  DType operands, sums;
  int least_sm;  // 80: the first chip that has it is sm_80
};

// Rows of each one's result.
inline constexpr int kMatrixRows = 16;

inline constexpr MatrixInstruction kMatrixInstructions[] = {
    {"mma.m16n8k16", kMatrixRows, 8, 16, DType::kF16, DType::kF32, 80},
    {"mma.m16n8k16", kMatrixRows, 8, 16, DType::kBF16, DType::kF32, 80},
    {"mma.m16n8k32", kMatrixRows, 8, 32, DType::kI8, DType::kI32, 80},
    {"mma.m16n8k32", kMatrixRows, 8, 32, DType::kU8, DType::kI32, 80},
};

// Returns null if no instruction multiplies such operands.
constexpr const MatrixInstruction* FindMatrixInstruction(DType operands) {
  for (const MatrixInstruction& row : kMatrixInstructions) {
    if (row.operands == operands) return &row;
  }
  return nullptr;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_MATRIX_INSTRUCTIONS_H_
