// Places a state's elements in memory. The slots of keys and values lie in groups of 16: a vector
// of lanes reads one element of 16 keys at once, and 16 values of one head lie together.
//
//   std::string layout = StateLayout("keys", {16 * n, 2, 64});         // "keys16"
//   Expr at = StateOffset("keys", {16 * n, 2, 64}, {slot, head, d});   // in [n][2][64][16]
//
// | role     | layout     | elements, the last one fastest |
// |----------|------------|--------------------------------|
// | "keys"   | "keys16"   | [slots / 16][heads][width][16] |
// | "values" | "values16" | [slots / 16][heads][16][width] |
// | ""       | ""         | [slots][...]                   |
//
// A state whose number of slots may be no multiple of 16 has layout "" whatever its role. Plans and
// state memory compare the names: equal ones place states of equal shape equally. Pure functions.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_STATE_LAYOUT_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_STATE_LAYOUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// Slots of a group. A block of PagedAttention is a whole number of groups.
inline constexpr int64_t kStateGroup = 16;

// Returns the layout of a state of this role and shape, as plans name it (Buffer.layout).
std::string StateLayout(std::string_view role, const Shape& shape);

// Returns the offset, in elements, of the state's element at these coordinates.
// REQUIRES: they lie inside `shape`, which the role allows (CheckState).
Expr StateOffset(std::string_view role, const Shape& shape, const std::vector<Expr>& at);

// Returns where an element of the state lies, in elements: `element` is its row-major number, below
// the product of `sizes`. For tests and checks, which fill and read states.
int64_t StatePlace(std::string_view layout, absl::Span<const int64_t> sizes, int64_t element);

// Returns the offset, in elements, of a node's element in the node's memory: a state's, or the
// update's that a StateWrite leaves in its state, by the state's layout; any other row-major.
Expr MemoryOffset(const Graph& graph, NodeId node, const std::vector<Expr>& at);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_STATE_LAYOUT_H_
