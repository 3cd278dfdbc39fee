#include "compiler/search/kernels/contract_schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/extents.h"

namespace athanor {

namespace {

// Scores how well operand `i` carries the lanes along its axes that the other operand lacks; 0 if
// it cannot.
int ColumnScore(const Graph& graph, const Node& node, int i, const std::vector<bool>& is_weight,
                int64_t lanes) {
  const ContractRoles roles = FindContractRoles(graph, node, /*swap=*/i == 0);
  const std::string& free = roles.columns;
  if (free.empty()) return 0;
  // A single column leaves the lanes empty: anything else is better.
  if (roles.SizeOf(free).IsConstant(1)) return 1;
  const bool weight = is_weight[node.inputs[i]];
  const bool stores = roles.result.back() == free.back();     // contiguously
  const bool reads = roles.letters[i].back() == free.back();  // likewise
  int score = 2;
  if (weight) score += 8;  // packed once, by `prepare`
  if (stores) score += 4;
  if (reads) score += 2;
  // An image: lanes along the weight instead would scatter the stores and the loads of addends,
  // which costs more than packing the image. Not if the image leaves most lanes empty.
  const bool fills = graph.DimBounds().Maximum(roles.SizeOf(free)).value_or(lanes) >= lanes;
  if (!weight && stores && reads && fills) score += 8;
  // If windows were the rows, their elements would be addressed one by one.
  if (!weight && stores && IsWindows(graph, node, roles, i, free)) score += 16;
  return score;
}

// Most rows for which packing the column operand into panels costs more than it gains.
constexpr int64_t kFewRows = 16;

// Sizes that the rules of thumb look at.
struct Sizes {
  std::optional<int64_t> m, n, k;  // upper bounds
  bool exact_m = false, exact_n = false;
  int64_t operand_bytes = 0;  // per element of the column operand
  int64_t lanes = 1;
  bool image = false;  // the rows are a weight's, the columns an image's
};

// Halves `most` columns until mr rows of sums, the columns and a row's value fit the registers.
int FittingColumns(int mr, int most, const v1::Target& target) {
  int nv = most;
  while (nv > 1 && mr * nv + nv + 1 > target.vector_registers()) nv /= 2;
  return nv;
}

// Returns the largest possible size of the column operand.
int64_t Bytes(const Sizes& sizes) {
  constexpr int64_t kMost = int64_t{1} << 62;
  return sizes.n && sizes.k ? *sizes.n * *sizes.k * sizes.operand_bytes : kMost;
}

// Reports whether the column operand stays in the second-level cache, where prefetching gains
// nothing.
bool StaysNear(const Sizes& sizes, const v1::Target& target) {
  return Bytes(sizes) <= target.l2_bytes() / 2;
}

// Streams rows of the column operand in place, a few at a time side by side. Stretches of each row
// are long, as memory prefers, but leave work for all threads and let the sums fit the first-level
// cache.
void ReadInPlace(const Sizes& sizes, const v1::Target& target, PanelSchedule* s) {
  const int64_t m = *sizes.m;
  s->columns = ColumnAccess::kInPlace;
  s->mr = static_cast<int>(sizes.exact_m ? std::max<int64_t>(m, 1) : std::min<int64_t>(m, 4));
  if (s->mr + 2 > target.vector_registers()) s->mr = 8;
  s->nv = s->mr > 8 ? 1 : FittingColumns(s->mr, s->mr > 4 ? 2 : 4, target);
  if (sizes.n) {
    while (s->nv > 1 && (s->nv - 1) * sizes.lanes >= *sizes.n) --s->nv;
  }
  s->rows_per_item = (std::max<int64_t>(m, 1) + s->mr - 1) / s->mr * s->mr;
  if (StaysNear(sizes, target)) return;
  // Few parallel streams suit the last-level cache, more of them memory.
  const bool cached = Bytes(sizes) <= target.l3_bytes() / 4;
  s->kc = m > 4 ? 32 : m == 1 && cached ? 4 : 8;
  s->copy_rows = m > 4;
  s->prefetch = true;
  constexpr int64_t kSums = 16384;  // per item
  const int64_t threads = std::max(1, target.threads());
  if (sizes.exact_n && s->nv > 2 && s->nv * sizes.lanes * threads > *sizes.n) s->nv = 2;
  const int64_t width = s->nv * sizes.lanes;
  // A size that calls choose may be small: shorter stretches leave work for each thread.
  int64_t columns = sizes.exact_n ? *sizes.n / threads : kSums / 8;
  // Only large images have as many columns as such an item.
  if (sizes.image && !sizes.exact_n) columns = kSums / 64;
  s->panels_per_item =
      std::max<int64_t>(1, (std::min(columns, kSums / s->rows_per_item) + width - 1) / width);
}

// Computes dot products of a few rows with a few columns at once.
void ReadDots(const Sizes& sizes, const v1::Target& target, PanelSchedule* s) {
  const int64_t m = std::max<int64_t>(*sizes.m, 1);
  s->columns = ColumnAccess::kDots;
  s->mr = static_cast<int>(std::min<int64_t>(m, 4));
  s->nv = sizes.lanes == 1 ? 1 : FittingColumns(s->mr, s->mr > 2 ? 4 : 8, target);
  s->rows_per_item = (m + s->mr - 1) / s->mr * s->mr;
  s->prefetch = !StaysNear(sizes, target);
  const int64_t items = int64_t{4} * std::max(1, target.threads());
  const int64_t panels = sizes.n.value_or(1) / sizes.lanes;
  s->panels_per_item = std::clamp<int64_t>(panels / items, 1, 64);
}

constexpr int kWidePanel = 4;  // vectors

// Reports whether wide panels leave next to nothing of the last one empty.
bool FillsWidePanels(int64_t columns, int64_t lanes) {
  const int64_t width = kWidePanel * lanes;
  return ((columns + width - 1) / width * width - columns) * 16 <= columns;
}

// Reports whether columns fill wide panels and items of `rows` rows give each thread several. Such
// panels have a register tile of 6 x 4, which broadcasts half as many values as one of 12 x 2 for
// as many multiply-adds.
bool FillsWidePanels(const Sizes& sizes, int64_t rows, const v1::Target& target) {
  if (!sizes.exact_n || *sizes.n <= 0) return false;
  const int64_t width = kWidePanel * sizes.lanes;
  const int64_t panels = (*sizes.n + width - 1) / width;
  const int64_t enough = int64_t{4} * std::max(1, target.threads());
  const int64_t blocks = sizes.m ? (*sizes.m + rows - 1) / rows : enough;
  return FillsWidePanels(*sizes.n, sizes.lanes) && panels * blocks >= enough;
}

// Blocks for panels of windows, and of images by a weight. Packing is paid once per block of rows,
// so all rows of a panel are one item if there are panels for all threads.
void BlockForWindows(const Sizes& sizes, int64_t taps, int bytes, bool many_registers,
                     const v1::Target& target, PanelSchedule* s) {
  constexpr int64_t kUnknownPanels = 4, kUnknownRows = 96;
  // Packing a row of a panel takes as long as multiplying it with a few rows; windows take longer.
  const int64_t least_rows = taps > 1 ? 96 : 64;
  if (many_registers) s->mr = 6;
  s->nv = many_registers ? 4 : 2;
  if (sizes.n) {
    while (s->nv > 1 && (s->nv - 1) * sizes.lanes >= *sizes.n) --s->nv;
  }
  const int64_t width = s->nv * sizes.lanes;
  // For a size that calls choose, assumes a quarter of its maximum: an image of half the side.
  const int64_t columns = !sizes.n        ? kUnknownPanels * width
                          : sizes.exact_n ? *sizes.n
                                          : *sizes.n / 4;
  const int64_t panels = std::max<int64_t>(1, (columns + width - 1) / width);
  const int64_t rows = std::max<int64_t>(1, sizes.m.value_or(kUnknownRows));
  const int64_t threads = std::max(1, target.threads());
  int64_t blocks = std::clamp<int64_t>((4 * threads + panels - 1) / panels, 1,
                                       std::max<int64_t>(1, rows / least_rows));
  // Gives each thread equally many blocks.
  if (blocks > threads && panels < threads) blocks -= blocks % threads;
  // Few rows that tiles of four cover take no longer, and no tile of their own for what six leave.
  if (rows <= 64 && rows % 4 == 0 && rows % s->mr % 4 != 0) s->mr = 4;
  s->mr = static_cast<int>(std::min<int64_t>(s->mr, rows));
  s->rows_per_item = ((rows + blocks - 1) / blocks + s->mr - 1) / s->mr * s->mr;
  // Gives a panel a quarter of the second-level cache. The pieces of the sums are equal and hold
  // whole windows.
  const int64_t most = std::max<int64_t>(256, target.l2_bytes() / 4 / (width * bytes));
  const int64_t k = std::max<int64_t>(1, sizes.k.value_or(most));
  const int64_t pieces = (k + most - 1) / most;
  s->kc = ((k + pieces - 1) / pieces + taps - 1) / taps * taps;
}

// Blocks for long rows. They leave the second-level cache between two panels and, if their length
// is a power of two, the first-level cache between two steps. Copies of row pieces stay cached for
// many panels.
void BlockForCaches(const Sizes& sizes, int bytes, const v1::Target& target, PanelSchedule* s) {
  constexpr int64_t kPieceBytes = 2048;  // per row
  const bool ahead = s->columns == ColumnAccess::kAhead;
  if (!sizes.exact_m || !sizes.exact_n || *sizes.k * bytes <= 4096) return;
  if (*sizes.m < (ahead ? 240 : 480)) return;
  s->copy_rows = true;
  s->kc = kPieceBytes / bytes;
  // Packing is paid once per block of rows: blocks take most of the second-level cache and are
  // equal.
  const int64_t most =
      ahead ? 240 : std::max<int64_t>(240, target.l2_bytes() / 10 * 7 / kPieceBytes);
  const int64_t blocks = (*sizes.m + most - 1) / most;
  s->rows_per_item = ((*sizes.m + blocks - 1) / blocks + s->mr - 1) / s->mr * s->mr;
  const int64_t panels = (*sizes.n + s->nv * sizes.lanes - 1) / (s->nv * sizes.lanes);
  s->panels_per_item = ahead ? 16 : 32;
  while (s->panels_per_item > 1 &&
         blocks * (panels / s->panels_per_item) < int64_t{4} * std::max(1, target.threads())) {
    s->panels_per_item /= 2;
  }
}

// Bytes of scratch of a team that fit the shared memory of its block.
constexpr int64_t kTeamBytes = 10 << 10;

// A team computes many small items of one tile each. Its lanes read neighbours where they are; what
// has none is packed a few sums at a time, so that scratch lies in shared memory, or summed by lane
// if there are few rows.
PanelSchedule ScheduleForTeam(const Graph& graph, const Node& node, bool swap,
                              const ContractRoles& roles, const Sizes& sizes, bool ahead) {
  constexpr int64_t kRows = 8, kFew = 4, kMostSums = 4096;
  const auto contiguous = [&](int side, const std::string& group) {
    return IsContiguous(graph, node, roles, side, group);
  };
  const int64_t m = std::max<int64_t>(sizes.m.value_or(kRows), 1);
  PanelSchedule s;
  s.swap = swap;
  s.mr = static_cast<int>(std::min(m, kRows));
  s.nv = !sizes.n || *sizes.n > sizes.lanes ? 2 : 1;
  s.kc = kMostSums;
  if (ahead) {
    s.columns = ColumnAccess::kAhead;
  } else if (IsWindows(graph, node, roles, roles.column_operand, roles.columns)) {
    s.columns = ColumnAccess::kPack;
  } else if (contiguous(roles.column_operand, roles.columns)) {
    s.columns = ColumnAccess::kInPlace;
  } else if (sizes.m && m <= kFewRows && contiguous(roles.column_operand, roles.sums) &&
             contiguous(roles.row_operand, roles.sums)) {
    s.columns = ColumnAccess::kDots;
    // An item has few rows and as many columns as the team has threads: rows are what there is more
    // of, so that there are more items.
    const int64_t n = std::max<int64_t>(sizes.n.value_or(sizes.lanes), 1);
    if (n > m) s.swap = !swap;
    s.mr = static_cast<int>(std::min(std::max(m, n), kFew));
    s.nv = static_cast<int>(std::min({m, n, kFew}));
  }
  s.rows_per_item = s.mr;
  if (s.columns != ColumnAccess::kPack) return s;
  const int64_t row = sizes.lanes * s.nv * DTypeBytes(AccumulatorOf(node.type.dtype));
  const int64_t most = std::max<int64_t>((kTeamBytes - s.mr * row) / row, 1), taps = TapsOf(roles);
  s.kc = std::max<int64_t>(most / taps, 1) * taps;
  return s;
}

// Returns what a rule of thumb takes a size to be: a size that calls choose, a quarter of its
// maximum.
int64_t Usual(const Expr& size, const Bounds& bounds) {
  constexpr int64_t kUnbounded = 1 << 20;
  if (const std::optional<int64_t> exact = size.constant()) return *exact;
  return bounds.Maximum(size).value_or(4 * kUnbounded) / 4;
}

// Returns the first tile of which each multiprocessor gets one, else the last, which is small: of
// matrix instructions where the target has one for the operands.
// nullopt where rows, columns or sums are too few for tiles. Lanes run along what is stored
// contiguously: it costs a tile nothing to read either operand across its order in memory.
std::optional<TileSchedule> TileOf(const Graph& graph, NodeId id, const v1::Target& target,
                                   const std::vector<bool>* has_memory) {
  constexpr int64_t kLeastRows = 32, kLeastColumns = 32, kLeastSums = 16;
  const Node& node = graph.node(id);
  const auto stores = [&](const ContractRoles& r) {
    return !r.columns.empty() && r.columns.back() == r.result.back();
  };
  const bool swap = stores(FindContractRoles(graph, node, /*swap=*/true));
  const ContractRoles roles = FindContractRoles(graph, node, swap);
  if (!stores(roles)) return std::nullopt;
  const Bounds bounds = graph.DimBounds();
  const auto usual = [&](const std::string& group) { return Usual(roles.SizeOf(group), bounds); };
  const int64_t m = usual(roles.rows), n = usual(roles.columns);
  if (m < kLeastRows || n < kLeastColumns || usual(roles.sums) < kLeastSums) return std::nullopt;
  const std::vector<bool> all_have_memory(graph.nodes.size(), true);
  if (has_memory == nullptr) has_memory = &all_have_memory;
  std::optional<TileSchedule> tile;
  for (const TileSchedule& s : TileSchedules(graph, id, swap, target, has_memory)) {
    if (tile && tile->tensor() != s.tensor()) break;
    // Keeps each shape's first pieces of the sums, unsplit.
    if (s.split > 1 || (tile && tile->mr == s.mr && tile->nv == s.nv)) continue;
    tile = s;
    const int64_t columns = TileColumns(s);
    const int64_t tiles = (m + TileRows(s) - 1) / TileRows(s) * ((n + columns - 1) / columns);
    if (tiles * std::max<int64_t>(usual(roles.batch), 1) >= MultiprocessorsOf(target)) break;
  }
  return tile;
}

}  // namespace

std::optional<ContractSchedule> ScheduleContract(const Graph& graph, NodeId id,
                                                 const std::vector<bool>& is_weight,
                                                 const v1::Target& target,
                                                 const std::vector<bool>* has_memory) {
  const Node& node = graph.node(id);
  const int bytes = DTypeBytes(AccumulatorOf(node.type.dtype));
  int64_t lanes = LanesOf(target, bytes, HasTeams(target) ? TeamFor(std::nullopt) : 1);
  const int scores[2] = {ColumnScore(graph, node, 0, is_weight, lanes),
                         ColumnScore(graph, node, 1, is_weight, lanes)};
  if (scores[0] == 0 && scores[1] == 0) return std::nullopt;
  PanelSchedule s;
  s.swap = scores[0] > scores[1];
  const bool many_registers = target.vector_registers() >= 32;
  s.mr = many_registers ? 12 : 6;
  s.nv = 2;
  const ContractRoles roles = FindContractRoles(graph, node, s.swap);
  const Bounds bounds = graph.DimBounds();
  const Expr m = roles.SizeOf(roles.rows);
  if (HasTeams(target)) lanes = TeamFor(bounds.Maximum(roles.SizeOf(roles.columns)));
  const Sizes sizes{.m = bounds.Maximum(m),
                    .n = bounds.Maximum(roles.SizeOf(roles.columns)),
                    .k = bounds.Maximum(roles.SizeOf(roles.sums)),
                    .exact_m = m.constant().has_value(),
                    .exact_n = roles.SizeOf(roles.columns).constant().has_value(),
                    .operand_bytes = DTypeBytes(node.type.dtype),
                    .lanes = lanes,
                    .image = is_weight[node.inputs[roles.row_operand]]};
  if (sizes.n && *sizes.n <= lanes) s.nv = 1;
  const bool ahead = is_weight[node.inputs[roles.column_operand]];
  if (HasTeams(target)) {
    const std::optional<TileSchedule> tile = TileOf(graph, id, target, has_memory);
    if (tile) return *tile;
    return ScheduleForTeam(graph, node, s.swap, roles, sizes, ahead);
  }
  // Packing inside a work item is paid once per block of rows, so its blocks are taller.
  int64_t tiles = ahead ? 8 : 40;
  constexpr int kWideRows = 6;
  const int64_t wide_tiles = ahead ? 8 : 80;
  if (many_registers && FillsWidePanels(sizes, kWideRows * wide_tiles, target)) {
    s.mr = kWideRows;
    s.nv = kWidePanel;
    tiles = wide_tiles;
  }
  s.rows_per_item = s.mr * tiles;
  // Keeps a panel of the column operand in half of the second-level cache.
  s.kc = std::max<int64_t>(256, target.l2_bytes() / 2 / (lanes * s.nv * bytes));
  if (ahead) s.columns = ColumnAccess::kAhead;
  const bool windows = IsWindows(graph, node, roles, roles.column_operand, roles.columns);
  if (!ahead && (windows || (sizes.image && m.constant() > kFewRows))) {
    BlockForWindows(sizes, TapsOf(roles), bytes, many_registers, target, &s);
    return s;
  }
  if (sizes.k) BlockForCaches(sizes, bytes, target, &s);
  if (ahead) return s;
  if (!sizes.m || *sizes.m > kFewRows) return s;
  auto contiguous = [&](int side, const std::string& group) {
    return IsContiguous(graph, node, roles, side, group);
  };
  if (contiguous(roles.column_operand, roles.columns)) {
    ReadInPlace(sizes, target, &s);
  } else if (contiguous(roles.column_operand, roles.sums) &&
             contiguous(roles.row_operand, roles.sums)) {
    ReadDots(sizes, target, &s);
  }
  return s;
}

// Scratch of a block's team that lies in shared memory; reductions take the rest.
constexpr int64_t kMostBytes = (48 << 10) - 64;

int64_t StagedBytes(const TileSchedule& s, int bytes) {
  const int64_t rows = TileRows(s), columns = TileColumns(s);
  // Staged along the sums, each group of elements has a part of its own as large, for the banks.
  const int64_t staged = (rows + columns) * (s.kc + 1);
  // Three buffers end at a cache line.
  return int64_t{kTileTeam} * s.mr * s.nv * bytes + staged * bytes + 3 * 64;
}

bool FitsStaged(const TileSchedule& s, int bytes) {
  const auto is_part = [](int64_t n) { return n == 4 || n == 8; };
  if (!is_part(s.mr) || !is_part(s.nv) || (s.kc != 8 && s.kc != 16 && s.kc != 32)) return false;
  return StagedBytes(s, bytes) <= kMostBytes;
}

std::vector<TileSchedule> StagedSchedules(int bytes) {
  std::vector<TileSchedule> all;
  for (int mr : {8, 4}) {
    for (int nv : {8, 4}) {
      for (int64_t kc : {16, 8, 32}) {
        const TileSchedule s{.mr = mr, .nv = nv, .kc = kc};
        if (FitsStaged(s, bytes)) all.push_back(s);
      }
    }
  }
  return all;
}

NodeId BehindCast(const Graph& graph, NodeId operand, const std::vector<bool>* has_memory) {
  const bool inlined = has_memory == nullptr || !(*has_memory)[operand];
  const Node& source = graph.node(operand);
  return source.op == Op::kCast && inlined ? source.inputs[0] : operand;
}

std::optional<TensorOperands> FindTensorOperands(const Graph& graph, const Node& node,
                                                 const std::vector<bool>* has_memory) {
  TensorOperands found{};
  for (int side = 0; side < 2; ++side) {
    NodeId& operand = found.operands[side];
    operand = BehindCast(graph, node.inputs[side], has_memory);
    const MatrixInstruction* row = FindMatrixInstruction(graph.node(operand).type.dtype);
    if (row == nullptr || (side == 1 && row != found.instruction)) return std::nullopt;
    found.instruction = row;
  }
  const DType result = node.type.dtype;
  const MatrixInstruction& row = *found.instruction;
  if (result != row.operands && result != row.sums) return std::nullopt;
  return found;
}

bool HasInstruction(const v1::Target& target, const MatrixInstruction& instruction) {
  absl::string_view chip = target.cpu();
  int number = 0;
  if (target.device() != "cuda" || !absl::ConsumePrefix(&chip, "sm_")) return false;
  absl::ConsumeSuffix(&chip, "a");
  return absl::SimpleAtoi(chip, &number) && number >= instruction.least_sm;
}

int64_t TensorBytes(const TileSchedule& s, const MatrixInstruction& mma) {
  constexpr int64_t kLine = 64;  // a buffer ends at a cache line
  const int64_t row_bytes = s.kc * DTypeBytes(mma.operands);
  int64_t bytes = 0;
  for (const int64_t width : {TileRows(s), TileColumns(s)}) {
    bytes += width * row_bytes + std::max(width, s.kc) * kTensorPadBytes + kLine;
  }
  const int64_t sums = int64_t{kTensorStagedSlots} * s.nv * kTensorSumsApart;
  return s.stages * bytes + sums * DTypeBytes(mma.sums) + kLine;
}

bool FitsTensor(const TileSchedule& s, const MatrixInstruction& mma) {
  const bool shape = (s.mr == 1 || s.mr == 2 || s.mr == 4) &&
                     (s.nv == 2 || s.nv == 4 || s.nv == 8) && s.stages >= 1 && s.stages <= 4;
  if (!shape) return false;
  const int64_t row_bytes = s.kc * DTypeBytes(mma.operands);
  if (row_bytes != 32 && row_bytes != 64 && row_bytes != 128) return false;
  for (const int64_t width : {TileRows(s), TileColumns(s)}) {
    // Each thread copies as many chunks.
    if (width * row_bytes % (kTileTeam * kTensorAccessBytes) != 0) return false;
  }
  return TensorBytes(s, mma) <= kMostBytes;
}

std::vector<TileSchedule> TensorSchedules(const Graph& graph, NodeId node, const v1::Target& target,
                                          const std::vector<bool>* has_memory) {
  constexpr std::pair<int, int> kTiles[] = {{4, 8}, {4, 4}, {2, 4}, {1, 4}};
  std::vector<TileSchedule> all;
  const std::optional<TensorOperands> operands =
      FindTensorOperands(graph, graph.node(node), has_memory);
  if (!operands || !HasInstruction(target, *operands->instruction)) return all;
  const MatrixInstruction& mma = *operands->instruction;
  for (const auto& [mr, nv] : kTiles) {
    // More copies ahead come before longer rows: three stages of the largest tile have room in rows
    // of 32 bytes only.
    for (const int stages : {3, 2, 4, 1}) {
      for (const int64_t row_bytes : {64, 32, 128}) {
        const TileSchedule s{
            .mr = mr, .nv = nv, .kc = row_bytes / DTypeBytes(mma.operands), .stages = stages};
        if (FitsTensor(s, mma)) all.push_back(s);
      }
    }
  }
  return all;
}

namespace {

// Returns by how many items a tile's sums may be shared, at most two numbers: those that come the
// closest to two items for each multiprocessor, where whole tiles leave some idle. Each item has a
// few steps of the sums, and the largest sizes tell how many items there are.
std::vector<int> SplitsOf(const ContractRoles& roles, const Bounds& bounds, const TileSchedule& s,
                          const v1::Target& target) {
  constexpr int64_t kLeastSteps = 4;
  const auto most = [&](const std::string& group) { return bounds.Maximum(roles.SizeOf(group)); };
  const std::optional<int64_t> m = most(roles.rows), n = most(roles.columns),
                               batch = most(roles.batch), k = most(roles.sums);
  std::vector<int> splits;
  if (!m || !n || !batch || !k) return splits;
  const auto parts = [](int64_t extent, int64_t part) { return (extent + part - 1) / part; };
  const double tiles = static_cast<double>(parts(*m, TileRows(s))) *
                       static_cast<double>(parts(*n, TileColumns(s))) * static_cast<double>(*batch);
  for (const int split : {16, 8, 4, 2}) {
    const bool fits =
        tiles * split <= 2 * MultiprocessorsOf(target) && parts(*k, s.kc) >= kLeastSteps * split;
    if (fits && splits.size() < 2) splits.push_back(split);
  }
  return splits;
}

}  // namespace

std::vector<TileSchedule> TileSchedules(const Graph& graph, NodeId id, bool swap,
                                        const v1::Target& target,
                                        const std::vector<bool>* has_memory) {
  std::vector<TileSchedule> all;
  if (!HasTeams(target)) return all;
  const Node& node = graph.node(id);
  const ContractRoles roles = FindContractRoles(graph, node, swap);
  if (roles.columns.empty()) return all;
  const Bounds bounds = graph.DimBounds();
  // Adds tiles of which calls can fill half of each part, and more than the next smaller part.
  const auto add = [&](const std::vector<TileSchedule>& tiles) {
    if (tiles.empty()) return;
    TileSchedule least = tiles[0];
    for (const TileSchedule& s : tiles) {
      least.mr = std::min(least.mr, s.mr);
      least.nv = std::min(least.nv, s.nv);
      least.kc = std::min(least.kc, s.kc);
    }
    const auto suits = [&](const std::string& group, int64_t part, int64_t smallest) {
      const std::optional<int64_t> most = bounds.Maximum(roles.SizeOf(group));
      return !most || (part == smallest ? 2 * *most >= part : 2 * *most > part);
    };
    for (TileSchedule s : tiles) {
      if (!suits(roles.rows, TileRows(s), TileRows(least)) ||
          !suits(roles.columns, TileColumns(s), TileColumns(least)) ||
          !suits(roles.sums, s.kc, least.kc)) {
        continue;
      }
      s.swap = swap;
      all.push_back(s);
      for (const int split : SplitsOf(roles, bounds, s, target)) {
        all.push_back(s);
        all.back().split = split;
      }
    }
  };
  add(TensorSchedules(graph, id, target, has_memory));
  add(StagedSchedules(DTypeBytes(AccumulatorOf(node.type.dtype))));
  return all;
}

std::vector<int> RowTiles(int rows, std::optional<int64_t> left) {
  // A tile of more rows is more code than it is worth.
  constexpr int64_t kMostLeft = 8;
  std::vector<int> tiles = {rows};
  if (left && *left <= kMostLeft) {
    if (*left > 0) tiles.push_back(static_cast<int>(*left));
    return tiles;
  }
  if (rows > 4) tiles.push_back(4);
  if (rows > 1) tiles.push_back(1);
  return tiles;
}

std::optional<int64_t> RowsLeft(std::optional<int64_t> m, const PanelSchedule& schedule) {
  if (!m || schedule.rows_per_item % schedule.mr != 0) return std::nullopt;
  return *m % schedule.mr;
}

int SharedPanel(int64_t columns, int64_t lanes) {
  if (columns <= lanes) return 1;
  return FillsWidePanels(columns, lanes) ? kWidePanel : 2;
}

int PanelWidth(const Graph& graph, NodeId node, const PanelSchedule& schedule,
               const v1::Target& target, int team) {
  const int bytes = DTypeBytes(AccumulatorOf(graph.node(node).type.dtype));
  return LanesOf(target, bytes, team) * (schedule.panel > 0 ? schedule.panel : schedule.nv);
}

int ContractTeam(const Graph& graph, NodeId node, const ContractSchedule& schedule,
                 const v1::Target& target) {
  if (!HasTeams(target)) return 1;
  if (std::holds_alternative<TileSchedule>(schedule)) return kTileTeam;
  const ContractRoles roles = FindContractRoles(graph, graph.node(node), Swaps(schedule));
  const auto* panels = std::get_if<PanelSchedule>(&schedule);
  const bool sums = panels != nullptr && panels->columns == ColumnAccess::kDots;
  return TeamFor(graph.DimBounds().Maximum(roles.SizeOf(sums ? roles.sums : roles.columns)));
}

NodeId AddPackedOperand(Graph* graph, NodeId id, bool swap, int width) {
  const Node& node = graph->node(id);
  const ContractRoles roles = FindContractRoles(*graph, node, swap);
  const NodeId operand = node.inputs[roles.column_operand];
  std::map<char, Expr> at;
  IndexMap map;
  for (char c : roles.batch) {
    at[c] = Expr::Axis(static_cast<int>(map.shape.size()));
    map.shape.push_back(roles.extents.at(c));
  }
  const int rank = static_cast<int>(map.shape.size());
  const Expr k = Expr::Axis(rank + 1), n = Expr::Axis(rank) * width + Expr::Axis(rank + 2);
  map.shape.insert(map.shape.end(),
                   {CeilDiv(roles.SizeOf(roles.columns), width), roles.SizeOf(roles.sums), width});
  // Splits a flattened index into those of its axes, the last one fastest. The first axis needs no
  // modulus: beyond its extent the packed operand is filled with zeros.
  auto split = [&](const std::string& letters, const Expr& flat) {
    Expr stride = 1;
    for (size_t i = letters.size(); i-- > 0;) {
      Expr digit = FloorDiv(flat, stride);
      at[letters[i]] = i > 0 ? Mod(digit, roles.extents.at(letters[i])) : digit;
      stride *= roles.extents.at(letters[i]);
    }
  };
  split(roles.sums, k);
  split(roles.columns, n);
  for (char c : roles.letters[roles.column_operand]) map.coordinates.push_back(at[c]);
  Node packed;
  packed.op = Op::kIndexMap;
  packed.inputs = {operand};
  packed.type = {graph->node(operand).type.dtype, map.shape};
  packed.attrs["map"] = std::move(map);
  packed.attrs["fill"] = Tensor::Zeros(packed.type.dtype, {});
  graph->nodes.push_back(std::move(packed));
  return static_cast<NodeId>(graph->nodes.size()) - 1;
}

}  // namespace athanor
