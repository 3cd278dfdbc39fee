#include "compiler/search/kernels/space.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <set>
#include <variant>

#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/library_call.h"
#include "compiler/search/kernels/library_product.h"
#include "compiler/search/kernels/paged_schedule.h"

namespace athanor {
namespace {

// The parameters of a schedule as numbers, in a fixed order.
using Point = std::array<int64_t, 11>;

// Takes a staged tile's pieces of the sums, 8 to 32 long, to those of panels, 128 to 512 long;
// those of matrix instructions, 16 to 128 long, to longer ones.
constexpr int64_t kPanelSumsPerStaged = 16;

Point PointOf(const KernelChoice& choice, const PanelSchedule& s) {
  return {choice.team,       s.swap, WayOf(s), s.copy_rows,
          s.prefetch,        s.mr,   s.nv,     s.rows_per_item / s.mr,
          s.panels_per_item, s.kc};
}

// The item is the tile.
Point PointOf(const KernelChoice& choice, const TileSchedule& s) {
  return {choice.team, s.swap,
          WayOf(s),    0,
          0,           s.mr,
          s.nv,        std::max(s.stages, 1),
          1,           s.kc * kPanelSumsPerStaged,
          s.split - 1};
}

// The nearest panels have tiles of one by one.
Point PointOf(const KernelChoice& choice, const LibrarySchedule& s) {
  return {choice.team,       s.swap, WayOf(s), 0, 0, 1, 1, s.rows_per_item, s.panels_per_item,
          PanelSchedule().kc};
}

Point PointOf(const KernelChoice& choice, const CallSchedule& s) {
  return {choice.team, s.swap, WayOf(s), s.proposal, s.workspace};
}

Point PointOf(const KernelChoice& choice) {
  const AttentionSchedule& a = choice.attention;
  switch (choice.kind) {
    case KernelKind::kContract:
      return std::visit([&](const auto& s) { return PointOf(choice, s); }, choice.contract);
    case KernelKind::kAttention:
      return {choice.team, a.mr, a.nv, a.key_block / a.mr};
    case KernelKind::kPaged:
      return {choice.team, a.mr, a.nv, a.row_tile};
    case KernelKind::kMap:
    case KernelKind::kRow:
    case KernelKind::kPoint:
      // The larger a team, the more elements of a map are an item's (WalkSchedules).
      return {choice.team,
              choice.kind == KernelKind::kMap ? choice.walk.elements / choice.team
                                              : choice.walk.elements,
              choice.walk.unroll, choice.walk.rows};
    default:
      return {choice.team};
  }
}

// Threads that may compute an item together: one, a wave, a block.
std::vector<int> Teams(const v1::Target& target) {
  return HasTeams(target) ? std::vector<int>{1, 32, 128} : std::vector<int>{1};
}

// Counts the accumulators, the column vectors, and one for the broadcast row.
bool FitsRegisters(int mr, int nv, const v1::Target& target) {
  return mr * nv + nv + 1 <= target.vector_registers();
}

struct Tile {
  int mr, nv;
};

std::vector<Tile> Tiles(const v1::Target& target) {
  std::vector<Tile> tiles;
  for (int mr : {1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 14, 16, 24, 28}) {
    for (int nv : {1, 2, 3, 4, 5, 6, 8, 12}) {
      // Fewer sums than hide an addition's latency help only where there are few rows.
      if (FitsRegisters(mr, nv, target) && (mr * nv >= 8 || mr <= 4)) tiles.push_back({mr, nv});
    }
  }
  return tiles;
}

int64_t MaximumOf(const Graph& graph, const Expr& e) {
  return graph.DimBounds().Maximum(e).value_or(int64_t{1} << 40);
}

// Sizes of a contraction (upper bounds) and what its operands allow.
struct Contraction {
  int64_t m, n, k;
  int lanes;
  bool weight;            // the column operand can be packed ahead
  int panel;              // vectors of such a panel; 0: those of a tile
  bool columns_in_place;  // it is contiguous along the columns
  bool sums_in_place;     // both operands are contiguous along the sums
};

// Reports whether tiles walk panels whose width is not theirs to choose.
bool SharesPanels(const KernelChoice& choice) {
  const auto* panels = std::get_if<PanelSchedule>(&choice.contract);
  return panels != nullptr && panels->panel > 0;
}

Contraction Describe(const KernelTask& task, bool swap, const v1::Target& target,
                     const std::vector<bool>& weights, int team) {
  const Node& node = task.graph.node(task.choice.anchor);
  const ContractRoles roles = FindContractRoles(task.graph, node, swap);
  auto contiguous = [&](int side, const std::string& group) {
    return IsContiguous(task.graph, node, roles, side, group);
  };
  const int64_t n = MaximumOf(task.graph, roles.SizeOf(roles.columns));
  const int lanes = LanesOf(target, DTypeBytes(AccumulatorOf(node.type.dtype)), team);
  return {.m = MaximumOf(task.graph, roles.SizeOf(roles.rows)),
          .n = n,
          .k = MaximumOf(task.graph, roles.SizeOf(roles.sums)),
          .lanes = lanes,
          .weight = weights[node.inputs[roles.column_operand]],
          .panel = SharesPanels(task.choice) ? SharedPanel(n, lanes) : 0,
          .columns_in_place = contiguous(roles.column_operand, roles.columns),
          .sums_in_place = contiguous(roles.column_operand, roles.sums) &&
                           contiguous(roles.row_operand, roles.sums)};
}

// Adds schedules with panels, packed ahead or in each item.
void AddPanels(const Contraction& c, const Tile& tile, const v1::Target& target,
               std::vector<PanelSchedule>* all) {
  for (int64_t tiles : {1, 2, 4, 8, 20, 40, 80}) {
    // A smaller block covers all rows, too.
    if (tiles > 1 && tile.mr * tiles / 2 >= c.m) continue;
    for (int64_t panels : {1, 2, 4, 8, 16, 32}) {
      if (panels > 1 && panels * tile.nv * c.lanes / 2 >= c.n) continue;
      for (int64_t kc : {128, 256, 512, 1024, 2048, 4096}) {
        if (kc > 128 && kc / 2 >= c.k) continue;
        for (bool copy : {false, true}) {
          PanelSchedule s{.mr = tile.mr,
                          .nv = tile.nv,
                          .rows_per_item = tile.mr * tiles,
                          .panels_per_item = panels,
                          .kc = kc,
                          .copy_rows = copy};
          // Copies pay where several tiles or panels read them and they stay in the cache.
          if (copy && (tile.mr < 4 || s.rows_per_item * kc * 4 > target.l2_bytes())) continue;
          if (!copy && panels > 8) continue;
          all->push_back(s);
          s.columns = ColumnAccess::kAhead;
          s.panel = c.panel;
          if (c.weight && s.panel % s.nv == 0) all->push_back(s);
        }
      }
    }
  }
}

// Adds schedules for few rows: the column operand is streamed in pieces, and the sums of all panels
// are kept in between.
void AddInPlace(const Contraction& c, const Tile& tile, const v1::Target& target,
                std::vector<PanelSchedule>* all) {
  for (int64_t tiles : {1, 4, 16}) {
    if (tiles > 1 && tile.mr * tiles / 4 >= c.m) continue;
    for (int64_t panels : {1, 4, 8, 16, 32, 64, 128}) {
      if (panels > 1 && panels * tile.nv * c.lanes / 2 >= c.n) continue;
      for (int64_t kc : {4, 8, 16, 32, 128, 512}) {
        if (kc > 4 && kc / 4 >= c.k) continue;
        const int64_t sums = tile.mr * tiles * panels * tile.nv * c.lanes;
        if (kc < c.k && sums * 4 > target.l2_bytes() / 2) continue;
        for (bool copy : {false, true}) {
          if (copy && tile.mr < 4) continue;
          for (bool prefetch : {false, true}) {
            all->push_back({.mr = tile.mr,
                            .nv = tile.nv,
                            .rows_per_item = tile.mr * tiles,
                            .panels_per_item = panels,
                            .kc = kc,
                            .columns = ColumnAccess::kInPlace,
                            .copy_rows = copy,
                            .prefetch = prefetch});
          }
        }
      }
    }
  }
}

void AddDots(const Contraction& c, const Tile& tile, std::vector<PanelSchedule>* all) {
  for (int64_t tiles : {1, 4, 16}) {
    if (tiles > 1 && tile.mr * tiles / 4 >= c.m) continue;
    for (int64_t panels : {1, 4, 16, 64}) {
      if (panels > 1 && panels * c.lanes / 2 >= c.n) continue;
      for (bool prefetch : {false, true}) {
        all->push_back({.mr = tile.mr,
                        .nv = tile.nv,
                        .rows_per_item = tile.mr * tiles,
                        .panels_per_item = panels,
                        .columns = ColumnAccess::kDots,
                        .prefetch = prefetch});
      }
    }
  }
}

// Returns sizes of a library's blocks along an axis: a thread's share of it, all of it, or what
// caches hold; multiples of `unit`.
std::set<int64_t> BlockSizes(int64_t extent, int64_t unit, const v1::Target& target) {
  constexpr int64_t kMostUnbounded = 1 << 20;
  std::set<int64_t> sizes;
  auto add = [&](int64_t size) {
    size = (std::max<int64_t>(std::min(size, extent), 1) + unit - 1) / unit * unit;
    if (size <= kMostUnbounded) sizes.insert(size);
  };
  for (int64_t size : {64, 256, 1024}) add(size);
  const int64_t threads = std::max(1, target.threads());
  for (int64_t parts : {int64_t{1}, threads, 4 * threads}) add((extent + parts - 1) / parts);
  return sizes;
}

// Adds blocks that the library multiplies, if it can and a call is worth its cost.
void AddLibrary(const KernelTask& task, const Contraction& c, bool swap, const v1::Target& target,
                std::vector<LibrarySchedule>* all) {
  constexpr double kLeastWork = 32 * 32 * 32;  // multiply-adds per block
  constexpr int64_t kMostScratch = 4 << 20;    // bytes per block that an epilogue reads
  if (target.blas().empty() || HasTeams(target)) return;
  const std::optional<LibraryProduct> product =
      FindLibraryProduct(task.graph, MemoryOf(task.graph, {{task.choice}}), task.choice.root,
                         task.choice.anchor, swap);
  if (!product) return;
  const int64_t bytes = DTypeBytes(task.graph.node(task.choice.anchor).type.dtype);
  for (int64_t rows : BlockSizes(c.m, 1, target)) {
    for (int64_t columns : BlockSizes(c.n, c.lanes, target)) {
      const double block = static_cast<double>(rows) * static_cast<double>(columns);
      if (block * static_cast<double>(c.k) < kLeastWork) continue;
      if (!product->result && rows * columns * bytes > kMostScratch) continue;
      all->push_back({.swap = swap, .rows_per_item = rows, .panels_per_item = columns / c.lanes});
    }
  }
}

// Most rows that read an operand in place: with more, packing it once is cheap compared with the
// products.
constexpr int64_t kMostRowsInPlace = 128;

// Reports whether a team may have the schedule: its items are small, and other teams hide the time
// that memory takes.
bool SuitsTeam(const PanelSchedule& s) {
  return s.rows_per_item <= 4 * s.mr && s.panels_per_item == 1 && !s.copy_rows && !s.prefetch;
}

// Adds the schedules whose items are covered by a tile.
void AddTile(const Contraction& c, const Tile& tile, const v1::Target& target,
             std::vector<PanelSchedule>* all) {
  if (tile.mr > std::max<int64_t>(c.m, 1)) return;
  const bool few = c.m <= kMostRowsInPlace;
  // A tile of dot products has nv columns, others nv vectors of columns. A panel of one lane has
  // one column.
  const int64_t most = c.lanes == 1 ? 1 : std::max<int64_t>(c.n, 1);
  if (few && c.sums_in_place && tile.nv <= most) AddDots(c, tile, all);
  if (tile.nv > 1 && (tile.nv - 1) * c.lanes >= c.n) return;
  AddPanels(c, tile, target, all);
  if (few && c.columns_in_place && tile.nv <= 6) AddInPlace(c, tile, target, all);
}

void AddContractSchedules(const KernelTask& task, const v1::Target& target, int team,
                          std::vector<KernelChoice>* all) {
  const Node& node = task.graph.node(task.choice.anchor);
  const std::vector<bool> weights = WeightsOf(task.graph);
  const auto add = [&](const ContractSchedule& s) {
    all->push_back(task.choice);
    all->back().contract = s;
    all->back().team = team;
  };
  for (bool swap : {false, true}) {
    const ContractRoles roles = FindContractRoles(task.graph, node, swap);
    if (roles.columns.empty()) continue;
    if (team == kTileTeam) {
      for (const TileSchedule& s : TileSchedules(task.graph, task.choice.anchor, swap, target)) {
        add(s);
      }
    }
    if (IsWindows(task.graph, node, roles, roles.row_operand, roles.rows)) continue;
    const Contraction c = Describe(task, swap, target, weights, team);
    std::vector<LibrarySchedule> blocks;
    // Takes the library in one of both orders only: the product is the same.
    if (roles.rows.empty() || roles.columns.back() == roles.result.back() ||
        (!swap && roles.rows.back() != roles.result.back())) {
      AddLibrary(task, c, swap, target, &blocks);
    }
    for (const LibrarySchedule& s : blocks) add(s);
    std::vector<PanelSchedule> panels;
    for (const Tile& tile : Tiles(target)) AddTile(c, tile, target, &panels);
    for (PanelSchedule& s : panels) {
      if (team > 1 && !SuitsTeam(s)) continue;
      s.swap = swap;
      add(s);
    }
  }
}

// Adds the library's proposals, if the target is a GPU with a library that can compute it all: the
// first few of those that take no more than each workspace.
void AddCalls(const KernelTask& task, const v1::Target& target, std::vector<KernelChoice>* all) {
  constexpr int kProposals = 8;
  if (target.blas().empty() || !HasTeams(target)) return;
  const KernelChoice& start = task.choice;
  const std::vector<bool> memory = MemoryOf(task.graph, {{start}});
  for (bool swap : {false, true}) {
    if (!FindLibraryCall(task.graph, memory, start.root, start.anchor, swap)) continue;
    for (int64_t workspace : kCallWorkspaces) {
      for (int proposal = 0; proposal < kProposals; ++proposal) {
        all->push_back(start);
        all->back().team = 1;
        all->back().contract =
            CallSchedule{.swap = swap, .proposal = proposal, .workspace = workspace};
      }
    }
  }
}

std::vector<KernelChoice> ContractSchedules(const KernelTask& task, const v1::Target& target) {
  std::vector<KernelChoice> all;
  for (int team : Teams(target)) AddContractSchedules(task, target, team, &all);
  AddCalls(task, target, &all);
  return all;
}

std::vector<KernelChoice> AttentionSchedules(const KernelTask& task, const v1::Target& target) {
  std::vector<KernelChoice> all;
  for (const Tile& tile : Tiles(target)) {
    if (tile.mr < 2 || tile.nv > 4) continue;
    for (int64_t tiles : {4, 8, 16, 32}) {
      for (int team : Teams(target)) {
        KernelChoice c = task.choice;
        c.attention = {.mr = tile.mr, .nv = tile.nv, .key_block = tile.mr * tiles};
        c.team = team;
        all.push_back(c);
      }
    }
  }
  return all;
}

std::vector<KernelChoice> WalkSchedules(const KernelTask& task, const v1::Target& target) {
  const bool map = task.choice.kind == KernelKind::kMap;
  std::vector<KernelChoice> all;
  for (int64_t elements : WalkExtentsOf(target).all) {
    if (!map && elements != task.choice.walk.elements) continue;
    for (int unroll : {1, 2, 4}) {
      for (int64_t rows : {1, 2, 4, 8}) {
        // Computes rows side by side only if they read each other's windows.
        if (rows > 1 && task.choice.walk.rows == 1) continue;
        if (rows * unroll > 8) continue;
        for (int team : Teams(target)) {
          KernelChoice c = task.choice;
          c.walk = {.elements = map ? elements * team : elements, .unroll = unroll, .rows = rows};
          c.team = team;
          all.push_back(c);
        }
      }
    }
  }
  return all;
}

}  // namespace

std::vector<KernelChoice> Schedules(const KernelTask& task, const v1::Target& target) {
  std::vector<KernelChoice> all;
  if (task.choice.kind == KernelKind::kContract) all = ContractSchedules(task, target);
  if (task.choice.kind == KernelKind::kAttention) all = AttentionSchedules(task, target);
  if (task.choice.kind == KernelKind::kPaged) {
    for (const AttentionSchedule& s : PagedSchedules(task.graph, task.choice.anchor, target)) {
      all.push_back(task.choice);
      all.back().attention = s;
    }
  }
  const KernelKind kind = task.choice.kind;
  if (kind == KernelKind::kMap || kind == KernelKind::kRow || kind == KernelKind::kPoint) {
    all = WalkSchedules(task, target);
  }
  if (kind == KernelKind::kScatter || kind == KernelKind::kStateWrite) {
    for (int team : Teams(target)) {
      all.push_back(task.choice);
      all.back().team = team;
    }
  }
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
  constexpr size_t kParameters = std::tuple_size_v<Point>;
  // The nearest one below and above, by the parameter in which it differs.
  struct Side {
    const KernelChoice* choice = nullptr;
    int64_t distance = 0;
  };
  std::array<std::array<Side, 2>, kParameters> nearest;
  for (const KernelChoice& c : all) {
    const Point p = PointOf(c);
    size_t parameter = kParameters;
    int differ = 0;
    for (size_t i = 0; i < kParameters; ++i) {
      if (p[i] == at[i]) continue;
      parameter = i;
      ++differ;
    }
    if (differ != 1) continue;
    const int64_t distance = std::abs(p[parameter] - at[parameter]);
    Side& side = nearest[parameter][p[parameter] > at[parameter]];
    if (side.choice == nullptr || distance < side.distance) side = {&c, distance};
  }
  std::vector<KernelChoice> near;
  for (const auto& sides : nearest) {
    for (const Side& side : sides) {
      if (side.choice != nullptr) near.push_back(*side.choice);
    }
  }
  return near;
}

}  // namespace athanor
