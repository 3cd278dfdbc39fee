#include "compiler/search/kernels/library_call.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/library_product.h"

namespace athanor {
namespace {

constexpr int64_t kMostExtent = std::numeric_limits<int32_t>::max();

// Dtypes that the library multiplies, and the most sums of each (runtime/program/checked_call.cc).
struct Types {
  DType operands, result;
  int64_t most_sums = kMostExtent;
};
constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32},
    {DType::kF64, DType::kF64},
    {DType::kF16, DType::kF16},
    {DType::kF16, DType::kF32},
    {DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32},
    // More products of 2^14 each may leave an i32.
    {DType::kI8, DType::kI32, kMostExtent / (128 * 128)},
};

const Types* FindTypes(const Graph& graph, const Node& product) {
  const DType operands = graph.node(product.inputs[0]).type.dtype;
  if (graph.node(product.inputs[1]).type.dtype != operands) return nullptr;
  for (const Types& types : kTypes) {
    if (types.operands == operands && types.result == product.type.dtype) return &types;
  }
  return nullptr;
}

// Returns the number if it is constant and one that the library takes.
std::optional<int64_t> ExtentOf(const Expr& e, int64_t most = kMostExtent) {
  const std::optional<int64_t> extent = e.constant();
  return extent && *extent >= 1 && *extent <= most ? extent : std::nullopt;
}

// Removes the batch's letters from the offset of a matrix's first element, and returns the distance
// from one of the batch to the next; nullopt if there is no such distance.
std::optional<int64_t> TakeBatch(const ContractRoles& roles, Expr* offset) {
  int64_t stride = 0, within = 1;
  for (auto letter = roles.batch.rbegin(); letter != roles.batch.rend(); ++letter) {
    const std::optional<Expr::Affine> affine = offset->AsAffine(BatchSymbol(*letter));
    const std::optional<int64_t> extent = roles.extents.at(*letter).constant();
    if (!affine || !affine->stride.constant() || !extent) return std::nullopt;
    *offset = affine->base;
    if (*extent == 1) continue;
    const int64_t step = *affine->stride.constant();
    if (within == 1) stride = step;
    if (step != stride * within) return std::nullopt;
    within *= *extent;
  }
  return stride >= 0 ? std::optional(stride) : std::nullopt;
}

// `rows`, `columns`: of the matrix, at most.
std::optional<CallMatrix> MatrixOf(const MatrixView& view, const ContractRoles& roles, int64_t rows,
                                   int64_t columns) {
  Expr offset = view.offset;
  const std::optional<int64_t> batch_stride = TakeBatch(roles, &offset);
  if (!batch_stride || offset.constant().value_or(-1) < 0) return std::nullopt;
  const int64_t length = view.transposed ? rows : columns;
  const int64_t runs = view.transposed ? columns : rows;
  // Nothing steps over the only run, whatever its stride is.
  const std::optional<int64_t> stride = runs == 1 ? length : view.stride().constant();
  if (!stride) return std::nullopt;
  return CallMatrix{view.node, *offset.constant(), *stride, *batch_stride, view.transposed};
}

}  // namespace

std::vector<int64_t> CallWays(const Expr& rows, const Bounds& bounds) {
  // A call of fewer rows takes no less time.
  constexpr int64_t kLeastRows = 32;
  constexpr int64_t kNear = 64;
  constexpr int kWays = 8;
  const std::optional<int64_t> most = bounds.Maximum(rows);
  if (!most || *most < 1) return {};
  const int64_t least = std::max<int64_t>(bounds.Minimum(rows).value_or(1), 1);
  if (*most - least < kNear) return {*most};
  std::vector<int64_t> ways = {std::max(least, kLeastRows)};
  const double last = static_cast<double>(*most), first = static_cast<double>(ways[0]);
  for (int i = 1; i < kWays; ++i) {
    const double way = first * std::pow(last / first, static_cast<double>(i) / (kWays - 1));
    ways.push_back(std::max(ways.back() + 1, static_cast<int64_t>(std::llround(way))));
  }
  ways.back() = *most;
  return ways;
}

std::optional<ProductCall> FindLibraryCall(const Graph& graph, const std::vector<bool>& has_memory,
                                           NodeId root, NodeId anchor, bool swap) {
  if (WeightsOf(graph)[anchor]) return std::nullopt;
  Node node = graph.node(anchor);
  for (NodeId& operand : node.inputs) operand = BehindCast(graph, operand, &has_memory);
  const Types* const types = FindTypes(graph, node);
  if (types == nullptr) return std::nullopt;
  const ContractRoles roles = FindContractRoles(graph, node, swap);
  const Bounds bounds = graph.DimBounds();
  ProductCall call{.rows = roles.SizeOf(roles.rows)};
  call.ways = CallWays(call.rows, bounds);
  const std::optional<int64_t> columns = ExtentOf(roles.SizeOf(roles.columns)),
                               sums = ExtentOf(roles.SizeOf(roles.sums), types->most_sums),
                               batch = ExtentOf(roles.SizeOf(roles.batch));
  if (call.ways.empty() || call.ways.back() > kMostExtent) return std::nullopt;
  if (!columns || !sums || !batch || (*batch > 1 && !call.rows.constant())) return std::nullopt;
  // The library adds a bias to sums that are not rounded to f16 yet.
  const bool takes_bias = node.type.dtype == DType::kF32 || node.type.dtype == DType::kF64;
  const std::optional<LibraryProduct> product =
      FindMatrices(graph, has_memory, root, anchor, node, swap, takes_bias);
  if (!product || !product->result || product->result->transposed) return std::nullopt;
  const int64_t rows = call.ways.back();
  const std::optional<CallMatrix> result = MatrixOf(*product->result, roles, rows, *columns),
                                  left = MatrixOf(product->left, roles, rows, *sums),
                                  right = MatrixOf(product->right, roles, *sums, *columns);
  if (!result || !left || !right) return std::nullopt;
  // Results of a batch that lie among each other are none that the runtime takes.
  if (*batch > 1 && result->batch_stride < (rows - 1) * result->stride + *columns) {
    return std::nullopt;
  }
  call.result = *result;
  call.left = *left;
  call.right = *right;
  call.bias = product->bias;
  call.columns = *columns;
  call.sums = *sums;
  call.batch = *batch;
  return call;
}

}  // namespace athanor
