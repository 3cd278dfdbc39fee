// Handlers: matrix products and ops built on them.
#include "compiler/frontend/onnx/ops/math/handlers_linear.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr int kMaxDet = 32;

absl::Status MatMul1(HandlerContext& c) {
  c.Set(0, MatMul(c.b(), c.In(0), c.In(1)));
  return absl::OkStatus();
}

// Multiplies `x` by an attribute's factor: f16 and bf16 in f32, integers only by whole factors.
absl::StatusOr<Value> Scaled(OpBuilder& b, std::string_view name, const Value& x, double factor) {
  if (factor == 1) return x;
  if (!IsFloat(x.dtype()) && (factor != std::floor(factor) || std::abs(factor) > 0x1p31)) {
    return Invalid("attribute \"", name, "\" is ", factor, ", which is not a value of type ",
                   ElemName(x.elem));
  }
  return Mul(b, x, Nearest(b, x.elem, factor));
}

absl::Status GemmBy(HandlerContext& c, bool broadcast) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &w = c.In(1);
  if (x.rank() != 2 || w.rank() != 2) {
    return Invalid("its operands have shapes ", ShapeToString(x.shape), " and ",
                   ShapeToString(w.shape), "; they must be matrices");
  }
  const bool across = c.Int("transA") != 0, down = c.Int("transB") != 0;
  const std::string spec = Cat(across ? "km" : "mk", ",", down ? "nk" : "kn", "->mn");
  const Value product = Contract(b, spec, x, w);
  const bool plain = c.Float("alpha") == 1 && !c.Has(2);
  // Keeps the wide type, so that the result is rounded only once, at the end.
  absl::StatusOr<Value> y = Scaled(b, "alpha", plain ? product : Up(b, product), c.Float("alpha"));
  if (!y.ok()) return y.status();
  if (c.Has(2)) {
    const Shape shape = {x.shape[across ? 1 : 0], w.shape[down ? 0 : 1]};
    const Value& bias = c.In(2);
    if (!broadcast && bias.rank() != 2) {
      return Invalid("its C has shape ", ShapeToString(bias.shape),
                     "; without attribute "
                     "\"broadcast\" it must have the result's, ",
                     ShapeToString(shape));
    }
    ASSIGN_OR_RETURN(Value added, Scaled(b, "beta", Up(b, bias), c.Float("beta")));
    y = Add(b, *y, Broadcast(b, added, shape));
  }
  c.Set(0, Cast(b, *y, x.elem));
  return absl::OkStatus();
}
absl::Status Gemm1(HandlerContext& c) { return GemmBy(c, c.Int("broadcast") != 0); }
absl::Status Gemm7(HandlerContext& c) { return GemmBy(c, /*broadcast=*/true); }

// Computes the determinant by Gaussian elimination with the largest pivot of each column, unrolled.
// It is the product of the pivots, negated for every exchange of rows.
absl::Status Det11(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  const int rank = x.rank();
  const auto size = rank < 2 ? std::nullopt : x.shape.back().constant();
  if (!size.has_value() || x.shape[rank - 2].constant() != size) {
    return Invalid("its input has shape ", ShapeToString(x.shape),
                   "; it must hold square matrices of a constant size");
  }
  if (*size > kMaxDet) {
    return Unimplemented("its matrices have ", *size, " rows; at most ", kMaxDet, " are supported");
  }
  const int rows = rank - 2, columns = rank - 1;
  const Shape batch(x.shape.begin(), x.shape.end() - 2);
  Value m = Up(b, x);
  const Value zero = b.Scalar(m.elem, 0);
  Value det = Splat(b, b.Scalar(m.elem, 1), batch);
  for (int64_t n = *size; n > 0 && b.status().ok(); --n) {
    const Value column = Slice(b, m, columns, 0, 1);
    const Value at = ArgExtreme(b, Abs(b, column), rows, /*largest=*/true, /*last=*/false,
                                /*keepdims=*/true);
    const Value row = b.Iota(Elem::kInt64, {Expr(n), Expr(1)}, 0);
    const Value chosen = Equal(b, row, at);
    const Value pivot_row = Reduce(b, Op::kSumReduce, Select(b, chosen, m, zero), {rows}, true);
    const Value first_row = Slice(b, m, rows, 0, 1);
    const Value pivot = Slice(b, pivot_row, columns, 0, 1);
    const Value sign = Select(b, Equal(b, at, b.Integer(Elem::kInt64, 0)), b.Scalar(m.elem, 1),
                              b.Scalar(m.elem, -1));
    det = Mul(b, det, Squeeze(b, Mul(b, pivot, sign), {rows, columns}));
    if (n == 1) break;
    const Value swapped = Select(b, chosen, first_row, m);
    const Value rest = Slice(b, Slice(b, swapped, rows, 1, n - 1), columns, 1, n - 1);
    const Value below = Slice(b, Slice(b, swapped, rows, 1, n - 1), columns, 0, 1);
    // In a column of zeros the pivot is 0. The product is then 0 and must not become NaN.
    const Value factor = Select(b, Equal(b, pivot, zero), zero, Div(b, below, pivot));
    m = Sub(b, rest, Mul(b, factor, Slice(b, pivot_row, columns, 1, n - 1)));
  }
  c.Set(0, Cast(b, det, x.elem));
  return absl::OkStatus();
}

// ONNX Runtime's op: `transBatch` moves the first axis to the position of the rows, `trans`
// exchanges the last two.
absl::Status FusedMatMul1(HandlerContext& c) {
  OpBuilder& b = c.b();
  const auto operand = [&](int i, std::string_view trans, std::string_view trans_batch) {
    Value x = c.In(i);
    const int rank = x.rank();
    std::vector<int> axes;
    for (int k = 0; k < rank; ++k) axes.push_back(k);
    if (c.Int(trans_batch) != 0 && rank > 2) std::rotate(&axes[0], &axes[1], &axes[0] + rank - 1);
    if (c.Int(trans) != 0 && rank > 1) std::swap(axes[rank - 2], axes[rank - 1]);
    return Permute(b, x, axes);
  };
  const Value product =
      MatMul(b, operand(0, "transA", "transBatchA"), operand(1, "transB", "transBatchB"));
  if (c.Float("alpha") == 1) {
    c.Set(0, product);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Value y, Scaled(b, "alpha", Up(b, product), c.Float("alpha")));
  c.Set(0, Cast(b, y, product.elem));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "MatMul", 1, MatMul1}, {"", "Gemm", 1, Gemm1},
    {"", "Gemm", 7, Gemm7},     {"", "Einsum", 12, Einsum12},
    {"", "Det", 11, Det11},     {"com.microsoft", "FusedMatMul", 1, FusedMatMul1},
};

}  // namespace

absl::Span<const HandlerRow> LinearRows() { return kRows; }

}  // namespace athanor::onnx
