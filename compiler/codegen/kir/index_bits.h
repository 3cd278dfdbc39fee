// Index arithmetic in 32 bits, where the bounds prove that nothing in it needs more.
//
//   v3: i64 = index 768*i0 + i1          // i0 <= 511, i1 <= 767: Stmt::narrow, "i32 " in the text
//
// GPUs multiply and divide 32 bits several times as fast as 64.
#ifndef ATHANOR_COMPILER_CODEGEN_KIR_INDEX_BITS_H_
#define ATHANOR_COMPILER_CODEGEN_KIR_INDEX_BITS_H_

#include "compiler/codegen/kir/kir.h"
#include "compiler/ir/expr/expr.h"

namespace athanor::kir {

// Reports whether the statement's index expressions may be computed in i32: every symbol, product
// and sum on the way fits, in the order in which the printer writes them, inactive lanes included.
// False if none of them computes anything. The part that lanes differ by is not asked about.
bool FitsI32(const Stmt& stmt, const Bounds& bounds);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_KIR_INDEX_BITS_H_
