// Functions of floats. f32 exponentials and logarithms are inline polynomials, so that an infinite
// or masked lane costs no more than another. The others are libm's, through libmvec where its error
// is within the op table's bound.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_MATH_FUNCTIONS_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_MATH_FUNCTIONS_H_

#include <string>

#include "compiler/codegen/cpu/prelude.h"

namespace athanor::kir {

// Returns the name of T(T x) or, for kPow and kMod, T(T a, T b), of f32 or f64.
std::string MathFunction(Prelude& p, Op op, const std::string& element, int lanes);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_MATH_FUNCTIONS_H_
