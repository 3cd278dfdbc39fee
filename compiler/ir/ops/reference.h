// The reference evaluator's kernels: for every op the slow, obvious implementation of its semantics
// text, one function per op, named by the op. The op table's `reference` column points at them.
//
//   Tensor sum = Tensor::Zeros(a.dtype, a.shape);
//   absl::Status s = ReferenceAdd({&a, &b}, /*attrs=*/{}, /*dims=*/{}, &sum);
//
// REQUIRES: operands and attributes that the op's inference accepts; `result` with its dtype and
// shape set and its bytes zeroed. Floats are computed wider (f64 for f16, bf16 and f32; long double
// where it helps f64) and rounded once to the result's dtype, so a reference value is as near the
// true one as its dtype allows. Input and Parameter have no function: their values come from the
// caller. Thread-safe.
#ifndef ATHANOR_COMPILER_IR_OPS_REFERENCE_H_
#define ATHANOR_COMPILER_IR_OPS_REFERENCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/op.h"

namespace athanor {

#define ATHANOR_X(name)                                                                    \
  absl::Status Reference##name(absl::Span<const Tensor* const> inputs, const Attrs& attrs, \
                               const Expr::Env& dims, Tensor* result);
ATHANOR_OPS(ATHANOR_X)
#undef ATHANOR_X

// Returns element `index` of RandomBits with this seed.
uint32_t RandomWord(uint64_t seed, int64_t index);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_OPS_REFERENCE_H_
