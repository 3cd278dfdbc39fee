// A contraction as the matrix products that a library computes: both operands and, where nothing
// follows the contraction, its result as they lie in memory.
//
//   std::optional<LibraryProduct> p = FindLibraryProduct(graph, has_memory, root, anchor, swap);
//   // p->left.index(b, i, j) = p->left.offset + i * p->left.row_stride + j * p->left.column_stride
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_LIBRARY_PRODUCT_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_LIBRARY_PRODUCT_H_

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

// A tensor of which two groups of axes, flattened, are rows and columns at strides of their own.
// One of the strides is 1: that of the columns, or, `transposed`, that of the rows. The other is no
// shorter than the row (or column) it steps over, so that none overlap.
struct MatrixView {
  NodeId node = -1;  // with memory
  Expr offset;       // of element (0, 0), over BatchSymbol of the batch's letters
  Expr row_stride, column_stride;
  bool transposed = false;

  const Expr& stride() const { return transposed ? column_stride : row_stride; }
};

struct LibraryProduct {
  MatrixView left;                   // rows x sums
  MatrixView right;                  // sums x columns
  std::optional<MatrixView> result;  // none: something is computed from the product, or it lies
                                     // otherwise, so that it needs a place of its own first
};

// "$b" for 'b'.
std::string BatchSymbol(char letter);

// nullopt where the library cannot: dtypes other than f32 and f64 (it sums f32 in f32, as we do),
// an operand that is computed or padded on the way, has no axis of stride 1, overlaps itself
// (windows, broadcasts), or has strides or sums that are not proved to be below 2^31.
std::optional<LibraryProduct> FindLibraryProduct(const Graph& graph,
                                                 const std::vector<bool>& has_memory, NodeId root,
                                                 NodeId anchor, bool swap);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_LIBRARY_PRODUCT_H_
