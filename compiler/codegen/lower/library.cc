// Contractions by the target's library: a grid of (batch, column blocks, row blocks). A work item
// lets the library multiply its block into the result itself or, if something follows, into
// scratch, from which the epilogue reads it while it is in the cache.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/library_product.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

using kir::Var;

namespace {

class LibraryLowering {
 public:
  explicit LibraryLowering(KernelBuilder& b)
      : b_(b),
        e_(b.emitter),
        node_(b.input.graph.node(b.choice.anchor)),
        s_(std::get<LibrarySchedule>(b.choice.contract)),
        roles_(FindContractRoles(b.input.graph, node_, s_.swap)),
        lanes_(b.LanesFor(DTypeBytes(node_.type.dtype))),
        block_columns_(s_.panels_per_item * lanes_) {}

  absl::Status Lower();

 private:
  void Grid();
  kir::Matrix Block(int buffer, const MatrixView& view, const Expr& row, const Expr& column) const;
  void Epilogue(int block);

  KernelBuilder& b_;
  kir::Emitter& e_;
  const Node& node_;
  const LibrarySchedule& s_;
  const ContractRoles roles_;
  const int lanes_;
  const int64_t block_columns_;
  Coordinates batch_;
  Expr m_begin_, m_end_, n_begin_, n_end_;  // the item's block
  absl::Status status_;
};

// The transpose of a product is the product of the transposed operands in the other order.
kir::Matrix Transposed(kir::Matrix m) {
  m.transposed = !m.transposed;
  return m;
}

absl::Status LibraryLowering::Lower() {
  const LowerInput& in = b_.input;
  const std::string about = absl::StrCat(in.graph.Describe(b_.choice.anchor), ": ");
  if (in.target.blas().empty()) {
    return absl::InternalError(absl::StrCat(about, "the target (device \"", in.target.device(),
                                            "\") has no library that multiplies matrices"));
  }
  RETURN_IF_ERROR(b_.CheckEpilogue());
  const std::optional<LibraryProduct> product =
      FindLibraryProduct(in.graph, in.has_memory, b_.choice.root, b_.choice.anchor, s_.swap);
  if (!product) {
    return absl::InternalError(
        absl::StrCat(about, "not a product of matrices that ", in.target.blas(), " can read"));
  }
  Grid();
  const kir::Matrix left =
      Block(b_.at.BufferOf(product->left.node, false), product->left, m_begin_, 0);
  const kir::Matrix right =
      Block(b_.at.BufferOf(product->right.node, false), product->right, 0, n_begin_);
  const Expr rows = e_.Simplify(m_end_ - m_begin_), columns = e_.Simplify(n_end_ - n_begin_);
  const Expr sums = roles_.SizeOf(roles_.sums);
  if (!product->result) {
    const int block = e_.Scratch(node_.type.dtype, s_.rows_per_item * block_columns_);
    e_.Gemm({block, 0, block_columns_, false}, left, right, rows, columns, sums);
    Epilogue(block);
    return status_;
  }
  const kir::Matrix result = Block(b_.out, *product->result, m_begin_, n_begin_);
  if (result.transposed) {
    e_.Gemm(Transposed(result), Transposed(right), Transposed(left), columns, rows, sums);
  } else {
    e_.Gemm(result, left, right, rows, columns, sums);
  }
  return absl::OkStatus();
}

void LibraryLowering::Grid() {
  const Expr m = roles_.SizeOf(roles_.rows), n = roles_.SizeOf(roles_.columns);
  std::vector<Expr> grid = roles_.ExtentsOf(roles_.batch);
  const size_t batch_rank = grid.size();
  grid.push_back(CeilDiv(n, block_columns_));
  grid.push_back(CeilDiv(m, s_.rows_per_item));
  for (Expr& e : grid) e = e_.Simplify(e);
  const Coordinates item = b_.SplitItem(grid);
  batch_.assign(item.begin(), item.begin() + static_cast<std::ptrdiff_t>(batch_rank));
  n_begin_ = item[batch_rank] * block_columns_;
  n_end_ = e_.Simplify(MinOf(n, n_begin_ + block_columns_));
  m_begin_ = item[batch_rank + 1] * s_.rows_per_item;
  m_end_ = e_.Simplify(MinOf(m, m_begin_ + s_.rows_per_item));
}

kir::Matrix LibraryLowering::Block(int buffer, const MatrixView& view, const Expr& row,
                                   const Expr& column) const {
  std::map<std::string, Expr, std::less<>> at;
  for (size_t i = 0; i < batch_.size(); ++i) at[BatchSymbol(roles_.batch[i])] = batch_[i];
  const Expr index =
      view.offset.Substitute(at) + row * view.row_stride + column * view.column_stride;
  return {buffer, e_.Simplify(index), view.stride(), view.transposed};
}

void LibraryLowering::Epilogue(int block) {
  const Expr lane = e_.Lane(lanes_);
  e_.For(m_begin_, m_end_, 1, [&](const Expr& m) {
    e_.VectorFor(n_begin_, n_end_, lanes_, [&](const Expr& n, const std::optional<Expr>& count) {
      PointLowering::Context context(&b_.at, lanes_, count);
      Coordinates anchor = roles_.At(roles_.result, batch_, m, n + lane, 0);
      for (Expr& e : anchor) e = e_.Simplify(e);
      status_.Update(b_.StoreEpilogue(anchor, [=, this] {
        return e_.Load(block, (m - m_begin_) * block_columns_ + n - n_begin_ + lane, lanes_, {});
      }));
    });
  });
}

}  // namespace

absl::Status LowerLibraryProduct(KernelBuilder& b) { return LibraryLowering(b).Lower(); }

}  // namespace athanor
