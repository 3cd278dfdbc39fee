// Schedules contractions by rule of thumb: which operand the lanes run along, tile sizes from the
// register file, block sizes from the caches, and the packed layout of a weight. Register tiles
// over packed panels are the scheme of Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008).
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_SCHEDULE_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/matrix_instructions.h"
#include "compiler/search/kernels/schedule.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Returns the schedule of contraction `node`; nullopt if no axis of either operand can carry the
// lanes (a dot product). `is_weight[n]`: n depends on parameters and constants only. `has_memory`:
// as FindTensorOperands has it; null: of all nodes.
std::optional<ContractSchedule> ScheduleContract(const Graph& graph, NodeId node,
                                                 const std::vector<bool>& is_weight,
                                                 const v1::Target& target,
                                                 const std::vector<bool>* has_memory = nullptr);

// Adds to the graph a node with the column operand of `node` in panels [batch..., panels, sums,
// width], zero beyond its columns, and returns it. `swap`: as the schedule's.
NodeId AddPackedOperand(Graph* graph, NodeId node, bool swap, int width);

// Returns the heights of the tiles that cover an item's rows, in turn: `rows`, as often as it fits,
// then what is left over, if that is known and few; else 4, then 1. `left`: the only number that
// may be left over beside none.
std::vector<int> RowTiles(int rows, std::optional<int64_t> left);

// Returns what a schedule's tiles leave over of an item's rows, as RowTiles has it. `m`: all rows,
// if their number is known.
std::optional<int64_t> RowsLeft(std::optional<int64_t> m, const PanelSchedule& schedule);

// The threads of a block that computes a tile of staged operands, as a grid: neighbours are in one
// row of it.
inline constexpr int kStagedThreadRows = 8, kStagedThreadColumns = 16;
inline constexpr int kTileTeam = kStagedThreadRows * kStagedThreadColumns;

// Arranges the block's waves as a grid on a tile of matrix instructions.
inline constexpr int kTensorWaveRows = 2, kTensorWaveColumns = 2;

// Returns the rows of a tile.
inline int64_t TileRows(const TileSchedule& schedule) {
  return int64_t{schedule.mr} *
         (schedule.tensor() ? kMatrixRows * kTensorWaveRows : kStagedThreadRows);
}

// Returns its columns: two waves, side by side, have 8 in each of their instructions.
inline int64_t TileColumns(const TileSchedule& schedule) {
  return int64_t{schedule.nv} * kStagedThreadColumns;
}

// Returns the bytes of shared memory that a tile of threads takes: of its sums and of a piece of
// both operands, `bytes` bytes an element.
int64_t StagedBytes(const TileSchedule& schedule, int bytes);

// Reports whether a tile of threads is one that its lowering knows: what it keeps in shared memory
// fits what a block has without asking for more.
bool FitsStaged(const TileSchedule& schedule, int bytes);

// Returns the tiles of threads for sums of `bytes` bytes, larger ones first.
std::vector<TileSchedule> StagedSchedules(int bytes);

// Bytes that one access of staged operands moves, and that lie unused behind each of their rows.
inline constexpr int kTensorAccessBytes = 16, kTensorPadBytes = 16;
// Slots of a thread's sums that go to the epilogue at a time, each with all threads' at such a
// distance from the next.
inline constexpr int kTensorStagedSlots = 2, kTensorSumsApart = 132;

// Returns the operand that a cast, `operand`, casts; `operand` itself if it is none or has memory
// of its own.
NodeId BehindCast(const Graph& graph, NodeId operand, const std::vector<bool>* has_memory);

// The instruction that computes a contraction, and the nodes with the operands that it takes.
struct TensorOperands {
  const MatrixInstruction* instruction;
  NodeId operands[2];
};
// Looks behind casts of the operands, which lose nothing: f16 to f32, i8 to i32. Those that have
// memory of their own are read from there. nullopt if no instruction computes `node`.
std::optional<TensorOperands> FindTensorOperands(const Graph& graph, const Node& node,
                                                 const std::vector<bool>* has_memory = nullptr);

// Reports whether the target's chip has the instruction: "sm_80" or a later one.
bool HasInstruction(const v1::Target& target, const MatrixInstruction& instruction);

// Returns the bytes of shared memory that a tile of matrix instructions takes: of its stages and of
// the sums on their way to the epilogue.
int64_t TensorBytes(const TileSchedule& schedule, const MatrixInstruction& instruction);

// Reports whether a tile of matrix instructions is one that its lowering knows, whose stages and
// sums fit the shared memory that a block has without asking for more.
bool FitsTensor(const TileSchedule& schedule, const MatrixInstruction& instruction);

// Returns the tiles of matrix instructions for `node`, larger ones first; none if no instruction of
// the target computes it.
std::vector<TileSchedule> TensorSchedules(const Graph& graph, NodeId node, const v1::Target& target,
                                          const std::vector<bool>* has_memory = nullptr);

// Returns every tile by which a block of the target's threads can compute contraction `node`, those
// that the rule of thumb prefers first, without those that its sizes leave mostly empty; each also
// with split sums where tiles are so few that multiprocessors idle. None on a target without teams.
// `swap`: as the schedule's. `has_memory`: as FindTensorOperands has it.
std::vector<TileSchedule> TileSchedules(const Graph& graph, NodeId node, bool swap,
                                        const v1::Target& target,
                                        const std::vector<bool>* has_memory = nullptr);

// Returns how many vectors wide the panels of a weight of `columns` columns are if all tiles share
// one copy of it: four if they leave next to nothing of the last one empty, else two, or the only
// one. Whatever the rule of thumb makes nv on a CPU divides it.
int SharedPanel(int64_t columns, int64_t lanes);

// Returns the elements per stored panel: its vectors are of the accumulator's dtype, or of a team's
// lanes.
int PanelWidth(const Graph& graph, NodeId node, const PanelSchedule& schedule,
               const v1::Target& target, int team = 1);

// Returns the team that the rule of thumb gives the schedule: a block for a tile, else by what
// lanes run along.
int ContractTeam(const Graph& graph, NodeId node, const ContractSchedule& schedule,
                 const v1::Target& target);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_SCHEDULE_H_
