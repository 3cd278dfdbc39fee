// Conversions between ONNX's element types. Types that are codes in u8 are encoded and decoded
// here, by integer arithmetic on the bits of f32; no other code knows their meaning.
//
//   const Value wide = Up(b, x);           // f16 as f32
//   c.Set(0, Cast(b, Unary(b, Op::kExp, wide), x.elem));
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_CAST_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_CAST_H_

#include <cstdint>

#include "compiler/frontend/onnx/build/build.h"

namespace athanor::onnx {

// Treatment of values that a cast's target type cannot hold; only for casts to f8, f4 and e8m0.
struct CastMode {
  bool saturate = true;
  enum class Round : uint8_t { kUp, kDown, kNearest } round = Round::kUp;  // to float8e8m0
  bool fnuz_keeps_infinity = false;  // opsets 19 to 23: infinities give NaN in FNUZ types
};

// Casts as ONNX does, with code types and narrow integers.
Value Cast(OpBuilder& b, const Value& x, Elem to, const CastMode& mode = {});
Value Bitcast(OpBuilder& b, const Value& x, Elem to);
// Casts f16 and bf16 to f32 and leaves other types: for results that are rounded once at the end.
Value Up(OpBuilder& b, const Value& x);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_CAST_H_
