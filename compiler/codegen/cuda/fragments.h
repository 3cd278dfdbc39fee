// Tells which thread of a warp holds which element of a matrix instruction's operands, in which of
// its slots: one table for who prints such instructions, emulates them and tests them on a device.
//
//   const Fragment* left = FindFragment("mma.m16n8k16", MmaOperand::kLeft);
//   const TileElement e = left->At(/*thread=*/5, /*slot=*/2);   // row 9, column 2
//
// Each bit of a thread's number and of a slot's number moves the element by a fixed number of rows
// or columns; the moves add up. Slots count elements from the lowest bits of the first register.
#ifndef ATHANOR_COMPILER_CODEGEN_CUDA_FRAGMENTS_H_
#define ATHANOR_COMPILER_CODEGEN_CUDA_FRAGMENTS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

inline constexpr int kWarpThreads = 32;

struct TileElement {
  int row = 0, column = 0;
  bool operator==(const TileElement&) const = default;
};

enum class MmaOperand {
  kLeft,    // m rows, k columns
  kRight,   // k rows, n columns
  kSum,     // m rows, n columns: the accumulator and the result
  kLoaded,  // of ldmatrix: the 8 x 8 matrices one below the other
};

struct Fragment {
  int elements() const { return rows * columns; }
  int slots() const { return elements() / kWarpThreads; }  // of each thread
  TileElement At(int thread, int slot) const;

  absl::string_view instruction;  // "mma.m16n8k16", of 16-bit floats; its dtypes share a map
  MmaOperand operand;
  int rows, columns;
  TileElement thread_bits[5];
  TileElement slot_bits[4];  // as many as slots() has bits
};

absl::Span<const Fragment> Fragments();

// Returns nullptr if there is no such row.
const Fragment* FindFragment(absl::string_view instruction, MmaOperand operand);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_CUDA_FRAGMENTS_H_
