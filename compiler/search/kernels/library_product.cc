#include "compiler/search/kernels/library_product.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/state_layout.h"

namespace athanor {
namespace {

constexpr char kRow[] = "$row", kColumn[] = "$column", kSum[] = "$sum";
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

bool Fits(const Bounds& bounds, const Expr& e) {
  const std::optional<int64_t> most = bounds.Maximum(e);
  return most && *most <= kMost;
}

// The extent of a group of axes and the symbol of its flattened index.
struct Side {
  const char* symbol;
  Expr extent;
};

class ProductFinder {
 public:
  ProductFinder(const Graph& graph, const std::vector<bool>& has_memory, NodeId root, NodeId anchor,
                const Node& node, bool swap, bool takes_bias)
      : graph_(graph),
        has_memory_(has_memory),
        root_(root),
        anchor_(anchor),
        node_(node),
        takes_bias_(takes_bias),
        roles_(FindContractRoles(graph, node_, swap)),
        bounds_(graph.DimBounds()),
        rows_{kRow, roles_.SizeOf(roles_.rows)},
        columns_{kColumn, roles_.SizeOf(roles_.columns)},
        sums_{kSum, roles_.SizeOf(roles_.sums)} {
    for (const Side& side : {rows_, columns_, sums_}) bounds_.SetExtent(side.symbol, side.extent);
    for (char letter : roles_.batch) {
      batch_.push_back(Expr::Symbol(BatchSymbol(letter)));
      bounds_.SetExtent(BatchSymbol(letter), roles_.extents.at(letter));
    }
  }

  std::optional<LibraryProduct> Find() {
    if (!Fits(bounds_, sums_.extent)) return std::nullopt;
    std::optional<MatrixView> left = Operand(roles_.row_operand, rows_, sums_);
    std::optional<MatrixView> right = Operand(roles_.column_operand, sums_, columns_);
    if (!left || !right) return std::nullopt;
    std::optional<MatrixView> result = Result();  // finds the bias, too
    return LibraryProduct{*std::move(left), *std::move(right), std::move(result), bias_};
  }

 private:
  std::vector<Expr> At(const std::string& letters) const {
    std::vector<Expr> at =
        roles_.At(letters, batch_, Expr::Symbol(kRow), Expr::Symbol(kColumn), Expr::Symbol(kSum));
    for (Expr& e : at) e = bounds_.Simplify(e);
    return at;
  }

  std::optional<MatrixView> Operand(int side, const Side& rows, const Side& columns) const {
    NodeId n = node_.inputs[side];
    std::vector<Expr> at = At(roles_.letters[side]);
    if (!ToMemory(&n, &at)) return std::nullopt;
    return View(n, at, rows, columns);
  }

  bool IsView(NodeId n) const {
    return IsIndexMap(graph_.node(n).op) && !graph_.node(n).attrs.contains("fill");
  }

  // Follows views of a node, at these coordinates, to the memory that they read.
  bool ToMemory(NodeId* n, std::vector<Expr>* at) const {
    while (!has_memory_[*n]) {
      if (!IsView(*n)) return false;
      const Node& view = graph_.node(*n);
      *at = MapCoordinates(GetAttr<IndexMap>(view.attrs, "map"), *at, bounds_);
      *n = view.inputs[0];
    }
    return true;
  }

  std::optional<MatrixView> Result() {
    for (NodeId n = root_; n != anchor_; n = graph_.node(n).inputs[0]) {
      if (n != root_ && has_memory_[n]) return std::nullopt;
      if (takes_bias_ && IsAddition(graph_.node(n).op)) {
        if (!TakeBias(n)) return std::nullopt;
        break;
      }
      if (!IsView(n)) return std::nullopt;
    }
    const auto at =
        RootCoordinates(graph_, has_memory_, root_, anchor_, At(roles_.result), bounds_);
    if (!at) return std::nullopt;
    return View(root_, *at, rows_, columns_);
  }

  // Reports whether `add` adds a bias to views of the product.
  bool TakeBias(NodeId add) {
    const std::vector<NodeId>& inputs = graph_.node(add).inputs;
    for (int side : {0, 1}) {
      NodeId product = inputs[side], bias = inputs[1 - side];
      while (product != anchor_ && !has_memory_[product] && IsView(product)) {
        product = graph_.node(product).inputs[0];
      }
      if (product != anchor_) continue;
      auto at = RootCoordinates(graph_, has_memory_, add, anchor_, At(roles_.result), bounds_);
      if (!at || !ToMemory(&bias, &*at)) continue;
      const Expr place = bounds_.Simplify(MemoryOffset(graph_, bias, *at));
      if (place != bounds_.Simplify(Expr::Symbol(kColumn))) continue;
      bias_ = bias;
      return true;
    }
    return false;
  }

  std::optional<MatrixView> View(NodeId n, const std::vector<Expr>& at, const Side& rows,
                                 const Side& columns) const {
    // In a matrix the offset is affine in row and column, and neither stride depends on the other
    // index.
    const Expr offset = bounds_.Simplify(MemoryOffset(graph_, n, at));
    const std::optional<Expr::Affine> by_row = offset.AsAffine(rows.symbol);
    if (!by_row) return std::nullopt;
    const std::optional<Expr::Affine> by_column = by_row->base.AsAffine(columns.symbol);
    if (!by_column || by_row->stride.Uses(columns.symbol)) return std::nullopt;
    MatrixView view{n, by_column->base, by_row->stride, by_column->stride, false};
    // BLAS takes matrices whose rows, or, if transposed, columns are contiguous.
    if (Lies(view.column_stride, columns.extent, view.row_stride, rows.extent)) return view;
    view.transposed = true;
    if (Lies(view.row_stride, rows.extent, view.column_stride, columns.extent)) return view;
    return std::nullopt;
  }

  // Reports whether `count` runs of `length` adjacent elements lie `stride` apart without
  // overlapping.
  bool Lies(const Expr& step, const Expr& length, const Expr& stride, const Expr& count) const {
    if (!step.IsConstant(1) && !length.IsConstant(1)) return false;
    if (!Fits(bounds_, stride)) return false;
    return count.IsConstant(1) || bounds_.NonNegative(stride - length);
  }

  const Graph& graph_;
  const std::vector<bool>& has_memory_;
  const NodeId root_, anchor_;
  const Node& node_;
  const bool takes_bias_;
  const ContractRoles roles_;
  Bounds bounds_;
  const Side rows_, columns_, sums_;
  std::vector<Expr> batch_;
  NodeId bias_ = -1;
};

}  // namespace

std::string BatchSymbol(char letter) { return std::string("$") + letter; }

std::optional<LibraryProduct> FindLibraryProduct(const Graph& graph,
                                                 const std::vector<bool>& has_memory, NodeId root,
                                                 NodeId anchor, bool swap) {
  const Node& node = graph.node(anchor);
  if (node.type.dtype != DType::kF32 && node.type.dtype != DType::kF64) return std::nullopt;
  return FindMatrices(graph, has_memory, root, anchor, node, swap, /*takes_bias=*/false);
}

std::optional<LibraryProduct> FindMatrices(const Graph& graph, const std::vector<bool>& has_memory,
                                           NodeId root, NodeId anchor, const Node& node, bool swap,
                                           bool takes_bias) {
  return ProductFinder(graph, has_memory, root, anchor, node, swap, takes_bias).Find();
}

}  // namespace athanor
