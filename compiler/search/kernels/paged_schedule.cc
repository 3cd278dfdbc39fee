#include "compiler/search/kernels/paged_schedule.h"

#include <algorithm>
#include <optional>

#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/state_layout.h"

namespace athanor {
namespace {

// Counts the accumulators, the column vectors, and one for the broadcast row.
bool FitsRegisters(int mr, int nv, int bytes, const v1::Target& target) {
  const int each = std::max(1, kPagedLanes / LanesOf(target, bytes));  // registers of a vector
  return (mr * nv + nv) * each + 1 <= target.vector_registers();
}

int64_t GroupOf(const Graph& graph, const Node& node) {
  return *graph.node(node.inputs[0]).type.shape[1].constant() /
         *graph.node(node.inputs[1]).type.shape[1].constant();
}

// Returns the first of these widths with which so many rows fit; 1 if none does.
int WidthFor(int mr, std::vector<int> widths, int bytes, const v1::Target& target) {
  for (int nv : widths) {
    if (FitsRegisters(mr, nv, bytes, target)) return nv;
  }
  return 1;
}

}  // namespace

bool HasPagedKernel(const v1::Target& target) {
  const bool cpu = target.device().empty() || target.device() == "cpu";
  return cpu && LanesOf(target, sizeof(float)) > 1;
}

bool FitsPagedKernel(const Graph& graph, const Node& node) {
  const auto shape = [&](int operand) { return graph.node(node.inputs[operand]).type.shape; };
  const std::optional<int64_t> depth = shape(0)[2].constant(), width = shape(2)[2].constant();
  return depth && width && *depth <= kMostPagedWidth && *width <= kMostPagedWidth &&
         GroupOf(graph, node) <= kMostPagedGroup && Mod(shape(1)[0], kStateGroup).IsConstant(0);
}

Expr PagedKeys(const Graph& graph, const Node& node) {
  return graph.node(node.inputs[3]).type.shape[1] * GetAttr<int64_t>(node.attrs, "block");
}

AttentionSchedule SchedulePaged(const Graph& graph, NodeId id, const v1::Target& target) {
  const Node& node = graph.node(id);
  const int bytes = DTypeBytes(node.type.dtype);
  const auto group = static_cast<int>(std::min<int64_t>(GroupOf(graph, node), kPagedRows));
  const std::optional<int64_t> rows = graph.DimBounds().Maximum(node.type.shape[0]);
  AttentionSchedule s;
  s.row_tile = rows && *rows <= kPagedRows ? 1 : kPagedRows;
  // Few rows want wide tiles: as many sums side by side as hide an addition's latency.
  s.mr = s.row_tile == 1 ? group : 12;
  while (s.mr > 1 && !FitsRegisters(s.mr, 1, bytes, target)) s.mr = (s.mr + 1) / 2;
  s.nv =
      WidthFor(s.mr, s.row_tile == 1 ? std::vector<int>{4, 2} : std::vector<int>{2}, bytes, target);
  return s;
}

std::vector<AttentionSchedule> PagedSchedules(const Graph& graph, NodeId id,
                                              const v1::Target& target) {
  const Node& node = graph.node(id);
  const int bytes = DTypeBytes(node.type.dtype);
  const int64_t group = GroupOf(graph, node);
  std::vector<AttentionSchedule> all;
  for (int row_tile : {1, kPagedRows}) {
    for (int mr : {1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 14, 16}) {
      if (mr > group * row_tile) continue;
      for (int nv : {1, 2, 3, 4}) {
        if (!FitsRegisters(mr, nv, bytes, target)) continue;
        AttentionSchedule& s = all.emplace_back();
        s.mr = mr;
        s.nv = nv;
        s.row_tile = row_tile;
      }
    }
  }
  return all;
}

}  // namespace athanor
