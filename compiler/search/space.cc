#include "compiler/search/space.h"

#include <algorithm>
#include <array>
#include <set>

#include "compiler/search/contract_roles.h"
#include "compiler/search/fusion.h"

namespace athanor {
namespace {

// The parameters of a schedule as numbers, in a fixed order.
using Point = std::array<int64_t, 7>;

Point PointOf(const KernelChoice& choice) {
  const ContractSchedule& c = choice.contract;
  const AttentionSchedule& a = choice.attention;
  switch (choice.kind) {
    case KernelKind::kContract:
      return {c.swap, c.pack_ahead, c.mr, c.nv, c.rows_per_item / c.mr, c.panels_per_item, c.kc};
    case KernelKind::kAttention:
      return {a.mr, a.nv, a.key_block / a.mr};
    default:
      return {};
  }
}

// Accumulators, the column vectors, and one for the broadcast row.
bool FitsRegisters(int mr, int nv, const v1::Target& target) {
  return mr * nv + nv + 1 <= target.vector_registers();
}

struct Tile {
  int mr, nv;
};

std::vector<Tile> Tiles(const v1::Target& target) {
  std::vector<Tile> tiles;
  for (int mr : {1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 14, 24, 28}) {
    for (int nv : {1, 2, 3, 4, 5, 6, 8, 12}) {
      // Fewer sums than hide an addition's latency are of use only where there are few rows.
      if (FitsRegisters(mr, nv, target) && (mr * nv >= 8 || mr <= 4)) tiles.push_back({mr, nv});
    }
  }
  return tiles;
}

int64_t MaximumOf(const Graph& graph, const Expr& e) {
  return graph.DimBounds().Maximum(e).value_or(int64_t{1} << 40);
}

std::vector<KernelChoice> ContractSchedules(const KernelTask& task, const v1::Target& target) {
  const Node& node = task.graph.node(task.choice.anchor);
  const std::vector<bool> weights = WeightsOf(task.graph);
  const int lanes = target.vector_bytes() / DTypeBytes(AccumulatorOf(node.type.dtype));
  std::vector<KernelChoice> all;
  for (bool swap : {false, true}) {
    const ContractRoles roles = FindContractRoles(task.graph, node, swap);
    if (roles.columns.empty()) continue;
    const int64_t m = MaximumOf(task.graph, roles.SizeOf(roles.rows));
    const int64_t n = MaximumOf(task.graph, roles.SizeOf(roles.columns));
    const int64_t k = MaximumOf(task.graph, roles.SizeOf(roles.sums));
    const bool weight = weights[node.inputs[roles.column_operand]];
    for (const Tile& tile : Tiles(target)) {
      if (tile.mr > std::max<int64_t>(m, 1)) continue;
      if (tile.nv > 1 && (tile.nv - 1) * lanes >= n) continue;
      for (int64_t tiles : {1, 2, 4, 8, 16, 40}) {
        if (tiles > 1 && tile.mr * tiles / 2 >= m) continue;
        for (int64_t panels : {1, 2, 4, 8}) {
          if (panels > 1 && panels * tile.nv * lanes / 2 >= n) continue;
          for (int64_t kc : {128, 256, 512, 1024, 2048, 4096}) {
            if (kc > 128 && kc / 2 >= k) continue;
            for (bool ahead : {false, true}) {
              if (ahead && !weight) continue;
              KernelChoice c = task.choice;
              c.contract = {.swap = swap,
                            .mr = tile.mr,
                            .nv = tile.nv,
                            .rows_per_item = tile.mr * tiles,
                            .panels_per_item = panels,
                            .kc = kc,
                            .pack_ahead = ahead};
              all.push_back(c);
            }
          }
        }
      }
    }
  }
  return all;
}

std::vector<KernelChoice> AttentionSchedules(const KernelTask& task, const v1::Target& target) {
  std::vector<KernelChoice> all;
  for (const Tile& tile : Tiles(target)) {
    if (tile.mr < 2 || tile.nv > 4) continue;
    for (int64_t tiles : {4, 8, 16, 32}) {
      KernelChoice c = task.choice;
      c.attention = {.mr = tile.mr, .nv = tile.nv, .key_block = tile.mr * tiles};
      all.push_back(c);
    }
  }
  return all;
}

}  // namespace

std::vector<KernelChoice> Schedules(const KernelTask& task, const v1::Target& target) {
  std::vector<KernelChoice> all;
  if (task.choice.kind == KernelKind::kContract) all = ContractSchedules(task, target);
  if (task.choice.kind == KernelKind::kAttention) all = AttentionSchedules(task, target);
  const Point start = PointOf(task.choice);
  if (std::none_of(all.begin(), all.end(),
                   [&](const KernelChoice& c) { return PointOf(c) == start; })) {
    all.insert(all.begin(), task.choice);
  }
  return all;
}

std::vector<KernelChoice> Neighbours(const KernelChoice& choice,
                                     const std::vector<KernelChoice>& all) {
  const Point at = PointOf(choice);
  // Per parameter, the nearest values below and above that occur.
  std::array<std::set<int64_t>, std::tuple_size_v<Point>> values;
  for (const KernelChoice& c : all) {
    const Point p = PointOf(c);
    for (size_t i = 0; i < p.size(); ++i) values[i].insert(p[i]);
  }
  auto is_step = [&](size_t i, int64_t to) {
    auto here = values[i].find(at[i]);
    if (here == values[i].end()) return false;
    return (here != values[i].begin() && *std::prev(here) == to) ||
           (std::next(here) != values[i].end() && *std::next(here) == to);
  };
  std::vector<KernelChoice> near;
  for (const KernelChoice& c : all) {
    const Point p = PointOf(c);
    int differ = 0;
    bool step = true;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == at[i]) continue;
      ++differ;
      step = step && is_step(i, p[i]);
    }
    if (differ == 1 && step) near.push_back(c);
  }
  return near;
}

}  // namespace athanor
