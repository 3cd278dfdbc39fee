// Schedules of PagedAttention's kernel (KernelKind::kPaged): the one by rule of thumb, and all.
//
//   choice.attention = SchedulePaged(graph, anchor, target);   // paged mr=3 nv=4 rows=1
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_PAGED_SCHEDULE_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_PAGED_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/schedule.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Lanes of the kernel's vectors on every target: so many slots of a state lie together. Sums of a
// vector's lanes are those of the result's bits, so they must not follow the target.
inline constexpr int kPagedLanes = 16;
// Keys whose scores, maximum, weights and sums are computed before those of the next ones, from
// absolute positions that are multiples of it.
inline constexpr int64_t kPagedSplit = 256;

// Reports whether the target has the kernel: a CPU with vectors. Others, GPUs among them, compute
// the op's decomposition.
bool HasPagedKernel(const v1::Target& target);

// Heads and widths up to which there is a kernel: its code and scratch grow with them.
inline constexpr int64_t kMostPagedGroup = 64, kMostPagedWidth = 512;

// Reports whether the kernel computes this node: its slots are whole groups of 16, and heads and
// widths are not larger than those above. REQUIRES: a PagedAttention.
bool FitsPagedKernel(const Graph& graph, const Node& node);

// Returns the keys that the table has place for, of each sequence.
Expr PagedKeys(const Graph& graph, const Node& node);

// One row an item where there are at most 16 rows, so that all threads have items; else 16, which
// share what they read. REQUIRES: a PagedAttention.
AttentionSchedule SchedulePaged(const Graph& graph, NodeId node, const v1::Target& target);

// Returns all schedules whose tiles the registers hold.
std::vector<AttentionSchedule> PagedSchedules(const Graph& graph, NodeId node,
                                              const v1::Target& target);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_PAGED_SCHEDULE_H_
