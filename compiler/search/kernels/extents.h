// Number of elements and bytes of a type, as expressions over the graph's dims, and of lanes of a
// vector.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_EXTENTS_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_EXTENTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

inline Expr Product(const std::vector<Expr>& extents) {
  Expr product = 1;
  for (const Expr& e : extents) product *= e;
  return product;
}

inline Expr BytesOf(const TensorType& type) { return Product(type.shape) * DTypeBytes(type.dtype); }

// How many elements of a map an item may compute, in rising order. A GPU's neighbouring threads are
// to read neighbours, so each has few.
struct WalkExtents {
  std::array<int64_t, 3> all;
  int64_t usual;
};
inline WalkExtents WalkExtentsOf(const v1::Target& target) {
  if (target.device() == "cuda") return {{1, 4, 16}, 1};
  return {{1024, 4096, 16384}, 4096};
}

// Returns how many elements of `bytes` bytes a vector has; 1 on a target without vectors, and where
// one element is as large as a vector.
inline int LanesOf(const v1::Target& target, int bytes) {
  return std::max(1, target.vector_bytes() / bytes);
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_EXTENTS_H_
