// Expresses a contraction as the matrix products that a library computes, reading both operands
// and, if nothing follows the contraction, writing its result where they lie in memory.
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

// A tensor seen as a matrix: two groups of its axes, flattened, are rows and columns with a stride
// each. One stride is 1: that of the columns or, if `transposed`, that of the rows. The other is no
// shorter than the row (or column) it steps over, so none overlap.
struct MatrixView {
  NodeId node = -1;  // has memory
  Expr offset;       // of element (0, 0), over the BatchSymbols of the batch's letters
  Expr row_stride, column_stride;
  bool transposed = false;

  const Expr& stride() const { return transposed ? column_stride : row_stride; }
};

struct LibraryProduct {
  MatrixView left;   // rows x sums
  MatrixView right;  // sums x columns
  // none: the product needs a buffer of its own first, because something is computed from it or its
  // layout is another
  std::optional<MatrixView> result;
  NodeId bias = -1;  // has memory, which begins with what is added to each row of the result
};

// Returns the symbol of a batch letter: "$b" for 'b'.
std::string BatchSymbol(char letter);

// Returns nullopt if the library cannot compute it: for dtypes other than f32 and f64 (it sums f32
// in f32, as we do), and for an operand that is computed or padded when it is read, has no axis of
// stride 1, overlaps itself (windows, broadcasts), or has strides or sums that are not proved to be
// below 2^31.
std::optional<LibraryProduct> FindLibraryProduct(const Graph& graph,
                                                 const std::vector<bool>& has_memory, NodeId root,
                                                 NodeId anchor, bool swap);

// Does the same for any dtypes, which the caller knows that the library multiplies. `node`: the
// contraction, on the operands that the library reads. `takes_bias`: the library may add one.
std::optional<LibraryProduct> FindMatrices(const Graph& graph, const std::vector<bool>& has_memory,
                                           NodeId root, NodeId anchor, const Node& node, bool swap,
                                           bool takes_bias);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_LIBRARY_PRODUCT_H_
