// Expressions in tests: written as text or by symbol, printed in failures.
#ifndef ATHANOR_COMPILER_IR_EXPR_EXPR_TESTING_H_
#define ATHANOR_COMPILER_IR_EXPR_EXPR_TESTING_H_

#include <ostream>
#include <string_view>

#include "compiler/ir/expr/expr.h"
#include "gtest/gtest.h"

namespace athanor {

// Makes failures readable.
inline void PrintTo(const Expr& e, std::ostream* os) { *os << e.ToString(); }

inline Expr S(std::string_view name) { return Expr::Symbol(name); }

inline Expr P(std::string_view text) {
  absl::StatusOr<Expr> e = Expr::Parse(text);
  EXPECT_TRUE(e.ok()) << e.status() << " in " << text;
  return e.ok() ? *e : Expr(-777);
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_EXPR_EXPR_TESTING_H_
