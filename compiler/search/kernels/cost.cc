#include "compiler/search/kernels/cost.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/library_call.h"
#include "compiler/search/kernels/paged_schedule.h"

namespace athanor {
namespace {

Expr::Env EnvOf(const Graph& graph, const SizePoint& sizes) {
  Expr::Env env;
  for (size_t d = 0; d < sizes.size(); ++d) env[graph.dims[d].name] = sizes[d];
  return env;
}

double ValueOf(const Expr& e, const Expr::Env& env) {
  std::optional<int64_t> value = e.Evaluate(env);
  return value ? static_cast<double>(*value) : 0;
}

std::vector<bool> OperandsOf(const KernelTask& task) {
  return MemoryOf(task.graph, {{task.choice}});
}

// Returns the bandwidth at which a kernel moves `bytes`. They lie where the producer or the call
// before left them: in the cores' own caches if they fit, else in the last-level cache, else in
// memory.
double Bandwidth(double bytes, const v1::Target& target, const Machine& machine) {
  constexpr double kCached = 16e6;
  constexpr double kTypicalNear = 512 << 10;
  const double near = target.l2_bytes() > 0 ? static_cast<double>(target.l2_bytes()) : kTypicalNear;
  if (bytes > kCached) return machine.read_bytes_per_second;
  if (bytes > near * std::max(1, target.threads())) return machine.cache_bytes_per_second;
  return std::max(machine.near_bytes_per_second, machine.cache_bytes_per_second);
}

// Without a register tile each operation waits for its operands to be loaded. Multiples of the
// peak's time that this takes: at least, and typically.
constexpr double kLeastUntiled = 2;
constexpr double kUntiled = 8;

// Slots of a load on a GPU: a multiprocessor reads 128 bytes of shared memory or of its first-level
// cache in the cycle in which it issues 128 threads' multiply-adds (CUDA C++ Programming Guide,
// "Shared Memory": 32 banks of 4 bytes).
double LoadSlots(int bytes) { return std::max(bytes, 4); }

// Slots until a load from there has come, and from beyond (Jia et al., "Dissecting the NVIDIA Volta
// GPU Architecture via Microbenchmarking", 2018: 19 and 28 cycles; 193 and more).
constexpr double kCacheLatency = 25, kMemoryLatency = 400;
// Slots from load to load of a loop that has a few of them under way.
constexpr double kStreamLatency = kMemoryLatency / 4;

// A sector of memory, which is moved as a whole, has 8 elements of f32.
constexpr double kSector = 8;
// Returns how many sectors are moved for one in use, where each team reads elsewhere.
double Apart(int team) { return std::max(1.0, kSector / team); }

// How many multiply-adds matrix instructions do while others do one of f32: 312 TFLOP/s
// against 19.5 (NVIDIA A100 Tensor Core GPU Architecture, 2020). One of 16 x 8 x 16 takes a
// scheduler's slots:
constexpr double kTensorPeak = 16, kTensorSlots = 8;

// Slots of a tile: per element of the result, on its way through shared memory, and of both
// barriers of a step.
constexpr double kStoreSlots = 16, kBarrierSlots = 32;
// Registers and blocks that a multiprocessor has room for.
constexpr double kRegisters = 65536, kMostBlocks = 16;

// Returns the factor by which a partly idle last round of work items lengthens the time.
double Imbalance(double items, int threads) {
  if (items <= 0 || threads <= 1) return 1;
  // Every round takes as long as its slowest item, and the last one may leave threads idle.
  return std::ceil(items / threads) * threads / items;
}

// Slots of a row's value and of a vector of columns.
struct Loads {
  double row = 1, column = 1;
};

// Returns the issue slots, of one vector multiply-add each, that a tile of `rows` x `vectors` takes
// per step of the reduction: those of its multiply-adds or of its loads, whichever are more, but no
// fewer than pass in two pipes during the latency of an addition.
double SlotsOfTile(double rows, double vectors, const Loads& load) {
  constexpr double kLatencySlots = 8;
  return std::max({rows * vectors, rows * load.row + vectors * load.column, kLatencySlots});
}

// Returns those of a team's threads, each of which has an element of the vector.
Loads LoadsOfTeam(int team) {
  const double slots = LoadSlots(sizeof(float)) * Apart(team);
  return {.row = slots, .column = slots};
}

// `left`: as RowTiles has it.
double SlotsOfRows(double rows, const PanelSchedule& s, std::optional<int64_t> left,
                   const Loads& load) {
  double slots = 0;
  for (double step : RowTiles(s.mr, left)) {
    const double tiles = std::floor(rows / step);
    slots += tiles * SlotsOfTile(step, s.nv, load);
    rows -= tiles * step;
  }
  return slots;
}

}  // namespace

Machine Machine::Typical(const v1::Target& target) {
  const double threads = std::max(1, target.threads());
  Machine m;
  if (target.device() == "cuda") {
    // By thread that is resident: 2.7 TB/s and 57 TFLOP/s of an H100, 1.7 and 35 of an A100, each
    // a little below what their vendor says.
    m.read_bytes_per_second = 1e7 * threads;
    m.cache_bytes_per_second = 2e7 * threads;
    m.near_bytes_per_second = 7e7 * threads;
    m.f32_flops_per_second = 2.1e8 * threads;
    m.launch_seconds = 2.5e-6;
    return m;
  }
  m.read_bytes_per_second = 15e9 * threads;
  m.cache_bytes_per_second = 60e9 * threads;
  m.near_bytes_per_second = 150e9 * threads;
  // Two pipes, each with one vector of f32 multiply-adds per cycle, at 3 GHz.
  m.f32_flops_per_second = threads * 3e9 * 2 * 2 * LanesOf(target, sizeof(float));
  m.launch_seconds = 1e-7;
  return m;
}

TaskCost::TaskCost(const KernelTask& task, const SizePoint& sizes, const v1::Target& target,
                   const Machine& machine)
    : launch_(machine.launch_seconds),
      slots_per_second_(machine.f32_flops_per_second / 2 / LanesOf(target, sizeof(float))),
      threads_(std::max(1, target.threads())),
      multiprocessors_(MultiprocessorsOf(target)),
      l1_bytes_(static_cast<double>(target.l1_bytes())),
      l2_bytes_(static_cast<double>(target.l2_bytes())),
      cache_bytes_per_second_(machine.cache_bytes_per_second),
      teams_(HasTeams(target)) {
  const Graph& graph = task.graph;
  const Expr::Env env = EnvOf(graph, sizes);
  const std::vector<bool> memory = OperandsOf(task);
  const double bytes = ValueOf(MovedBytes(graph, memory, task.choice.root), env);
  const int element_bytes = DTypeBytes(graph.node(task.choice.root).type.dtype);
  moved_vectors_ = bytes / (LanesOf(target, element_bytes) * element_bytes);
  elements_ = 1;
  for (const Expr& e : graph.node(task.choice.root).type.shape) elements_ *= ValueOf(e, env);
  const double flops = ValueOf(Flops(graph, memory, task.choice.root), env);
  const double moving = bytes / Bandwidth(bytes, target, machine);
  moving_ = moving;
  const Shape& shape = graph.node(task.choice.root).type.shape;
  if (!shape.empty()) row_ = std::max(ValueOf(shape.back(), env), 1.0);
  const bool tiled = task.choice.anchor >= 0;
  if (tiled && FormOf(graph.node(task.choice.anchor).op) == OpForm::kContract) {
    const auto tensor = FindTensorOperands(graph, graph.node(task.choice.anchor));
    if (tensor && HasInstruction(target, *tensor->instruction)) tensor_ = tensor->instruction;
  }
  flops_per_second_ = machine.f32_flops_per_second * (tensor_ != nullptr ? kTensorPeak : 1);
  const double computing = flops / flops_per_second_;
  // The roofline model (Williams, Waterman and Patterson, 2009): a kernel takes at least as long as
  // moving its bytes and as computing.
  roofline_ = std::max(moving, tiled ? computing : kLeastUntiled * computing);
  untiled_ = std::max(moving, kUntiled * computing);
  if (task.choice.kind == KernelKind::kSort) {
    const Node& root = graph.node(task.choice.root);
    const auto axis = static_cast<size_t>(GetAttr<int64_t>(root.attrs, "axis"));
    extents_[0].rows = 1;
    for (size_t i = 0; i < root.type.shape.size(); ++i) {
      if (i != axis) extents_[0].rows *= ValueOf(root.type.shape[i], env);
    }
  }
  if (!tiled) return;
  const Node& anchor = graph.node(task.choice.anchor);
  accumulator_bytes_ = DTypeBytes(AccumulatorOf(anchor.type.dtype));
  operand_bytes_ = DTypeBytes(graph.node(anchor.inputs[0]).type.dtype);
  lanes_ = LanesOf(target, accumulator_bytes_);
  if (FormOf(anchor.op) == OpForm::kContract) {
    for (bool swap : {false, true}) {
      const ContractRoles roles = FindContractRoles(graph, anchor, swap);
      Extents& e = extents_[swap];
      e.batch = ValueOf(roles.SizeOf(roles.batch), env);
      e.rows = ValueOf(roles.SizeOf(roles.rows), env);
      e.known_rows = roles.SizeOf(roles.rows).constant();
      e.columns = ValueOf(roles.SizeOf(roles.columns), env);
      e.sums = ValueOf(roles.SizeOf(roles.sums), env);
      e.windows = IsWindows(graph, anchor, roles, roles.column_operand, roles.columns);
      e.contiguous = !roles.columns.empty() &&
                     roles.letters[roles.column_operand].back() == roles.columns.back();
      if (!teams_) continue;
      const std::vector<int64_t> ways = CallWays(roles.SizeOf(roles.rows), graph.DimBounds());
      const auto way = std::find_if(ways.begin(), ways.end(), [&](int64_t rows) {
        return static_cast<double>(rows) >= e.rows;
      });
      if (way != ways.end()) e.called_rows = static_cast<double>(*way);
    }
    return;
  }
  const Shape& q = graph.node(anchor.inputs[0]).type.shape;
  const Shape& v = graph.node(anchor.inputs[2]).type.shape;
  Extents& e = extents_[0];
  if (IsPagedAttention(anchor.op)) {
    e.batch = ValueOf(v[1], env);
    e.group = ValueOf(q[1], env) / e.batch;
    e.rows = ValueOf(PagedKeys(graph, anchor), env);
    e.columns = ValueOf(q[0], env);
    e.sums = ValueOf(q[2], env);
    e.value_depth = ValueOf(v[2], env);
    return;
  }
  for (size_t i = 0; i + 2 < q.size(); ++i) e.batch *= ValueOf(q[i], env);
  // The rows of a score tile are keys; its columns, in the lanes, are queries.
  e.rows = ValueOf(v[v.size() - 2], env);
  e.columns = ValueOf(q[q.size() - 2], env);
  e.sums = ValueOf(q.back(), env);
  e.value_depth = ValueOf(v.back(), env);
}

double TaskCost::Contract(const ContractSchedule& schedule, int team) const {
  const Extents& e = extents_[Swaps(schedule)];
  if (e.rows * e.columns * e.batch == 0) return 0;
  if (const auto* tile = std::get_if<TileSchedule>(&schedule)) {
    return tile->tensor() ? Tensor(e, *tile) : Staged(e, *tile);
  }
  if (const auto* block = std::get_if<LibrarySchedule>(&schedule)) return Library(e, *block);
  if (const auto* call = std::get_if<CallSchedule>(&schedule)) return Call(e, *call);
  const auto& panels = std::get<PanelSchedule>(schedule);
  return panels.columns == ColumnAccess::kDots ? Dots(e, panels, team) : Panels(e, panels, team);
}

double TaskCost::Panels(const Extents& e, const PanelSchedule& s, int team) const {
  const double m = e.rows, n = e.columns, k = e.sums;
  const double lanes = lanes_ * team;
  const double width = lanes * s.nv;
  const double kc = std::max(1.0, std::min<double>(k, static_cast<double>(s.kc)));
  // A panel larger than the first-level cache is loaded at about half the speed.
  const double column_load = kc * width * accumulator_bytes_ > 0.75 * l1_bytes_ ? 2 : 1;
  const Loads load = teams_ ? LoadsOfTeam(team) : Loads{.column = column_load};
  const double blocks = std::ceil(m / static_cast<double>(s.rows_per_item));
  const double panels = std::ceil(n / width);
  const double items =
      e.batch * blocks * std::ceil(panels / static_cast<double>(s.panels_per_item));
  const double rows = std::min<double>(m, static_cast<double>(s.rows_per_item));
  const std::optional<int64_t> left = RowsLeft(e.known_rows, s);
  double slots = (blocks - 1) * SlotsOfRows(rows, s, left, load) * k +
                 SlotsOfRows(m - (blocks - 1) * rows, s, left, load) * k;
  // Sums go through memory once per piece of the reduction, and once to the epilogue: also those of
  // no terms.
  slots += m * s.nv * 2 * std::max(1.0, std::ceil(k / kc));
  // Packing takes slots per vector, most of all if its elements are not contiguous.
  if (s.columns == ColumnAccess::kPack) {
    const double vector = !e.contiguous ? 3 * lanes_ : e.windows ? 8 : 4;  // per thread of a team
    slots += blocks * k * s.nv * vector;
  }
  if (s.prefetch) slots += blocks * k * s.nv;
  if (s.copy_rows) slots += m * k / lanes * 2 / static_cast<double>(s.panels_per_item);
  // Rows that share sets of the first-level cache are loaded from the second-level cache each time.
  constexpr double kAliasBytes = 4096;  // distance of addresses of one set
  // Lines that a set holds at the same time.
  constexpr int kWays = 8;
  const bool aliased = std::fmod(k * accumulator_bytes_, kAliasBytes) == 0;
  if (!s.copy_rows && aliased && s.mr > kWays) slots += m * k * 0.5;
  if (teams_) {
    // Each step of the sums waits for its columns: a tile's, or those that are packed.
    const double tiles = std::ceil(rows / s.mr), each = blocks * panels * e.batch / items;
    const double waiting = s.columns == ColumnAccess::kPack ? kStreamLatency + tiles * kCacheLatency
                                                            : tiles * kStreamLatency;
    return OnGpu(items,
                 {.team = team,
                  .slots = slots * panels * e.batch / items,
                  .waiting = each * k * waiting,
                  .bytes = each * (rows + tiles * width) * k * operand_bytes_ * Apart(team)});
  }
  double seconds = Slots(slots * panels * e.batch);
  if (s.columns == ColumnAccess::kInPlace) {
    const double stretch = width * static_cast<double>(s.panels_per_item) * accumulator_bytes_;
    seconds = std::max(seconds,
                       Stream(k * n * e.batch * blocks * accumulator_bytes_, stretch, s.prefetch));
  }
  return seconds * Imbalance(items, threads_);
}

// A tile of R rows and C columns reads (R + C) k elements for R C k multiply-adds, so a larger one
// asks less of the L2 cache (Kung, "Memory requirements for balanced computer architectures",
// 1986). Of each sum a thread loads mr + nv elements of shared memory for its mr nv multiply-adds,
// and these overlap: the slower of both counts (Volkov and Demmel, "Benchmarking GPUs to tune dense
// linear algebra", 2008, whose registers hold the sums for that reason). Sums beyond k are computed
// too, as are rows and columns beyond the result. Items that share the sums of a tile have fewer
// steps, store what they sum and load it again, and wait for both.
double TaskCost::Staged(const Extents& e, const TileSchedule& s) const {
  constexpr double kCopySlots = 12;  // per element that is staged, its index and conversion too
  constexpr double kOtherRegisters = 32;  // of a thread
  const double rows = static_cast<double>(TileRows(s)),
               columns = static_cast<double>(TileColumns(s));
  const double tiles = e.batch * std::ceil(e.rows / rows) * std::ceil(e.columns / columns);
  const double kc = static_cast<double>(s.kc), steps = StepsOf(e, s);
  const double loads = s.mr + s.nv, sums = s.mr * s.nv;
  const double per_sum = std::max(sums + loads, loads * LoadSlots(accumulator_bytes_));
  const double copied = (rows + columns) * kc / kTileTeam;  // by each thread, per step
  const double words = std::max(accumulator_bytes_, 4) / 4;
  const double blocks =
      std::min({kMostBlocks, l1_bytes_ / static_cast<double>(StagedBytes(s, accumulator_bytes_)),
                kRegisters / (kTileTeam * ((sums + loads) * words + kOtherRegisters))});
  return OnGpu(tiles * s.split,
               WithSplit(s, sums,
                         {.team = kTileTeam,
                          .slots = steps * (kc * per_sum + copied * kCopySlots + kBarrierSlots) +
                                   sums * kStoreSlots,
                          .waiting = steps * (kc * kCacheLatency + kMemoryLatency) + kMemoryLatency,
                          .bytes = (rows + columns) * steps * kc * operand_bytes_,
                          .resident = std::max(1.0, std::floor(blocks))}));
}

// As Staged(), by waves: what an instruction multiplies is loaded by 512 bytes of rows and 256 of
// columns at a time. Copies that run ahead hide what memory takes behind the products of the steps
// in between. Takes their chunks to be whole.
double TaskCost::Tensor(const Extents& e, const TileSchedule& s) const {
  constexpr double kCopySlots = 12;       // per chunk that is copied, its index too
  constexpr double kOtherRegisters = 48;  // of a thread
  constexpr double kSlotsOfSums = 4;      // of a thread, in each fragment
  const double rows = static_cast<double>(TileRows(s)),
               columns = static_cast<double>(TileColumns(s));
  const double tiles = e.batch * std::ceil(e.rows / rows) * std::ceil(e.columns / columns);
  const double kc = static_cast<double>(s.kc), steps = StepsOf(e, s);
  const double sums = s.mr * s.nv, bytes = DTypeBytes(tensor_->operands);
  const double loads = s.mr * LoadSlots(16) + s.nv * LoadSlots(8);
  const double products = kc / tensor_->k * std::max(sums * kTensorSlots + s.mr + s.nv, loads);
  const double copied = (rows + columns) * kc * bytes / kTensorAccessBytes / kTileTeam;
  const double step = products + copied * kCopySlots + kBarrierSlots;
  const double blocks =
      std::min({kMostBlocks, l1_bytes_ / static_cast<double>(TensorBytes(s, *tensor_)),
                kRegisters / (kTileTeam * (sums * kSlotsOfSums + 2 * s.nv + kOtherRegisters))});
  const double late = std::max(0.0, kMemoryLatency - (s.stages - 1) * step);
  return OnGpu(
      tiles * s.split,
      WithSplit(s, sums * kSlotsOfSums,
                {.team = kTileTeam,
                 .slots = steps * step + sums * kSlotsOfSums * kStoreSlots,
                 .waiting = steps * (kc / tensor_->k * kCacheLatency + late) + kMemoryLatency,
                 .bytes = (rows + columns) * steps * kc * bytes,
                 .resident = std::max(1.0, std::floor(blocks))}));
}

double TaskCost::StepsOf(const Extents& e, const TileSchedule& s) {
  return std::ceil(std::ceil(std::max(e.sums, 1.0) / static_cast<double>(s.kc)) / s.split);
}

// The last item of a tile loads what all of them stored, so that an item loads as much as it
// stores.
TaskCost::TeamWork TaskCost::WithSplit(const TileSchedule& s, double sums, TeamWork work) const {
  if (s.split == 1) return work;
  work.slots += 2 * sums * LoadSlots(accumulator_bytes_);
  work.waiting += 2 * kMemoryLatency;
  work.bytes += 2 * sums * kTileTeam * accumulator_bytes_;
  return work;
}

// A scheduler, of which a multiprocessor has four, issues an instruction of a wave of 32 threads a
// cycle, which is a slot of each of them. The fullest scheduler's slots count; or, where it has too
// few waves to hide what each waits, the time of one wave after another, as many side by side as
// have room; or the bytes that items read.
double TaskCost::OnGpu(double items, const TeamWork& work) const {
  constexpr double kWave = 32, kSchedulers = 4;
  const double schedulers = multiprocessors_ * kSchedulers;
  const double waves = std::ceil(items * work.team / kWave);
  const double busy = std::ceil(waves / schedulers) * work.slots;
  const double alone =
      std::ceil(waves / (schedulers * work.resident)) * (work.slots + work.waiting);
  return std::max(Slots(std::max(busy, alone) * schedulers * kWave),
                  items * work.bytes / cache_bytes_per_second_);
}

// The library copies both operands of a block into panels of its own, and each call has a start-up
// cost.
double TaskCost::Library(const Extents& e, const LibrarySchedule& s) const {
  constexpr double kPackSlots = 20;     // per vector of an operand
  constexpr double kEfficiency = 0.85;  // of its inner loops
  constexpr double kCallSeconds = 1e-6;
  constexpr double kTileRows = 16;  // of its own tile, which few rows leave partly empty
  const double block = static_cast<double>(s.panels_per_item) * lanes_;
  const double row_blocks = std::ceil(e.rows / static_cast<double>(s.rows_per_item));
  const double items = e.batch * row_blocks * std::ceil(e.columns / block);
  const double rows = std::min(e.rows, static_cast<double>(s.rows_per_item));
  const double columns = std::min(e.columns, block);
  const double tiled = std::ceil(rows / kTileRows) * kTileRows * row_blocks;
  const double slots = e.batch * tiled * e.columns * e.sums / lanes_ / kEfficiency +
                       items * (rows + columns) * e.sums / lanes_ * kPackSlots;
  return (Slots(slots) + items * kCallSeconds / threads_) * Imbalance(items, threads_);
}

// Takes the library to compute tiles of 128 x 128, as many at a time as there are multiprocessors,
// of all rows that the call has a way for. It proposes what it takes to be faster first.
double TaskCost::Call(const Extents& e, const CallSchedule& s) const {
  constexpr double kTile = 128;
  constexpr double kEfficiency = 0.8;  // of the peak
  constexpr double kSlower = 0.01;     // each proposal than the one before
  const double tiles = e.batch * std::ceil(e.called_rows / kTile) * std::ceil(e.columns / kTile);
  const double waves = std::ceil(tiles / multiprocessors_);
  const double tile = 2 * kTile * kTile * e.sums / (kEfficiency * flops_per_second_);
  return std::max(roofline_, waves * multiprocessors_ * tile) * (1 + kSlower * s.proposal);
}

double TaskCost::Dots(const Extents& e, const PanelSchedule& s, int team) const {
  const double lanes = lanes_ * team;
  const double reduce_slots = lanes > 1 ? 8 : 0;  // to sum a vector's lanes
  const double blocks = std::ceil(e.rows / static_cast<double>(s.rows_per_item));
  const double tiles = std::ceil(e.rows / s.mr) * std::ceil(e.columns / s.nv) * e.batch;
  const double steps = std::ceil(e.sums / lanes);
  const Loads load = teams_ ? LoadsOfTeam(team) : Loads();
  const double slots = tiles * (steps * SlotsOfTile(s.mr, s.nv, load) + reduce_slots * s.mr * s.nv);
  const double items =
      e.batch * blocks * std::ceil(e.columns / (lanes * static_cast<double>(s.panels_per_item)));
  if (teams_) {
    return OnGpu(items,
                 {.team = team,
                  .slots = slots / items,
                  .waiting = tiles / items * steps * kStreamLatency,
                  .bytes = tiles / items * (s.mr + s.nv) * e.sums * operand_bytes_ * Apart(team)});
  }
  return Slots(slots) * Imbalance(items, threads_);
}

// Each stretch starts slowly, less so if it is prefetched.
double TaskCost::Stream(double bytes, double stretch, bool prefetch) const {
  if (bytes <= l2_bytes_) return 0;
  constexpr double kStartBytes = 2048;  // could have been read while a stretch starts
  return bytes / cache_bytes_per_second_ * (1 + kStartBytes / stretch) * (prefetch ? 1 : 1.25);
}

double TaskCost::Attention(const AttentionSchedule& s, int team) const {
  const Extents& e = extents_[0];
  const double groups = std::ceil(e.columns / (lanes_ * team * s.nv));
  const PanelSchedule tile{.mr = s.mr, .nv = s.nv};
  constexpr double kExpSlots = 12;  // per vector: its exponential, its share of maximum and sum
  double slots = SlotsOfRows(e.rows, tile, std::nullopt, {}) * e.sums +
                 SlotsOfRows(e.value_depth, tile, std::nullopt, {}) * e.rows +
                 e.rows * s.nv * kExpSlots;
  // Each block of keys rescales the sums so far.
  slots += std::ceil(e.rows / static_cast<double>(s.key_block)) * e.value_depth * s.nv * 3;
  return Slots(slots * groups * e.batch * team) * Imbalance(groups * e.batch * team, threads_);
}

// Takes each row to see all keys, and the rows of an item to be one sequence's.
double TaskCost::Paged(const AttentionSchedule& s) const {
  const Extents& e = extents_[0];
  if (e.columns * e.rows == 0) return 0;
  const double registers = std::max(1.0, kPagedLanes / lanes_);  // of a vector
  const PanelSchedule tile{.mr = s.mr, .nv = s.nv};
  constexpr double kExpSlots = 20;  // per vector: its mask, exponential, share of maximum and sum
  constexpr double kMergeVectors = 2;  // of exponentials, for each split
  const double tiles = std::ceil(e.columns / s.row_tile);
  const double scalars = std::min<double>(s.row_tile, e.columns) * e.group;
  const double groups = std::ceil(e.rows / kPagedLanes), splits = std::ceil(e.rows / kPagedSplit);
  const double slots = SlotsOfRows(scalars, tile, std::nullopt, {}) *
                           (e.sums * std::ceil(groups / s.nv) +
                            e.rows * std::ceil(std::ceil(e.value_depth / kPagedLanes) / s.nv)) +
                       scalars * (groups + kMergeVectors * splits) * kExpSlots;
  const double items = tiles * e.batch;
  const double read = e.rows * (e.sums + e.value_depth) * accumulator_bytes_;
  const double reading = items * read / cache_bytes_per_second_;
  return std::max(Slots(slots * registers * items), reading) * Imbalance(items, threads_);
}

// Each element is read and compared with the selected ones; those are sorted pair by pair.
double TaskCost::Sort() const {
  constexpr double kReadSlots = 10;  // per vector
  constexpr double kSortSlots = 40;  // per pair
  return Slots(moved_vectors_ * kReadSlots + elements_ * kSortSlots) *
         Imbalance(extents_[0].rows, threads_);
}

double TaskCost::Slots(double slots) const { return slots / slots_per_second_; }

double TaskCost::Scattering(const KernelChoice& choice) const {
  if (!teams_ || choice.kind == KernelKind::kSort || IsCall(choice)) return 1;
  // Each thread of a map of teams of one walks elements of its own.
  const double apart = choice.kind != KernelKind::kMap ? kSector
                       : choice.team > 1               ? 1
                                                       : static_cast<double>(choice.walk.elements);
  return std::max(1.0, std::min(apart, kSector) / choice.team);
}

double TaskCost::Walk(const KernelChoice& choice) const {
  double seconds = untiled_;
  if (choice.kind == KernelKind::kMap) {
    const double items = std::ceil(elements_ / static_cast<double>(choice.walk.elements));
    // Half of what windows read is taken to be shared by neighbouring rows.
    if (choice.walk.rows > 1) {
      const double shared = 0.5 + 0.5 / static_cast<double>(choice.walk.rows);
      seconds = std::max(roofline_, seconds * shared);
    }
    return seconds * Imbalance(items * choice.team, threads_);
  }
  // Each of the sums side by side waits for its previous addition.
  constexpr double kLatencySlots = 8;
  seconds =
      std::max(seconds, Slots(moved_vectors_ * std::max(1.0, kLatencySlots / choice.walk.unroll)));
  if (!teams_) return seconds;
  const double items = choice.kind == KernelKind::kRow ? elements_ / row_ : elements_;
  return seconds * Imbalance(items * choice.team, threads_);
}

double TaskCost::Predict(const KernelChoice& choice) const {
  // No schedule is predicted to beat the roofline.
  double seconds = choice.anchor >= 0 ? roofline_ : untiled_;
  if (choice.kind == KernelKind::kContract) {
    seconds = std::max(seconds, Contract(choice.contract, choice.team));
  } else if (choice.kind == KernelKind::kAttention) {
    seconds = std::max(seconds, Attention(choice.attention, choice.team));
  } else if (choice.kind == KernelKind::kPaged) {
    seconds = std::max(seconds, Paged(choice.attention));
  } else if (choice.kind == KernelKind::kSort) {
    seconds = std::max(seconds, Sort());
  } else if (choice.kind == KernelKind::kMap || choice.kind == KernelKind::kRow ||
             choice.kind == KernelKind::kPoint) {
    seconds = Walk(choice);
  }
  return std::max(seconds, moving_ * Scattering(choice)) + launch_;
}

double RooflineSeconds(const KernelTask& task, const SizePoint& sizes, const v1::Target& target,
                       const Machine& machine) {
  return TaskCost(task, sizes, target, machine).roofline();
}

double PredictSeconds(const KernelTask& task, const KernelChoice& choice, const SizePoint& sizes,
                      const v1::Target& target, const Machine& machine) {
  return TaskCost(task, sizes, target, machine).Predict(choice);
}

}  // namespace athanor
