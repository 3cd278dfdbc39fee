// Converts size expressions between their message (proto/athanor/v1/graph.proto) and
// compiler/ir/expr/expr.h.
//
//   v1::SizeExpr message = ExprToProto(2 * Expr::Symbol("b") + 3);
//   ExprFromProto(message).value() == 2 * Expr::Symbol("b") + 3
#ifndef ATHANOR_COMPILER_FRONTEND_EXPR_PROTO_H_
#define ATHANOR_COMPILER_FRONTEND_EXPR_PROTO_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/ir/expr/expr.h"
#include "proto/athanor/v1/graph.pb.h"

namespace athanor {

struct ExprLimits {
  int max_depth = 16;      // nesting depth of floor_div, min and max
  int64_t max_size = 256;  // number of terms and factors, nested ones included
};

// Returns INVALID_ARGUMENT for an expression deeper or larger than the limits, a factor without a
// kind, a name that no symbol can have, or a coefficient outside 64 bits. The caller checks which
// symbols may be used.
absl::StatusOr<Expr> ExprFromProto(const v1::SizeExpr& message, const ExprLimits& limits = {});

// REQUIRES: !expr.overflow()
v1::SizeExpr ExprToProto(const Expr& expr);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_EXPR_PROTO_H_
