// Expresses a contraction as one call of a GPU's library, which computes all of it, reading both
// operands and writing the result where they lie in memory.
//
//   std::optional<ProductCall> c = FindLibraryCall(graph, has_memory, root, anchor, swap);
//   // element (i, j) of matrix b of c->left is at offset + b * batch_stride + i * stride + j
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_LIBRARY_CALL_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_LIBRARY_CALL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

// A node's memory as the matrices of a batch, in elements. If `transposed`, columns lie `stride`
// apart instead of rows.
struct CallMatrix {
  NodeId node = -1;
  int64_t offset = 0, stride = 0, batch_stride = 0;
  bool transposed = false;
};

struct ProductCall {
  CallMatrix result, left, right;  // rows x columns, rows x sums, sums x columns
  NodeId bias = -1;                // has memory; `columns` elements from its first on
  Expr rows;
  int64_t columns = 1, sums = 1, batch = 1;  // batch: 1 unless the rows are constant
  std::vector<int64_t> ways;                 // CallWays() of the rows
};

// Returns the numbers of rows that a call computes, ascending, of which each call takes the first
// that suffices: one if the numbers wanted are near each other, else eight, as the runtime has as
// many for all calls of a plan. Empty if there is no bound.
std::vector<int64_t> CallWays(const Expr& rows, const Bounds& bounds);

// Looks behind casts of the operands, as FindTensorOperands does. Returns nullopt if the library
// cannot compute it: for dtypes that it does not multiply (runtime/program/checked_call.cc); where
// FindLibraryProduct refuses an operand; for a result with more to it than views and, of f32 and
// f64, a bias of each row, or that lies transposed (`swap` may help); for columns, sums, strides or
// offsets that calls choose, and for a batch that is not evenly spaced or whose rows calls choose.
// Weights are multiplied once, by `prepare`, which calls no library.
std::optional<ProductCall> FindLibraryCall(const Graph& graph, const std::vector<bool>& has_memory,
                                           NodeId root, NodeId anchor, bool swap);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_LIBRARY_CALL_H_
