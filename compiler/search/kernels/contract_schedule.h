// Schedules contractions by rule of thumb: which operand the lanes run along, tile sizes from the
// register file, block sizes from the caches, and the packed layout of a weight. Register tiles
// over packed panels are the scheme of Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008).
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_SCHEDULE_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_SCHEDULE_H_

#include <optional>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/schedule.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Returns the schedule of contraction `node`; nullopt if no axis of either operand can carry the
// lanes (a dot product). `is_weight[n]`: n depends on parameters and constants only.
std::optional<ContractSchedule> ScheduleContract(const Graph& graph, NodeId node,
                                                 const std::vector<bool>& is_weight,
                                                 const v1::Target& target);

// Adds to the graph a node with the column operand of `node` in panels [batch..., panels, sums,
// width], zero beyond its columns, and returns it.
NodeId AddPackedOperand(Graph* graph, NodeId node, const ContractSchedule& schedule, int width);

// Returns the elements per panel: nv vectors of the accumulator's dtype.
int PanelWidth(const Graph& graph, NodeId node, const ContractSchedule& schedule,
               const v1::Target& target);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_SCHEDULE_H_
