// Number of elements and bytes of a type, as expressions over the graph's dims, and of lanes of a
// vector.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_EXTENTS_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_EXTENTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
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

// Reports whether several threads may compute an item together (KernelChoice.team).
inline bool HasTeams(const v1::Target& target) { return target.device() == "cuda"; }

// Returns how many multiprocessors keep a GPU's threads. Each has room for 2,048 on sm_80, sm_90
// and sm_100 (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
inline int MultiprocessorsOf(const v1::Target& target) {
  return std::max(1, target.threads() / 2048);
}

// How many elements of a map a thread may compute of an item, in rising order. A GPU's neighbouring
// threads are to read neighbours, so each has few.
struct WalkExtents {
  std::array<int64_t, 3> all;
  int64_t usual;
};
inline WalkExtents WalkExtentsOf(const v1::Target& target) {
  if (HasTeams(target)) return {{1, 4, 16}, 1};
  return {{1024, 4096, 16384}, 4096};
}

// Returns how many elements of `bytes` bytes a vector has; 1 on a target without vectors, and where
// one element is as large as a vector. Each thread of a team of several has one lane.
inline int LanesOf(const v1::Target& target, int bytes, int team = 1) {
  return team > 1 ? team : std::max(1, target.vector_bytes() / bytes);
}

// Returns the least team, at most a wave, whose threads share `extent` elements, each with one.
inline int TeamFor(std::optional<int64_t> extent) {
  int team = 1;
  while (team < 32 && (!extent || team < *extent)) team *= 2;
  return team;
}

// Returns the team for rows of `length` elements: a block if there are so few long ones that waves
// would leave threads idle.
inline int RowTeam(std::optional<int64_t> rows, std::optional<int64_t> length,
                   const v1::Target& target) {
  constexpr int64_t kWave = 32, kBlock = 128, kLong = 512;
  const bool few = rows && *rows * kWave < target.threads();
  return few && (!length || *length >= kLong) ? kBlock : TeamFor(length);
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_EXTENTS_H_
