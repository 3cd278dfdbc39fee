// Number of elements and bytes of a type, as expressions over the graph's dims.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_EXTENTS_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_EXTENTS_H_

#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

inline Expr Product(const std::vector<Expr>& extents) {
  Expr product = 1;
  for (const Expr& e : extents) product *= e;
  return product;
}

inline Expr BytesOf(const TensorType& type) { return Product(type.shape) * DTypeBytes(type.dtype); }

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_EXTENTS_H_
