#include "compiler/search/cost.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/search/contract_roles.h"

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

// Work items that threads share: what the last round leaves idle.
double Imbalance(double items, int threads) {
  if (items <= 0 || threads <= 1) return 1;
  return std::ceil(items / threads) * threads / items;
}

// Issue slots of multiply-adds (one vector each) that a tile of `rows` x `vectors` takes for a step
// of the reduction: one for each multiply-add and for each load, and no fewer than the latency of
// an addition keeps two pipes waiting for.
double SlotsOfTile(double rows, double vectors, double column_load) {
  constexpr double kLatencySlots = 8;
  return std::max({rows * vectors, rows + vectors * column_load, kLatencySlots});
}

double SlotsOfRows(double rows, const ContractSchedule& s, double column_load) {
  double slots = 0;
  for (double step : {static_cast<double>(s.mr), 4.0, 1.0}) {
    if (step > s.mr) continue;
    const double tiles = std::floor(rows / step);
    slots += tiles * SlotsOfTile(step, s.nv, column_load);
    rows -= tiles * step;
  }
  return slots;
}

double ContractSeconds(const KernelTask& task, const KernelChoice& choice, const Expr::Env& env,
                       const v1::Target& target, const Machine& machine) {
  const Node& node = task.graph.node(choice.anchor);
  const ContractSchedule& s = choice.contract;
  const ContractRoles roles = FindContractRoles(task.graph, node, s.swap);
  const double m = ValueOf(roles.SizeOf(roles.rows), env);
  const double n = ValueOf(roles.SizeOf(roles.columns), env);
  const double k = ValueOf(roles.SizeOf(roles.sums), env);
  const double batch = ValueOf(roles.SizeOf(roles.batch), env);
  if (m * n * batch == 0) return 0;
  const int bytes = DTypeBytes(AccumulatorOf(node.type.dtype));
  const double lanes = static_cast<double>(target.vector_bytes()) / bytes;
  const double width = lanes * s.nv;
  const double kc = std::min<double>(k, static_cast<double>(s.kc));
  // A panel beyond the first-level cache comes in at about half the speed.
  const double column_load =
      kc * width * bytes > 0.75 * static_cast<double>(target.l1_bytes()) ? 2 : 1;
  const double blocks = std::ceil(m / static_cast<double>(s.rows_per_item));
  const double panels = std::ceil(n / width);
  const double items = batch * blocks * std::ceil(panels / static_cast<double>(s.panels_per_item));
  const double rows = std::min<double>(m, static_cast<double>(s.rows_per_item));
  double slots = (blocks - 1) * SlotsOfRows(rows, s, column_load) * k +
                 SlotsOfRows(m - (blocks - 1) * rows, s, column_load) * k;
  // Sums go through memory once for each piece of the reduction, and once to the epilogue.
  slots += m * s.nv * 2 * std::ceil(k / kc);
  if (!s.pack_ahead) {
    const bool contiguous = !roles.columns.empty() &&
                            roles.letters[roles.column_operand].back() == roles.columns.back();
    slots += blocks * k * s.nv * (contiguous ? 4 : 3 * lanes);
  }
  slots *= panels * batch;
  const int threads = std::max(1, target.threads());
  const double slots_per_second = machine.f32_flops_per_second / 2 / (target.vector_bytes() / 4.0);
  return slots / slots_per_second * Imbalance(items, threads);
}

double AttentionSeconds(const KernelTask& task, const KernelChoice& choice, const Expr::Env& env,
                        const v1::Target& target, const Machine& machine) {
  const Node& node = task.graph.node(choice.anchor);
  const AttentionSchedule& s = choice.attention;
  const Shape& q = task.graph.node(node.inputs[0]).type.shape;
  const Shape& v = task.graph.node(node.inputs[2]).type.shape;
  double batch = 1;
  for (size_t i = 0; i + 2 < q.size(); ++i) batch *= ValueOf(q[i], env);
  const double queries = ValueOf(q[q.size() - 2], env), depth = ValueOf(q.back(), env);
  const double keys = ValueOf(v[v.size() - 2], env), value_depth = ValueOf(v.back(), env);
  const double lanes =
      static_cast<double>(target.vector_bytes()) / DTypeBytes(AccumulatorOf(node.type.dtype));
  const double groups = std::ceil(queries / (lanes * s.nv));
  ContractSchedule tile;
  tile.mr = s.mr;
  tile.nv = s.nv;
  constexpr double kExpSlots = 12;  // of a vector's exponential and its share of maximum and sum
  double slots = SlotsOfRows(keys, tile, 1) * depth + SlotsOfRows(value_depth, tile, 1) * keys +
                 keys * s.nv * kExpSlots;
  // Each block of keys corrects the sums so far.
  slots += std::ceil(keys / static_cast<double>(s.key_block)) * value_depth * s.nv * 3;
  const double slots_per_second = machine.f32_flops_per_second / 2 / (target.vector_bytes() / 4.0);
  return slots * groups * batch / slots_per_second *
         Imbalance(groups * batch, std::max(1, target.threads()));
}

}  // namespace

Machine Machine::Typical(const v1::Target& target) {
  const double threads = std::max(1, target.threads());
  Machine m;
  m.read_bytes_per_second = 15e9 * threads;
  m.cache_bytes_per_second = 60e9 * threads;
  // Two pipes, each a vector of f32 multiply-adds a cycle, at 3 GHz.
  m.f32_flops_per_second = threads * 3e9 * 2 * 2 * std::max(16, target.vector_bytes()) / 4;
  m.launch_seconds = 1e-7;
  return m;
}

double RooflineSeconds(const KernelTask& task, const SizePoint& sizes, const Machine& machine) {
  const Expr::Env env = EnvOf(task.graph, sizes);
  const std::vector<bool> memory = OperandsOf(task);
  const double bytes = ValueOf(MovedBytes(task.graph, memory, task.choice.root), env);
  const double flops = ValueOf(Flops(task.graph, memory, task.choice.root), env);
  // What the caches hold between two calls is not read from memory again.
  constexpr double kCached = 16e6;
  const double bandwidth =
      bytes > kCached ? machine.read_bytes_per_second : machine.cache_bytes_per_second;
  return std::max(bytes / bandwidth, flops / machine.f32_flops_per_second);
}

double PredictSeconds(const KernelTask& task, const KernelChoice& choice, const SizePoint& sizes,
                      const v1::Target& target, const Machine& machine) {
  const Expr::Env env = EnvOf(task.graph, sizes);
  double seconds = RooflineSeconds(task, sizes, machine);
  if (choice.kind == KernelKind::kContract) {
    seconds = std::max(seconds, ContractSeconds(task, choice, env, target, machine));
  } else if (choice.kind == KernelKind::kAttention) {
    seconds = std::max(seconds, AttentionSeconds(task, choice, env, target, machine));
  }
  return seconds + machine.launch_seconds;
}

}  // namespace athanor
